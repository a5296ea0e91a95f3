/* exec_run: a command from its start to its end. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/jsonx.h"
#include "lib/agent/exec.h"
#include "lib/util/context.h"

/* A lossless reader's command waits while the connection is broken. The agent must still keep
 * every byte that the reader did not get: its lag, and the bytes in the sockets. */
#define RUN_HEAD_BYTES (512 * 1024)
#define RUN_TAIL_BYTES (1024 * 1024)

struct run {
    const struct bh_run_options *opts;
    bool is_ended_here; /* the output function returned non-zero */
};

/* The caller has canceled the call: kills the command and its descendants. */
static void end_command(const struct bh_exec *exec)
{
    static const char *const signals[] = {"SIGTERM", "SIGKILL"};
    struct client *c = NULL;
    json_t *id = json_pack("{s:s, s:i}", "id", exec->id, "timeout_ms", 2000);
    int r = agent_ops(exec->box)->new_client(exec->box, -1, &c, NULL);

    for (size_t i = 0; r == 0 && i < N_ELEMENTS(signals); i++) {
        json_t *params =
            json_pack("{s:s, s:s, s:b}", "id", exec->id, "signal", signals[i], "tree", 1);

        r = client_call(c, RPC_exec_signal, params, clock_mono_ms() + EXEC_CALL_MS, NULL, NULL);
        json_decref(params);
        if (client_call(c, RPC_exec_wait, id, clock_mono_ms() + EXEC_CALL_MS, NULL, NULL) == 0)
            break;
    }
    json_decref(id);
    (void)client_free(c);
}

static int pass_output(void *arg, int stream, const char *data, size_t len)
{
    struct run *run = arg;

    run->is_ended_here = run->opts->output(run->opts->output_arg, stream, data, len) != 0;
    return run->is_ended_here;
}

static int run_and_follow(struct run *run, struct bh_exec *exec, struct bh_run_result *ret,
                          struct err *e)
{
    struct bh_follow_options f = {.stdin_fd = run->opts->stdin_fd,
                                  .lossless = true,
                                  .output = run->opts->output ? pass_output : NULL,
                                  .arg = run};
    _cleanup_close_ int hold = -1;
    int r = run->opts->no_hold ? client_set_quiet(exec->stream, e)
                               : agent_ops(exec->box)->hold(exec->box, &hold, e);

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
        r = agent_ops(box)->extend_lease(box, o->timeout_ms, e);
    if (r == 0) {
        exec->knows_written = true; /* a repeated run writes the same input from its start */
        r = o->detach ? exec_start(exec, e) : run_and_follow(&run, exec, ret, e);
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

/* ---- by id ---- */

int bh_signal(struct bh_box *box, const char *id, const char *signal, struct bh_error *err)
{
    struct err e = {0};
    json_t *params = json_pack("{s:s, s:s}", "id", id, "signal", signal);

    return ctx_fail(err, agent_call_take(box, RPC_exec_signal, params, 0, NULL, &e), &e);
}

int bh_resize(struct bh_box *box, const char *id, uint16_t cols, uint16_t rows,
              struct bh_error *err)
{
    struct err e = {0};
    json_t *params = json_pack("{s:s, s:i, s:i}", "id", id, "cols", (int)cols, "rows", (int)rows);

    return ctx_fail(err, agent_call_take(box, RPC_exec_resize, params, 0, NULL, &e), &e);
}
