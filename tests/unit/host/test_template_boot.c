/* A template's ready_cmd against a clock of the test's: how often it is tried, and for how long. */
#include "test.h"

#include <jansson.h>
#include <poll.h>
#include <stdint.h>

#include "common/clock.h"
#include "lib/box/box_environment.h"
#include "lib/image/image.h"
#include "lib/box/template_boot.h"

/* ---- what the linker puts in the place of the clock and of the box (Makefile) ---- */

#define BEGAN_MS 5000000
#define MINUTES(n) ((int64_t)(n)*60 * 1000)

static bool is_faked; /* the test program itself goes by the real ones */
static int64_t now_ms;
static struct {
    int64_t takes_ms; /* a try; 0: until its own limit ends it */
    int succeeds_at;  /* the number of the try that does, or 0 */
    int tries;
    int64_t last_limit_ms;
    int cancel_at; /* the number of the pause, or 0 */
    int pauses;
} box;

int64_t __real_clock_mono_ms(void);
int64_t __wrap_clock_mono_ms(void);
int __real_poll(struct pollfd *fds, nfds_t n, int ms);
int __wrap_poll(struct pollfd *fds, nfds_t n, int ms);
int __wrap_image_facts(const char *dir, struct image_facts *ret, struct err *e);
int __wrap_box_environment_json(struct bh_box *b, const char *const *more, json_t **ret,
                                struct err *e);
int __wrap_client_call(struct client *c, enum rpc_method method, json_t *params, int64_t deadline,
                       json_t **ret, struct err *e);

int64_t __wrap_clock_mono_ms(void)
{
    return is_faked ? now_ms : __real_clock_mono_ms();
}

int __wrap_poll(struct pollfd *fds, nfds_t n, int ms)
{
    if (!is_faked)
        return __real_poll(fds, n, ms);
    T_OK(ms > 0);
    if (++box.pauses == box.cancel_at)
        return 1;
    now_ms += ms;
    return 0;
}

int __wrap_image_facts(const char *dir, struct image_facts *ret, struct err *e)
{
    (void)e;
    T_STR(dir, "an image");
    *ret =
        (struct image_facts){.start_cmd = "", .ready_cmd = "is it", .workdir = "", .user = "user"};
    return 0;
}

int __wrap_box_environment_json(struct bh_box *b, const char *const *more, json_t **ret,
                                struct err *e)
{
    (void)b, (void)more, (void)e;
    *ret = json_object();
    return 0;
}

int __wrap_client_call(struct client *c, enum rpc_method method, json_t *params, int64_t deadline,
                       json_t **ret, struct err *e)
{
    bool ok = ++box.tries == box.succeeds_at;

    (void)c, (void)deadline, (void)e;
    T_INT(method, RPC_exec_run);
    T_STR(json_string_value(json_object_get(params, "shell")), "is it");
    box.last_limit_ms = json_integer_value(json_object_get(params, "timeout_ms"));
    now_ms += box.takes_ms ? box.takes_ms : box.last_limit_ms;
    *ret = box.takes_ms ? json_pack("{s:{s:s, s:i}, s:{s:s}}", "exit", "reason", "exited", "code",
                                    ok ? 0 : 3, "stderr", "text", "not yet\n")
                        : json_pack("{s:{s:s}}", "exit", "reason", "timeout");
    return 0;
}

/* ---- */

/* Boots a box like that; *ret_ms is the time it took, *ret_moved the move of the deadline. */
static int boot(bool is_bound, int64_t left_ms, int64_t *ret_ms, int64_t *ret_moved, struct err *e)
{
    struct bh_ctx ctx = {.cancel_fd = -1};
    struct bh_box b = {.ctx = &ctx, .spec = {.image_dir = (char *)"an image"}};
    int64_t deadline = BEGAN_MS + left_ms;
    struct bringup_report report = {0};
    int r;

    now_ms = BEGAN_MS;
    is_faked = true;
    r = template_boot(&b, NULL, is_bound, &deadline, &report, e);
    is_faked = false;
    *ret_ms = now_ms - BEGAN_MS;
    *ret_moved = deadline - BEGAN_MS - left_ms;
    T_STR(report.step, r < 0 ? "ready_cmd" : "");
    return r;
}

TEST(ready_cmd_is_tried_every_two_seconds_for_ten_minutes_and_no_longer)
{
    struct err e = {0};
    int64_t took, moved;

    box.takes_ms = 100;
    T_INT(boot(false, MINUTES(5), &took, &moved, &e), -ERR_DEADLINE);
    T_INT(box.tries, 300);
    T_INT(took, MINUTES(10) - 1900);
    T_INT(moved, took);
    T_STR(e.field, "ready_cmd");
    T_STR(e.message,
          "the template's ready_cmd did not succeed in 598 s; the last time: status 3: not yet");
}

TEST(ready_cmd_that_hangs_is_ended_with_the_ten_minutes)
{
    struct err e = {0};
    int64_t took, moved;

    T_INT(boot(false, MINUTES(5), &took, &moved, &e), -ERR_DEADLINE);
    T_INT(took, MINUTES(10));
    T_INT(box.tries, 20);
    T_STR(e.message, "the template's ready_cmd did not succeed in 600 s; the last time: timeout");
}

TEST(ready_cmd_that_is_slow_has_what_is_left_of_the_time)
{
    struct err e = {0};
    int64_t took, moved;

    box.takes_ms = 29000;
    T_INT(boot(false, MINUTES(5), &took, &moved, &e), -ERR_DEADLINE);
    T_INT(box.tries, 21);
    T_INT(box.last_limit_ms, MINUTES(10) - 20 * box.takes_ms);
}

TEST(ready_cmd_that_succeeds_late_takes_nothing_of_the_others_time)
{
    struct err e = {0};
    int64_t took, moved;

    box.takes_ms = 100;
    box.succeeds_at = 300;
    T_INT(boot(false, MINUTES(5), &took, &moved, &e), 0);
    T_INT(took, 299 * TEMPLATE_READY_EVERY_MS + 100);
    T_INT(moved, took);
}

TEST(ready_cmd_has_only_the_time_that_was_asked_for)
{
    struct err e = {0};
    int64_t took, moved;

    box.takes_ms = 100;
    T_INT(boot(true, 9000, &took, &moved, &e), -ERR_DEADLINE);
    T_INT(box.tries, 5);
    T_OK(took <= 9000);
    T_INT(moved, 0);
}

TEST(ready_cmd_ends_with_a_cancel)
{
    struct err e = {0};
    int64_t took, moved;

    box.takes_ms = 100;
    box.cancel_at = 3;
    T_INT(boot(false, MINUTES(5), &took, &moved, &e), -ERR_CANCELED);
    T_INT(box.tries, 3);
}
