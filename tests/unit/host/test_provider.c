/* A provider of the tests, which is a row and no more: the capabilities decide what is refused
 * and what the monitor does, and the box's processes are nobody's children. */
#include "test.h"

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/clock.h"
#include "lib/box/box.h"
#include "lib/box/box_provider.h"
#include "lib/provider/provider.h"
#include "monitor/exit_watch.h"

/* ---- the provider ---- */

static struct {
    int n_checks, n_finds;
    int found; /* find() says so */
    int n_watches, told_fd;
} far;

static int far_check(struct bh_ctx *ctx, struct spec *spec, struct err *e)
{
    (void)ctx, (void)spec, (void)e;
    far.n_checks++;
    return 0;
}

static int far_find(struct provider_box *b, struct provider_run *ret, struct err *e)
{
    *ret = (struct provider_run){0};
    T_STR(b->id, "00112233aabbccdd");
    far.n_finds++;
    return far.found < 0 ? err_set(e, ERR_UNAVAILABLE, "the other machine does not answer")
                         : far.found;
}

static int far_exit_status(struct provider_box *b, const struct provider_run *run, int *ret_status,
                           bool *ret_is_oom, struct err *e)
{
    (void)b, (void)run, (void)ret_is_oom, (void)e;
    *ret_status = 7 << 8;
    return 0;
}

static const struct provider provider_far = {
    .name = (char *)"far",
    .summary = "a box on another machine",
    .isolates = true,
    .networks = PROVIDER_NETWORK_NONE,
    .limits = PROVIDER_LIMIT_MEMORY,
    .exit = PROVIDER_EXIT_ASKED,
    .image = PROVIDER_IMAGE_OCI,
    .check = far_check,
    .find = far_find,
    .exit_status = far_exit_status,
};

/* ---- what it cannot honour ---- */

static int check_options(const struct provider *p, struct bh_create_options o, struct spec *ret,
                         struct err *e)
{
    struct bh_ctx ctx = {.agent_path = (char *)"/bin/true"};
    int r;

    o.size = sizeof(o);
    o.name = "box";
    T_INT(spec_from_options(&o, ret, e), 0);
    r = provider_check(p, &ctx, ret, e);
    if (r < 0)
        spec_done(ret);
    return r;
}

TEST(an_option_that_a_provider_lacks_is_refused_before_it_is_asked)
{
    static const char *const pieces[] = {"memory_limit", NULL};
    static const struct {
        struct bh_create_options options;
        const char *field;
    } cases[] = {
        {{.image = "host"}, "image"},
        {{.runtime = "runc"}, "runtime"},
        {{.network = "user"}, "network"},
        {{.privilege = "strict"}, "privilege"},
        {{.cpu_millis = 1000}, "cpus"},
        {{.disk_bytes = 1ULL << 30}, "disk"},
        {{.pids = 100}, "pids"},
        {{.pool = "small"}, "pool"},
        {{.allow_missing = pieces}, "allow-missing"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct spec spec = {0};
        struct err e = {0};
        char text[120];

        T_INT(check_options(&provider_far, cases[i].options, &spec, &e), -ERR_UNIMPLEMENTED);
        T_STR(e.field, cases[i].field);
        (void)snprintf(text, sizeof(text), "%s: the provider 'far' cannot honour it",
                       cases[i].field);
        T_STR(e.message, text);
    }
    T_INT(far.n_checks, 0);
}

TEST(an_option_that_a_pool_s_template_decides_is_refused_beside_it)
{
    static const struct provider provider_pools = {
        .name = "pools",
        .isolates = true,
        .has_runtimes = true,
        .has_read_only = true,
        .has_privileges = true,
        .has_pools = true,
        .networks = PROVIDER_NETWORK_USER,
        .limits =
            PROVIDER_LIMIT_CPUS | PROVIDER_LIMIT_MEMORY | PROVIDER_LIMIT_DISK | PROVIDER_LIMIT_PIDS,
        .image = PROVIDER_IMAGE_OCI,
        .check = far_check,
    };
    static const struct {
        struct bh_create_options options;
        const char *field;
    } cases[] = {
        {{.image = "slim"}, "image"},
        {{.runtime = "runc"}, "runtime"},
        {{.network = "user"}, "network"},
        {{.privilege = "strict"}, "privilege"},
        {{.cpu_millis = 1000}, "cpus"},
        {{.memory_bytes = 1ULL << 30}, "memory"},
        {{.pids = 100}, "pids"},
        {{.disk_bytes = 1ULL << 30}, "disk"},
        {{.read_only = true}, "read-only"},
    };
    struct spec spec = {0};
    struct err e = {0};

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct bh_create_options o = cases[i].options;

        T_INT(check_options(&provider_pools, o, &spec, &e), 0);
        spec_done(&spec);
        o.pool = "small";
        T_INT(check_options(&provider_pools, o, &spec, &e), -ERR_UNIMPLEMENTED);
        T_STR(e.field, cases[i].field);
    }
    T_INT(check_options(&provider_pools, (struct bh_create_options){.pool = "small"}, &spec, &e),
          0);
    T_STR(spec.image, "");
    spec_done(&spec);
}

