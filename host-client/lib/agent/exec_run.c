/* exec_run: a command from its start to its end. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/jsonx.h"
#include "common/str.h"
#include "lib/agent/exec.h"
#include "lib/util/context.h"
#include "lib/util/socket.h"

/* A lossless reader's command waits while the connection is broken. The agent must still keep
 * every byte that the reader did not get: its lag, and the bytes in the sockets. */
#define RUN_HEAD_BYTES (512 * 1024)
#define RUN_TAIL_BYTES (1024 * 1024)

#define END_MS 10000      /* a canceled call tries so long to end its command */
#define END_GRACE_MS 2000 /* from SIGTERM to SIGKILL */
#define END_START_MS 1000 /* a start that is canceled has arrived by then, if ever */

struct run {
    const struct bh_run_options *opts;
    bool is_ended_here; /* the output function returned non-zero */
};

static int signal_tree(const struct bh_exec *exec, struct client *c, const char *signal,
                       int64_t deadline_mono_ms, struct err *e)
{
    _cleanup_json_ json_t *params =
        json_pack("{s:s, s:s, s:b}", "id", exec->id, "signal", signal, "tree", 1);

    return params ? client_call(c, RPC_exec_signal, params, deadline_mono_ms, NULL, e) : err_oom(e);
}

/* ERR_DEADLINE: it still runs, or the agent is silent. */
static int wait_for_end(const struct bh_exec *exec, struct client *c, int ms,
                        int64_t deadline_mono_ms, struct err *e)
{
    _cleanup_json_ json_t *params = json_pack("{s:s, s:i}", "id", exec->id, "timeout_ms", ms);

    return params ? client_call(c, RPC_exec_wait, params, deadline_mono_ms, NULL, e) : err_oom(e);
}

/* A call that hangs leaves time for another. */
static int64_t call_deadline(int64_t deadline_ms)
{
    int64_t ms = clock_mono_ms() + EXEC_CALL_MS;

    return ms < deadline_ms ? ms : deadline_ms;
}

/* The start of a canceled call may still be on its way when the agent does not know the command yet. */
static int end_within(const struct bh_exec *exec, struct client *c, struct err *e)
{
    int64_t begun_ms = clock_mono_ms();
    int64_t deadline_ms = begun_ms + END_MS;
    int r;

    for (;;) {
        int64_t again_ms = clock_mono_ms() + EXEC_RETRY_MS;
        bool is_grace_over = clock_mono_ms() >= begun_ms + END_GRACE_MS;
        int s = signal_tree(exec, c, is_grace_over ? "SIGKILL" : "SIGTERM",
                            call_deadline(deadline_ms), e);

        r = wait_for_end(exec, c, s == 0 ? END_GRACE_MS : EXEC_RETRY_MS, call_deadline(deadline_ms),
                         e);
        if (r == 0 || (r == -ERR_NOT_FOUND &&
                       (exec->is_started || clock_mono_ms() >= begun_ms + END_START_MS)))
            return 0;
        if (clock_until_ms(deadline_ms) == 0)
            return r;
        (void)socket_wait_canceled(-1, clock_until_ms(again_ms)); /* a wait that failed at once */
    }
}

/* By a client of its own: the others are canceled. Returns r; the error says so if the end is not known. */
static int end_command(const struct bh_exec *exec, int r, struct err *e)
{
    struct client *c = NULL;
    struct err why = {0};
    int ended = agent_ops(exec->box)->new_client(exec->box, -1, &c, &why);

    if (ended == 0)
        ended = end_within(exec, c, &why);
    (void)client_free(c);
    if (ended == 0)
        return r;
    (void)err_at(e, r, "id");
    return err_wrap(e, r, "the command '%s' may still run (%.200s)", exec->id, why.message);
}

