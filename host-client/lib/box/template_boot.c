#include "lib/box/template_boot.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/jsonx.h"
#include "common/str.h"
#include "lib/recipe/bootstrap_guest.h"
#include "lib/box/box_environment.h"
#include "lib/image/image.h"
#include "lib/util/socket.h"

#define TRY_MS 30000 /* of one ready_cmd */
#define CALL_MS 20000
#define TEXT_BYTES 200
#define LOG_BYTES 2000 /* of start_cmd's output, in the detail of ready_cmd's error */

/* After an interrupted start the command may run already: the same id attaches to it. */
static int run_start_cmd(struct bh_box *box, struct client *c, const struct image_facts *f,
                         struct err *e)
{
    _cleanup_json_ json_t *env = NULL;
    _cleanup_json_ json_t *request = NULL;
    int r = box_environment_json(box, NULL, &env, e);

    if (r < 0)
        return r;
    request =
        json_pack("{s:s, s:s, s:O}", "id", TEMPLATE_START_ID, "shell", f->start_cmd, "env", env);
    if (!request ||
        (*f->workdir && json_object_set_new(request, "cwd", json_string(f->workdir)) < 0))
        return err_oom(e);
    return guest_start(c, request, clock_mono_ms() + CALL_MS, e);
}

static json_t *new_try(struct bh_box *box, const struct image_facts *f, int64_t left_ms)
{
    json_t *env = NULL;
    json_t *params;

    if (box_environment_json(box, NULL, &env, NULL) < 0)
        return NULL;
    params = json_pack("{s:s, s:o, s:I, s:b}", "shell", f->ready_cmd, "env", env, "timeout_ms",
                       (json_int_t)(left_ms < TRY_MS ? left_ms : TRY_MS), "kill_on_exit", 1);
    if (params && *f->workdir)
        (void)json_object_set_new(params, "cwd", json_string(f->workdir));
    return params;
}

/* Writes "status 3", or the reason why it ended. */
static void put_end(char out[TEXT_BYTES], const char *reason, int code, const char *said)
{
    const char *between = *said ? ": " : "";
    int n = (int)strcspn(said, "\r\n");

    if (strcmp(reason, "exited") == 0)
        (void)snprintf(out, TEXT_BYTES, "status %d%s%.*s", code, between, n, said);
    else
        (void)snprintf(out, TEXT_BYTES, "%s%s%.*s", reason, between, n, said);
    str_make_utf8(out);
}

/* The end of a text, beginning at a whole character. */
static const char *text_tail(const char *text)
{
    size_t len = strlen(text);

    if (len > LOG_BYTES)
        text += len - LOG_BYTES;
    while (((unsigned char)*text & 0xC0) == 0x80)
        text++;
    return text;
}

/* 1: it succeeded; 0: not yet, and `said` tells how it ended. */
static int try_once(struct bh_box *box, struct client *c, const struct image_facts *f,
                    int64_t deadline, char said[TEXT_BYTES], struct err *e)
{
    int64_t left = deadline - clock_mono_ms();
    _cleanup_json_ json_t *params = new_try(box, f, left > 1 ? left : 1);
    _cleanup_json_ json_t *reply = NULL;
    const char *reason = "", *out = "", *err = "";
    int code = -1;
    int r =
        params ? client_call(c, RPC_exec_run, params, deadline + CALL_MS, &reply, e) : err_oom(e);

    if (r < 0)
        return r;
    (void)json_unpack(reply, "{s:{s:s, s?i}, s?{s?s}, s?{s?s}}", "exit", "reason", &reason, "code",
                      &code, "stdout", "text", &out, "stderr", "text", &err);
    put_end(said, reason, code, *err ? err : out);
    return strcmp(reason, "exited") == 0 && code == 0;
}

/* The output of start_cmd and whether it still runs: the usual reason why ready_cmd fails. */
static char *start_log(struct client *c)
{
    _cleanup_json_ json_t *params = json_pack("{s:s, s:b}", "id", TEMPLATE_START_ID, "output", 1);
    _cleanup_json_ json_t *reply = NULL;
    const char *state = "?", *reason = "", *out = "", *err = "";
    char end[TEXT_BYTES] = "still running";
    char *text = NULL;
    int code = -1;

    if (!params ||
        client_call(c, RPC_exec_get, params, clock_mono_ms() + CALL_MS, &reply, NULL) < 0)
        return NULL;
    (void)json_unpack(reply, "{s:s, s?{s:s, s?i}, s?{s?s}, s?{s?s}}", "state", &state, "exit",
                      "reason", &reason, "code", &code, "stdout", "text", &out, "stderr", "text",
                      &err);
    if (*reason)
        put_end(end, reason, code, "");
    if (asprintf(&text, "start_cmd: %s%s%s%s%s%s", *reason ? "ended with " : "", end,
                 *out ? "\n" : "", text_tail(out), *err ? "\n" : "", text_tail(err)) < 0)
        return NULL;
    return text;
}

static int wait_ready_cmd(struct bh_box *box, struct client *c, const struct image_facts *f,
                          int64_t deadline, struct err *e)
{
    char said[TEXT_BYTES] = "";
    int64_t first = clock_mono_ms();

    for (;;) {
        int64_t next = clock_mono_ms() + TEMPLATE_READY_EVERY_MS;
        int r = try_once(box, c, f, deadline, said, e);

        if (r)
            return r < 0 ? r : 0;
        if (next >= deadline || clock_mono_ms() >= deadline)
            return err_field(
                e, ERR_DEADLINE, "ready_cmd",
                "the template's ready_cmd did not succeed in %lld s; the last time: %s",
                (long long)(clock_mono_ms() - first + 500) / 1000, said);
        if (clock_mono_ms() < next &&
            socket_wait_canceled(box->ctx->cancel_fd, (int)(next - clock_mono_ms())))
            return err_set(e, ERR_CANCELED, "canceled");
    }
}

int template_boot(struct bh_box *box, struct client *c, bool is_bound, int64_t *deadline_mono_ms,
                  struct bringup_report *report, struct err *e)
{
    int64_t began = clock_mono_ms();
    struct image_facts f;
    const char *step = "start_cmd";
    int r;

    if (!*box->spec.image_dir)
        return 0;
    r = image_facts(box->spec.image_dir, &f, e);
    if (r < 0)
        return r;
    if (*f.start_cmd) {
        ctx_progress(box->ctx, "start", 0, 0, false, "running the template's start_cmd");
        r = run_start_cmd(box, c, &f, e);
    }
    if (r == 0 && *f.ready_cmd) {
        step = "ready_cmd";
        ctx_progress(box->ctx, "ready", 0, 0, false, "waiting for the template's ready_cmd");
        r = wait_ready_cmd(box, c, &f, is_bound ? *deadline_mono_ms : began + TEMPLATE_READY_MS, e);
        *deadline_mono_ms += is_bound ? 0 : clock_mono_ms() - began;
    }
    if (r < 0 && report && !report->step[0])
        (void)snprintf(report->step, sizeof(report->step), "%s", step);
    if (r == -ERR_DEADLINE && report && !report->log && *f.start_cmd)
        report->log = start_log(c);
    image_facts_done(&f);
    return r;
}