TEST(an_option_that_nobody_asked_for_becomes_what_the_provider_has)
{
    struct bh_create_options o = {.image = "debian", .memory_bytes = 1ULL << 30};
    struct spec spec = {0};
    struct err e = {0};

    T_INT(check_options(&provider_far, o, &spec, &e), 0);
    T_STR(spec.network, "none");
    T_STR(spec.image, "debian");
    T_INT(far.n_checks, 1);
    spec_done(&spec);
}

TEST(the_process_provider_says_that_it_has_no_isolation)
{
    const struct provider *p = provider_find("process");
    struct spec spec = {0};
    struct err e = {0};

    T_INT(check_options(p, (struct bh_create_options){.memory_bytes = 1ULL << 30}, &spec, &e),
          -ERR_UNIMPLEMENTED);
    T_STR(e.message, "memory: the provider 'process' has no isolation and cannot honour it");
    T_INT(check_options(p, (struct bh_create_options){.network = "host"}, &spec, &e), 0);
    T_STR(spec.image, "");
    spec_done(&spec);
}

/* ---- the rows ---- */

TEST(the_capabilities_of_each_row_fit_together)
{
    const struct provider *p;
    size_t i;

    for (i = 0; (p = provider_at(i)); i++) {
        T_STR(p->name, provider_names[i]);
        T_OK(provider_find(p->name) == p);
        T_OK(p->networks);
        T_OK(p->exit != PROVIDER_EXIT_CHILD || p->has_own_children);
        T_OK(p->exit != PROVIDER_EXIT_ASKED || p->exit_status);
        T_OK(!p->isolates || !p->shares_machine);
        T_OK(!p->pauses || (p->check_pause && p->pause && p->resume));
        T_OK(!p->has_snapshots ||
             (p->check_capture && p->capture && p->restore && p->has_restored));
        T_OK(!p->disk_dir || p->limits & PROVIDER_LIMIT_DISK);
        T_OK(!p->watch || !p->has_own_children);
        T_OK(!p->dial || !p->has_own_children); /* the agent of a child listens by itself */
        T_OK(p->has_runtimes || !p->runtimes);
        T_OK(p->probe && p->check && p->prepare && p->start && p->stop && p->destroy && p->find &&
             p->inspect);
    }
    T_OK(!provider_names[i]);
}

/* ---- its end ---- */

static struct bh_box far_box(void)
{
    static struct bh_ctx ctx = {.cancel_fd = -1, .state_dir = (char *)"nowhere"};

    return (struct bh_box){.ctx = &ctx,
                           .provider = &provider_far,
                           .row = {.id = "00112233aabbccdd", .name = (char *)"far"}};
}

TEST(a_box_whose_processes_are_no_children_is_asked_for)
{
    struct bh_box box = far_box();
    struct provider_run run = {0};
    struct exit_watch w;
    int64_t begun_ms = clock_mono_ms();
    int status = 0;

    exit_watch_init(&w);
    far.found = 1;
    T_INT(exit_watch_begin(&w, &box, &run, NULL), 0);
    T_INT(w.fd, -1);
    T_OK(w.next_ms >= begun_ms + EXIT_WATCH_ASK_MS);
    T_OK(w.next_ms <= clock_mono_ms() + EXIT_WATCH_ASK_MS);
    w.next_ms = clock_mono_ms() + 60000;
    T_OK(!exit_watch_has_ended(&w, 0));
    T_INT(far.n_finds, 0); /* it is not time yet */
    w.next_ms = 1;         /* the past */
    T_OK(!exit_watch_has_ended(&w, 0));
    T_INT(far.n_finds, 1);
    T_OK(w.next_ms >= begun_ms + EXIT_WATCH_ASK_MS);

    far.found = -1;
    w.next_ms = 1; /* the past */
    T_OK(!exit_watch_has_ended(&w, 0));
    far.found = 0;
    w.next_ms = 1; /* the past */
    T_OK(exit_watch_has_ended(&w, 0));
    T_OK(exit_watch_status(&w, &status));
    T_INT(WEXITSTATUS(status), 7);
    exit_watch_done(&w);
}