int exec_start_own(struct bh_exec *exec, bool has_callers_id, struct err *e)
{
    int r = exec_start(exec, e);

    return r == -ERR_CANCELED && !has_callers_id ? end_command(exec, r, e) : r;
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
    if (exec->is_input_lost || (r == -ERR_CANCELED && (exec->is_started || !run->is_ended_here)))
        r = end_command(exec, r, e);
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
        exec->is_pty = o->pty;
        if (o->id) /* a repeated run writes the same input from its start */
            (void)snprintf(exec->pumped.writer, sizeof(exec->pumped.writer), "run");
        r = o->detach ? exec_start_own(exec, o->id != NULL, e) : run_and_follow(&run, exec, ret, e);
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

/* ---- the parameters of Exec/Start, from the caller's options ---- */

#define ID_MAX_BYTES 128 /* the agent's limit; a result's field has room for it */
_Static_assert(sizeof(((struct bh_run_result *)0)->id) > ID_MAX_BYTES, "no room for an id");

#define TIMEOUT_MAX_MS (365LL * 24 * 3600 * 1000)

static json_t *new_argv(const char *const *argv)
{
    json_t *list = json_array();

    for (; list && *argv; argv++)
        if (json_array_append_new(list, **argv ? jx_new_path(*argv) : json_string("")) < 0) {
            json_decref(list);
            return NULL;
        }
    return list;
}

static void set_command(struct bh_box *box, const struct bh_run_options *o, json_t *params,
                        struct err *e)
{
    _cleanup_free_ char *workdir = NULL;
    const char *cwd = o->cwd;
    json_t *env = NULL;

    if (!cwd)
        cwd = workdir = agent_ops(box)->new_workdir(box);
    if (o->argv)
        params_set_take(params, "argv", new_argv(o->argv), e);
    else
        params_set_take(params, "shell", jx_new_bytes(o->shell, strlen(o->shell)), e);
    params_set_take(params, "cwd", cwd ? jx_new_path(cwd) : NULL, e);
    if (!e->code && agent_ops(box)->new_environment(box, o->env, &env, e) == 0)
        params_set_take(params, "env", env, e);
    params_set_text(params, "user", o->user, e);
}

static void set_pty(const struct bh_run_options *o, json_t *params, struct err *e)
{
    json_t *pty = json_object();

    params_set_count(pty, "cols", o->cols ? o->cols : 80, e);
    params_set_count(pty, "rows", o->rows ? o->rows : 24, e);
    params_set_flag(pty, "raw", o->raw, e);
    params_set_take(params, "pty", pty, e);
}

/* "nofile=1024", "core=unlimited" */
static int add_rlimit(json_t *obj, const char *word, struct err *e)
{
    const char *eq = strchr(word, '=');
    _cleanup_free_ char *name = NULL;
    uint64_t n;
    int r;

    if (!eq || eq == word)
        return err_field(e, ERR_INVALID, "rlimits", "rlimit '%.64s' is not NAME=NUMBER", word);
    name = strndup(word, (size_t)(eq - word));
    if (!name)
        return err_oom(e);
    if (str_eq(eq + 1, "unlimited")) {
        params_set_text(obj, name, "unlimited", e);
        return 0;
    }
    r = str_parse_u64(eq + 1, 0, INT64_MAX, &n, e);
    if (r < 0)
        return err_wrap(e, err_at(e, r, "rlimits"), "rlimit '%.32s'", name);
    params_set_take(obj, name, json_integer((json_int_t)n), e);
    return 0;
}

/* Each group is sent only if it has a field. */
static void set_limits(const struct bh_run_options *o, json_t *params, struct err *e)
{
    _cleanup_json_ json_t *limits = json_object();
    _cleanup_json_ json_t *output = json_object();
    _cleanup_json_ json_t *rlimits = json_object();

#define LIMIT(field, ...) params_set_count(limits, #field, o->field, e);
#include "common/wire/limits.def"
    params_set_count(output, "head_bytes", o->head_bytes, e);
    params_set_count(output, "tail_bytes", o->tail_bytes, e);
    for (const char *const *word = o->rlimits; !e->code && word && *word; word++)
        (void)add_rlimit(rlimits, *word, e);
    if (json_object_size(limits))
        params_set_take(params, "limits", json_incref(limits), e);
    if (json_object_size(output))
        params_set_take(params, "output", json_incref(output), e);
    if (json_object_size(rlimits))
        params_set_take(params, "rlimits", json_incref(rlimits), e);
}

int exec_request_new(struct bh_box *box, const char *id, const struct bh_run_options *o,
                     bool stdin_open, bool lossless, json_t **ret, struct err *e)
{
    _cleanup_json_ json_t *params = json_object();
    struct err why = {0};

    params_set_text(params, "id", id, &why);
    set_command(box, o, params, &why);
    params_set_count(params, "timeout_ms", (uint64_t)o->timeout_ms, &why);
    params_set_count(params, "kill_grace_ms", (uint64_t)o->grace_ms, &why);
    if (o->pty)
        set_pty(o, params, &why);
    params_set_flag(params, "stdin_open", stdin_open, &why);
    params_set_flag(params, "lossless", lossless, &why);
    params_set_flag(params, "kill_on_exit", o->kill_on_exit, &why);
    params_set_text(params, "wait_for", o->wait_eof ? "eof" : NULL, &why);
    params_set_text(params, "umask", o->umask, &why);
    set_limits(o, params, &why);
    if (why.code) {
        if (e)
            *e = why;
        return -why.code;
    }
    *ret = TAKE(params);
    return 0;
}

static int check_time(const char *name, int64_t ms, struct err *e)
{
    if (ms < 0 || ms > TIMEOUT_MAX_MS)
        return err_field(e, ERR_INVALID, name, "%s must be from 0 to a year", name);
    return 0;
}

int exec_request_check(const struct bh_run_options *o, struct err *e)
{
    int r;

    if (!o->argv == !o->shell)
        return err_field(e, ERR_INVALID, "argv", "one of argv and shell is required");
    if (o->argv && !o->argv[0])
        return err_field(e, ERR_INVALID, "argv", "argv must not be empty");
    if (o->id && (!*o->id || strlen(o->id) > ID_MAX_BYTES))
        return err_field(e, ERR_INVALID, "id", "id must have 1 to %d characters", ID_MAX_BYTES);
    r = check_time("timeout", o->timeout_ms, e);
    return r < 0 ? r : check_time("grace", o->grace_ms, e);
}
