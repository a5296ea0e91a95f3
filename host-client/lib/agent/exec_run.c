/* run: a command from its start to its end, and any other call of the agent's API. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/jsonx.h"
#include "lib/box/control.h"
#include "lib/agent/exec.h"
#include "lib/util/context.h"

#define RUN_LEASE_GRACE_MS 60000 /* beyond the command's own deadline */
/* The agent holds a command up when its lossless reader's connection breaks. What that reader never
 * got must still be kept then: that lag, and what was under way in the sockets. */
#define RUN_HEAD_BYTES (512 * 1024)
#define RUN_TAIL_BYTES (1024 * 1024)

struct run {
    const struct bh_run_options *opts;
    bool is_ended_here; /* the receiver of the output wanted no more */
};

/* Whoever waited for it has gone: so does the command, with what it started. */
static void end_command(const struct bh_exec *exec)
{
    static const char *const signals[] = {"SIGTERM", "SIGKILL"};
    struct client *c = NULL;
    json_t *id = json_pack("{s:s, s:i}", "id", exec->id, "timeout_ms", 2000);
    int r = box_new_client(exec->box, -1, &c, NULL);

    for (size_t i = 0; r == 0 && i < N_ELEMENTS(signals); i++) {
        json_t *params =
            json_pack("{s:s, s:s, s:b}", "id", exec->id, "signal", signals[i], "tree", 1);

        r = client_call(c, "Exec/Signal", params, clock_mono_ms() + EXEC_CALL_MS, NULL, NULL);
        json_decref(params);
        if (client_call(c, "Exec/Wait", id, clock_mono_ms() + EXEC_CALL_MS, NULL, NULL) == 0)
            break;
    }
    json_decref(id);
    (void)client_free(c);
}

int exec_extend_lease(struct bh_box *box, int64_t timeout_ms, struct err *e)
{
    if (timeout_ms <= 0 || box->url)
        return 0;
    return control_call_take(
        box->ctx, box->row.id,
        json_pack("{s:s, s:I}", "op", "extend", "until_ms",
                  (json_int_t)(clock_real_ms() + timeout_ms + RUN_LEASE_GRACE_MS)),
        EXEC_CALL_MS, NULL, e);
}

static int pass_output(void *arg, int stream, const char *data, size_t len)
{
    struct run *run = arg;

    run->is_ended_here = run->opts->output(run->opts->output_arg, stream, data, len) != 0;
    return run->is_ended_here;
}

static int follow(struct run *run, struct bh_exec *exec, struct bh_run_result *ret, struct err *e)
{
    struct bh_follow_options f = {.stdin_fd = run->opts->stdin_fd,
                                  .lossless = true,
                                  .output = run->opts->output ? pass_output : NULL,
                                  .arg = run};
    _cleanup_close_ int hold = -1;
    int r = run->opts->no_hold ? client_set_quiet(exec->stream, e) : box_hold(exec->box, &hold, e);

    if (r == 0)
        r = exec_follow(exec, &f, ret, e);
    if (r == -ERR_CANCELED && (exec->is_started || !run->is_ended_here))
        end_command(exec);
    return r;
}

static int run_command(struct bh_box *box, const struct bh_run_options *o,
                       struct bh_run_result *ret, struct err *e)
{
    struct run run = {.opts = o};
    struct bh_run_options asked = *o;
    struct bh_exec *exec = NULL;
    int r = exec_new(box, o->id, &exec, e);

    if (!o->detach && !asked.head_bytes && !asked.tail_bytes) {
        asked.head_bytes = RUN_HEAD_BYTES;
        asked.tail_bytes = RUN_TAIL_BYTES;
    }
    if (r == 0)
        r = exec_request_new(box, exec->id, &asked, o->stdin_fd >= 0 && !o->detach, !o->detach,
                             &exec->request, e);
    if (r == 0)
        r = exec_extend_lease(box, o->timeout_ms, e);
    if (r == 0) {
        exec->knows_written = true; /* from its start: a repeated run gives the same input again */
        r = o->detach ? exec_start(exec, e) : follow(&run, exec, ret, e);
    }
    if (r == 0) {
        (void)snprintf(ret->id, sizeof(ret->id), "%s", exec->id);
        ret->pid = exec->pid;
    }
    (void)bh_exec_free(exec);
    return r;
}

int bh_run(struct bh_box *box, const struct bh_run_options *opts, struct bh_run_result *ret_result,
           struct bh_error *err)
{
    struct bh_run_result result = {.size = sizeof(result)};
    struct bh_run_options o;
    struct err e = {0};
    int r = options_copy(&o, sizeof(o), opts, &e);

    if (r == 0)
        r = exec_request_check(&o, &e);
    if (r == 0)
        r = run_command(box, &o, &result, &e);
    if (r < 0)
        return ctx_fail(err, r, &e);
    exec_give_result(&result, ret_result);
    return 0;
}

/* ---- the rest of the agent's API ---- */

static int call_simple(struct bh_box *box, const char *method, json_t *params_take,
                       struct bh_error *err)
{
    struct client *c = NULL;
    struct err e = {0};
    int r = params_take ? box_wake(box, &e) : err_oom(&e);

    if (r == 0)
        r = box_client(box, &c, &e);
    if (r == 0)
        r = client_call(c, method, params_take, 0, NULL, &e);
    json_decref(params_take);
    return ctx_fail(err, r, &e);
}

int bh_signal(struct bh_box *box, const char *id, const char *signal, struct bh_error *err)
{
    return call_simple(box, "Exec/Signal", json_pack("{s:s, s:s}", "id", id, "signal", signal),
                       err);
}

int bh_resize(struct bh_box *box, const char *id, uint16_t cols, uint16_t rows,
              struct bh_error *err)
{
    return call_simple(box, "Exec/Resize",
                       json_pack("{s:s, s:i, s:i}", "id", id, "cols", (int)cols, "rows", (int)rows),
                       err);
}

struct relay {
    int (*fn)(void *arg, const char *json);
    void *arg;
};

static int relay_message(void *arg, json_t *msg)
{
    struct relay *relay = arg;
    _cleanup_free_ char *text = NULL;

    if (jx_dump(msg, &text, NULL, NULL) < 0)
        return 1;
    return relay->fn(relay->arg, text);
}

static int parse_params(const char *text, json_t **ret, struct err *e)
{
    int r = jx_parse(text ? text : "{}", text ? strlen(text) : 2, ret, e);

    return r < 0 ? err_at(e, r, "params") : 0;
}

int bh_call(struct bh_box *box, const char *method, const char *params_json,
            int (*message)(void *arg, const char *json), void *arg, int64_t timeout_ms,
            char **ret_json, struct bh_error *err)
{
    struct relay relay = {.fn = message, .arg = arg};
    _cleanup_json_ json_t *params = NULL;
    _cleanup_json_ json_t *reply = NULL;
    struct client *c = NULL;
    struct err e = {0};
    int r = parse_params(params_json, &params, &e);

    if (r == 0)
        r = box_wake(box, &e);
    if (r == 0)
        r = box_client(box, &c, &e);
    if (r < 0)
        return ctx_fail(err, r, &e);
    if (message) {
        r = client_stream(c, method, params, box_deadline(timeout_ms), relay_message, &relay, &e);
        return ctx_fail(err, r, &e);
    }
    r = client_call(c, method, params, box_deadline(timeout_ms), &reply, &e);
    if (r == 0 && ret_json)
        r = jx_dump(reply, ret_json, NULL, &e);
    return ctx_fail(err, r, &e);
}