TEST(an_engine_that_fails_again_and_again_is_asked_more_seldom)
{
    static const int pauses_ms[] = {1000, 2000, 4000, 5000, 5000};
    struct bh_box box = far_box();
    struct provider_run run = {0};
    struct exit_watch w;

    exit_watch_init(&w);
    far.found = 1;
    T_INT(exit_watch_begin(&w, &box, &run, NULL), 0);
    far.found = -1;
    for (size_t i = 0; i < sizeof(pauses_ms) / sizeof(*pauses_ms); i++) {
        int64_t before_ms = clock_mono_ms();

        w.next_ms = 1; /* the past */
        T_OK(!exit_watch_has_ended(&w, 0));
        T_OK(w.next_ms >= before_ms + pauses_ms[i]);
        T_OK(w.next_ms <= clock_mono_ms() + pauses_ms[i]);
    }
    far.found = 1;
    w.next_ms = 1; /* the past */
    T_OK(!exit_watch_has_ended(&w, 0));
    T_OK(w.next_ms <= clock_mono_ms() + EXIT_WATCH_ASK_MS);
    exit_watch_done(&w);
}

static int far_watch(struct provider_box *b, int *ret_fd, struct err *e)
{
    (void)b, (void)e;
    far.n_watches++;
    *ret_fd = dup(far.told_fd);
    return 0;
}

TEST(a_watch_is_opened_anew_only_after_it_has_told_something)
{
    struct provider watched = provider_far;
    struct bh_box box = far_box();
    struct provider_run run = {0};
    struct exit_watch w;
    int fds[2];

    watched.watch = far_watch;
    box.provider = &watched;
    T_INT(pipe(fds), 0);
    far.told_fd = fds[0];
    far.found = 1;
    exit_watch_init(&w);
    T_INT(exit_watch_begin(&w, &box, &run, NULL), 0);
    T_INT(far.n_watches, 1);
    for (int i = 1; i <= 3; i++) {
        w.next_ms = 1; /* the past */
        T_OK(!exit_watch_has_ended(&w, 0));
        T_INT(far.n_finds, i);
        T_INT(far.n_watches, 1);
    }
    T_INT(write(fds[1], "x", 1), 1);
    T_OK(!exit_watch_has_ended(&w, 0));
    T_INT(far.n_finds, 4);
    T_INT(w.fd, -1);
    w.next_ms = 1; /* the past */
    T_OK(!exit_watch_has_ended(&w, 0));
    T_INT(far.n_watches, 2);
    exit_watch_done(&w);
    (void)close(fds[0]);
    (void)close(fds[1]);
}

static void far_end_reason(struct provider_box *b, char *out, size_t size)
{
    int64_t ms = b->deadline_mono_ms - clock_mono_ms();

    (void)snprintf(out, size, ms > 0 && ms <= BOX_PROVIDER_LOOK_MS ? "in time" : "whenever");
}

TEST(the_reason_of_an_end_is_asked_for_as_briefly_as_all_else_that_the_monitor_asks)
{
    struct provider asked = provider_far;
    struct bh_box box = far_box();
    char reason[20] = "before";

    box_provider_end_reason(&box, reason, sizeof(reason));
    T_STR(reason, "");
    asked.end_reason = far_end_reason;
    box.provider = &asked;
    box_provider_end_reason(&box, reason, sizeof(reason));
    T_STR(reason, "in time");
}

static int far_has_disk(struct provider_box *b, struct err *e)
{
    char text[20];

    far_end_reason(b, text, sizeof(text));
    return strcmp(text, "in time") == 0 ? 1 : err_set(e, ERR_DEADLINE, "%s", text);
}

TEST(the_monitor_asks_for_the_disk_of_a_box_as_briefly_and_a_command_does_not)
{
    struct provider asked = provider_far;
    struct bh_box box = far_box();

    T_INT(box_provider_look_disk(&box, NULL), 1); /* the provider keeps it in the box's directory */
    asked.has_disk = far_has_disk;
    box.provider = &asked;
    T_INT(box_provider_look_disk(&box, NULL), 1);
    T_INT(box_provider_has_disk(&box, NULL), -ERR_DEADLINE);
}

TEST(a_box_whose_process_is_a_child_is_watched_and_reaped)
{
    struct bh_box box = far_box();
    struct provider_run run = {.pid = fork()};
    struct exit_watch w;
    int status = 0;

    if (run.pid == 0)
        _exit(3);
    box.provider = provider_find("process");
    exit_watch_init(&w);
    T_INT(exit_watch_begin(&w, &box, &run, NULL), 0);
    T_OK(exit_watch_has_ended(&w, 10000));
    T_OK(exit_watch_status(&w, &status));
    T_INT(WEXITSTATUS(status), 3);
    T_INT(far.n_finds, 0);
    exit_watch_done(&w);
}
