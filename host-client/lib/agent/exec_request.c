/* exec_request: what Exec/Start is asked, from the caller's options. */
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/jsonx.h"
#include "common/str.h"
#include "lib/agent/exec.h"

#define ID_MAX_BYTES 128 /* the agent's; a result's field has room for it */
_Static_assert(sizeof(((struct bh_run_result *)0)->id) > ID_MAX_BYTES, "no room for an id");

#define TIMEOUT_MAX_MS (365LL * 24 * 3600 * 1000)

static int set_new(json_t *obj, const char *name, json_t *value, struct err *e)
{
    return json_object_set_new(obj, name, value) < 0 ? err_oom(e) : 0;
}

/* An optional count: 0 leaves it to the agent. */
static int set_count(json_t *obj, const char *name, uint64_t n, struct err *e)
{
    return n ? set_new(obj, name, json_integer((json_int_t)n), e) : 0;
}

static int set_flag(json_t *obj, const char *name, bool on, struct err *e)
{
    return on ? set_new(obj, name, json_true(), e) : 0;
}

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

static int add_command(struct bh_box *box, const struct bh_run_options *o, json_t *params,
                       struct err *e)
{
    _cleanup_free_ char *workdir = agent_ops(box)->new_workdir(box);
    json_t *env = NULL;
    int r;

    if (!workdir)
        return err_oom(e);
    r = o->argv ? set_new(params, "argv", new_argv(o->argv), e)
                : set_new(params, "shell", jx_new_bytes(o->shell, strlen(o->shell)), e);
    if (r == 0)
        r = set_new(params, "cwd", jx_new_path(o->cwd ? o->cwd : workdir), e);
    if (r == 0)
        r = agent_ops(box)->new_environment(box, o->env, &env, e);
    if (r == 0)
        r = set_new(params, "env", env, e);
    if (r == 0 && o->user)
        r = set_new(params, "user", json_string(o->user), e);
    return r;
}

static int add_pty(const struct bh_run_options *o, json_t *params, struct err *e)
{
    json_t *pty;

    if (!o->pty)
        return 0;
    pty = json_pack("{s:i, s:i}", "cols", o->cols ? o->cols : 80, "rows", o->rows ? o->rows : 24);
    if (!pty || set_flag(pty, "raw", o->raw, e) < 0) {
        json_decref(pty);
        return err_oom(e);
    }
    return set_new(params, "pty", pty, e);
}

/* "nofile=1024", "core=unlimited" */
static int add_rlimits(const char *const *list, json_t *params, struct err *e)
{
    _cleanup_json_ json_t *obj = json_object();
    int r = obj ? 0 : err_oom(e);

    if (!list || !*list)
        return r;
    for (; r == 0 && *list; list++) {
        const char *eq = strchr(*list, '=');
        _cleanup_free_ char *name = eq ? strndup(*list, (size_t)(eq - *list)) : NULL;
        uint64_t n;

        if (!eq || eq == *list)
            return err_field(e, ERR_INVALID, "rlimits", "rlimit '%.64s' is not NAME=NUMBER", *list);
        if (!name)
            return err_oom(e);
        if (str_eq(eq + 1, "unlimited"))
            r = set_new(obj, name, json_string("unlimited"), e);
        else if ((r = str_parse_u64(eq + 1, 0, INT64_MAX, &n, e)) == 0)
            r = set_new(obj, name, json_integer((json_int_t)n), e);
        else
            r = err_wrap(e, err_at(e, r, "rlimits"), "rlimit '%.32s'", name);
    }
    return r < 0 ? r : set_new(params, "rlimits", json_incref(obj), e);
}

struct count {
    const char *name;
    uint64_t n;
};

/* Adds an object of the counts that are not 0; no object when all are. */
static int add_counts(const char *name, const struct count counts[], size_t n, json_t *params,
                      struct err *e)
{
    _cleanup_json_ json_t *obj = json_object();
    int r = obj ? 0 : err_oom(e);

    for (size_t i = 0; r == 0 && i < n; i++)
        r = set_count(obj, counts[i].name, counts[i].n, e);
    if (r < 0 || json_object_size(obj) == 0)
        return r;
    return set_new(params, name, json_incref(obj), e);
}

static int add_limits(const struct bh_run_options *o, json_t *params, struct err *e)
{
    const struct count limits[] = {
#define LIMIT(field, ...) {#field, o->field},
#include "common/wire/limits.def"
    };
    const struct count output[] = {{"head_bytes", o->head_bytes}, {"tail_bytes", o->tail_bytes}};
    int r = add_counts("limits", limits, N_ELEMENTS(limits), params, e);

    if (r == 0)
        r = add_counts("output", output, N_ELEMENTS(output), params, e);
    return r < 0 ? r : add_rlimits(o->rlimits, params, e);
}

int exec_request_new(struct bh_box *box, const char *id, const struct bh_run_options *o,
                     bool stdin_open, bool lossless, json_t **ret, struct err *e)
{
    _cleanup_json_ json_t *params = json_pack("{s:s}", "id", id);
    int r = params ? add_command(box, o, params, e) : err_oom(e);

    if (r == 0)
        r = set_count(params, "timeout_ms", (uint64_t)o->timeout_ms, e);
    if (r == 0)
        r = set_count(params, "kill_grace_ms", (uint64_t)o->grace_ms, e);
    if (r == 0)
        r = add_pty(o, params, e);
    if (r == 0)
        r = set_flag(params, "stdin_open", stdin_open, e);
    if (r == 0)
        r = set_flag(params, "lossless", lossless, e);
    if (r == 0)
        r = set_flag(params, "kill_on_exit", o->kill_on_exit, e);
    if (r == 0 && o->wait_eof)
        r = set_new(params, "wait_for", json_string("eof"), e);
    if (r == 0 && o->umask)
        r = set_new(params, "umask", json_string(o->umask), e);
    if (r == 0)
        r = add_limits(o, params, e);
    if (r == 0)
        *ret = TAKE(params);
    return r;
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
