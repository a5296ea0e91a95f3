#include "dialect/e2b/process_json.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/jsonx.h"
#include "common/str.h"
#include "dialect/e2b/e2b.h"
#include "dialect/e2b/proto.h"
#include "dialect/e2b/account.h"
#include "agent.h"

/* ---- StartRequest ---- */

struct size_params {
    uint32_t cols, rows;
};

static const struct jx_field size_fields[] = {
    JX(struct size_params, cols, proto_jx_u32, JX_NULLABLE),
    JX(struct size_params, rows, proto_jx_u32, JX_NULLABLE),
    {0},
};

/* {"size":{"cols","rows"}}; missing numbers get the defaults. */
int jx_terminal(json_t *v, void *out, struct err *e)
{
    struct terminal *t = out;
    struct size_params p = {0};
    json_t *size = json_object_get(v, "size");
    int r = 0;

    if (!json_is_object(v) || (size && !json_is_object(size) && !json_is_null(size)))
        return err_set(e, ERR_INVALID, "must be an object");
    if (json_is_object(size))
        r = jx_decode_lax(size, size_fields, &p, e);
    if (r < 0)
        return r;
    t->is_there = true;
    t->cols = p.cols ? p.cols : TERMINAL_COLS;
    t->rows = p.rows ? p.rows : TERMINAL_ROWS;
    return 0;
}

/* `out` is the whole spec. */
static int jx_start_pty(json_t *v, void *out, struct err *e)
{
    struct proc_spec *s = out;
    struct terminal t;
    int r = jx_terminal(v, &t, e);

    if (r < 0)
        return r;
    s->has_pty = true;
    s->cols = t.cols;
    s->rows = t.rows;
    return 0;
}

static const struct jx_field start_fields[] = {
    JX(struct process_request, process, jx_object, JX_NULLABLE),
    JX_AS("pty", struct process_request, spec, jx_start_pty, JX_NULLABLE),
    JX_AS("tag", struct process_request, spec.tag, jx_str_copy, JX_NULLABLE),
    JX_AS("stdin", struct process_request, spec.stdin_open, jx_bool, JX_NULLABLE),
    {0},
};

struct config {
    const char *cmd;
    char **args;
    json_t *envs;
    const char *cwd;
};

static const struct jx_field config_fields[] = {
    JX(struct config, cmd, jx_str, JX_NULLABLE),
    JX(struct config, args, jx_strv, JX_NULLABLE),
    JX(struct config, envs, jx_object, JX_NULLABLE),
    JX(struct config, cwd, jx_str, JX_NULLABLE),
    {0},
};

/* argv is cmd and then args, whose strings it takes. */
static int set_argv(struct config *c, struct proc_spec *s, struct err *e)
{
    size_t n = strv_len(c->args);
    char **argv = calloc(n + 2, sizeof(*argv));

    if (!argv || !(argv[0] = strdup(c->cmd ? c->cmd : ""))) {
        free(argv);
        return err_oom(e);
    }
    if (n)
        memcpy(argv + 1, c->args, n * sizeof(*argv));
    free(TAKE(c->args));
    s->argv = argv;
    return 0;
}

static int process_add_env(struct strv_list *env, const char *name, json_t *value, struct err *e)
{
    _cleanup_free_ char *setting = NULL;

    if (!json_is_string(value))
        return err_set(e, ERR_INVALID, "envs['%.64s'] must be a string", name);
    if (strlen(json_string_value(value)) != json_string_length(value))
        return err_set(e, ERR_INVALID, "envs['%.64s'] must not contain a NUL", name);
    if (asprintf(&setting, "%s=%s", name, json_string_value(value)) < 0)
        return err_oom(e);
    return strv_list_add(env, setting, e);
}

static int process_set_env(const struct rpc_call *call, const struct config *c, struct proc_spec *s,
                           struct err *e)
{
    struct strv_list env = {0};
    const char *name;
    json_t *value;
    int r = e2b_add_variables(e2b_of(call->agent), &env, e);

    json_object_foreach (c->envs, name, value)
        if (r == 0)
            r = process_add_env(&env, name, value, e);
    s->env = env.v;
    return r;
}

/* A missing home directory is no error when the request names no directory. */
static int set_cwd(const struct rpc_call *call, const struct user *u, const char *cwd,
                   struct proc_spec *s, struct err *e)
{
    _cleanup_free_ char *workdir = NULL;
    struct stat st;
    int r;

    r = e2b_default_workdir(e2b_of(call->agent), &workdir, e);
    if (r < 0 || (!*cwd && !workdir))
        return r;
    r = account_path(call->agent, u, cwd, &s->cwd, e);
    if (r < 0)
        return r;
    if (stat(s->cwd, &st) < 0 && errno == ENOENT)
        return err_set(e, ERR_INVALID, "cwd '%.300s' does not exist", s->cwd);
    return 0;
}

static int set_user(const struct rpc_call *call, const char *cwd, struct proc_spec *s,
                    struct err *e)
{
    _cleanup_user_ struct user u = {0};
    int r;

    r = account_authenticate(call->agent, e2b_headers(call)->user, &u, e);
    if (r < 0)
        return r;
    s->user = strdup(u.name);
    return s->user ? set_cwd(call, &u, cwd, s, e) : err_oom(e);
}

static int set_process(const struct rpc_call *call, json_t *process, struct proc_spec *s,
                       struct err *e)
{
    struct config c = {0};
    size_t len;
    int r;

    r = jx_decode_lax(process, config_fields, &c, e);
    if (r == 0)
        r = set_user(call, c.cwd ? c.cwd : "", s, e);
    if (r == 0)
        r = set_argv(&c, s, e);
    if (r == 0)
        r = process_set_env(call, &c, s, e);
    if (r == 0)
        r = jx_dump(process, &s->note, &len, e);
    strv_free(c.args);
    return r;
}

int process_decode_start(const struct rpc_call *call, struct process_request *ret, struct err *e)
{
    _cleanup_json_ json_t *empty = json_object();
    int r;

    ret->spec.stdin_open = true;
    ret->spec.timeout_ms = (uint64_t)call->timeout_ms;
    ret->spec.leader_only = true;
    ret->spec.wait_eof = true;
    r = empty ? jx_decode_lax(call->params, start_fields, ret, e) : err_oom(e);
    return r < 0 ? r : set_process(call, ret->process ? ret->process : empty, &ret->spec, e);
}

/* ---- ProcessSelector ---- */

static const struct jx_field selector_fields[] = {
    JX(struct selector, pid, proto_jx_u32, JX_NULLABLE),
    JX(struct selector, tag, jx_str, JX_NULLABLE),
    {0},
};

static bool has_value(json_t *obj, const char *name)
{
    json_t *v = json_object_get(obj, name);

    return v && !json_is_null(v);
}

int jx_selector(json_t *v, void *out, struct err *e)
{
    struct selector s = {0};
    int r;

    if (!json_is_object(v))
        return err_set(e, ERR_INVALID, "must be an object");
    r = jx_decode_lax(v, selector_fields, &s, e);
    if (r < 0)
        return r;
    s.has_pid = has_value(v, "pid");
    s.has_tag = has_value(v, "tag");
    if (s.has_pid && s.has_tag)
        return err_set(e, ERR_INVALID, "has both a pid and a tag");
    *(struct selector *)out = s;
    return 0;
}

int process_not_found(const struct selector *s, struct err *e)
{
    if (s->has_pid)
        return err_set(e, ERR_NOT_FOUND, "process with pid %" PRIu32 " not found", s->pid);
    return err_set(e, ERR_NOT_FOUND, "process with tag %.200s not found", s->tag);
}

struct wanted {
    const struct selector *selector;
    bool has_ended;
};

/* A command that is being started has pid 0, which selects nothing. */
static bool is_selected(struct proc *p, const struct selector *s)
{
    if (!s->has_pid)
        return str_eq(proc_spec(p)->tag, s->tag);
    return s->pid && (uint32_t)proc_pid(p) == s->pid;
}

static bool is_wanted(struct proc *p, const void *arg)
{
    const struct wanted *w = arg;
    struct proc_info info;

    if (!proc_spec(p)->note || !is_selected(p, w->selector))
        return false;
    proc_get_info(p, &info);
    if (w->has_ended)
        return info.state == PROC_ENDED && clock_real_ms() - info.ended_ms < PROCESS_KEEP_MS;
    return info.state == PROC_RUNNING || info.state == PROC_STARTING;
}

/* Several commands may have the same tag: the latest running one wins. */
int process_find(const struct agent *a, const struct selector *s, bool ended_too, struct proc **ret,
                 struct err *e)
{
    struct wanted w = {.selector = s};
    struct proc *p;

    if (!s->has_pid && !s->has_tag)
        return err_set(e, ERR_UNIMPLEMENTED, "invalid input type <nil>");
    p = registry_find(a->registry, is_wanted, &w);
    w.has_ended = true;
    if (!p && ended_too)
        p = registry_find(a->registry, is_wanted, &w);
    if (!p)
        return process_not_found(s, e);
    *ret = p;
    return 0;
}

struct selected_params {
    struct selector process;
};

static const struct jx_field selected_fields[] = {
    JX(struct selected_params, process, jx_selector, JX_NULLABLE),
    {0},
};

int process_find_in(const struct agent *a, json_t *params, bool ended_too, struct proc **ret,
                    struct err *e)
{
    struct selected_params p = {0};
    int r = jx_decode_lax(params, selected_fields, &p, e);

    return r < 0 ? r : process_find(a, &p.process, ended_too, ret, e);
}

/* ---- bytes ---- */

/*
 * Converts base64 in the standard or URL-safe alphabet, with padding or without, for b64_decode().
 */
static char *standard_b64(const char *text, size_t len, size_t *ret_len)
{
    size_t padded = (len + 3) / 4 * 4;
    char *s = malloc(padded + 1);

    if (!s)
        return NULL;
    memcpy(s, text, len);
    for (size_t i = 0; i < len; i++)
        s[i] = (char)(s[i] == '-' ? '+' : s[i] == '_' ? '/' : s[i]);
    memset(s + len, '=', padded - len);
    *ret_len = padded;
    return s;
}

int jx_b64(json_t *v, void *out, struct err *e)
{
    _cleanup_free_ char *text = NULL;
    struct jx_bytes b = {0};
    size_t len;
    int r;

    if (!json_is_string(v))
        return err_set(e, ERR_INVALID, "must be a string of base64");
    text = standard_b64(json_string_value(v), json_string_length(v), &len);
    b.data = text ? malloc(len / 4 * 3 + 1) : NULL;
    if (!b.data)
        return err_oom(e);
    r = b64_decode(text, len, b.data, &b.len, e);
    if (r < 0) {
        jx_bytes_done(&b);
        return r;
    }
    b.data[b.len] = '\0';
    *(struct jx_bytes *)out = b;
    return 0;
}

/* ---- events ---- */

json_t *process_new_event(const char *name, json_t *value)
{
    return value ? json_pack("{s:{s:o}}", "event", name, value) : NULL;
}

json_t *process_new_data(const struct proc *p, enum proc_stream s, const char *data, size_t len)
{
    const char *name = proc_spec(p)->has_pty ? "pty" : s == PROC_STDOUT ? "stdout" : "stderr";
    char *text = malloc(B64_LEN(len) + 1);
    json_t *v;

    if (!text)
        return NULL;
    b64_encode(data, len, text);
    v = json_stringn_nocheck(text, B64_LEN(len));
    free(text);
    return v ? process_new_event("data", json_pack("{s:o}", name, v)) : NULL;
}

/* Go's names of the signals. */
static const char *signal_text(int sig, char *out, size_t size)
{
    static const char *const names[] = {
        [1] = "hangup",
        [2] = "interrupt",
        [3] = "quit",
        [4] = "illegal instruction",
        [5] = "trace/breakpoint trap",
        [6] = "aborted",
        [7] = "bus error",
        [8] = "floating point exception",
        [9] = "killed",
        [10] = "user defined signal 1",
        [11] = "segmentation fault",
        [12] = "user defined signal 2",
        [13] = "broken pipe",
        [14] = "alarm clock",
        [15] = "terminated",
    };

    if (sig > 0 && (size_t)sig < N_ELEMENTS(names))
        (void)snprintf(out, size, "signal: %s", names[sig]);
    else
        (void)snprintf(out, size, "signal: signal %d", sig);
    return out;
}

/* Fields with their default are omitted, as in protobuf's JSON. */
json_t *process_new_end(const struct proc_info *info)
{
    char status[96];
    json_t *end;

    if (info->signal) {
        (void)signal_text(info->signal, status, sizeof(status) - sizeof(" (core dumped)"));
        if (info->has_core)
            (void)snprintf(status + strlen(status), sizeof(status) - strlen(status), "%s",
                           " (core dumped)");
        end = json_pack("{s:i, s:s, s:s}", "exitCode", -1, "status", status, "error", status);
    } else if (info->code < 0) {
        end = json_pack("{s:i, s:s, s:s}", "exitCode", -1, "status", "lost", "error",
                        "the kernel could not say how it ended");
    } else {
        (void)snprintf(status, sizeof(status), "exit status %d", info->code);
        end = json_pack("{s:b, s:s}", "exited", 1, "status", status);
        if (end && info->code) {
            (void)json_object_set_new(end, "exitCode", json_integer(info->code));
            (void)json_object_set_new(end, "error", json_string(status));
        }
    }
    return process_new_event("end", end);
}

json_t *process_new_info(struct proc *p)
{
    const struct proc_spec *s = proc_spec(p);
    json_t *config = NULL, *info;

    if (jx_parse(s->note, strlen(s->note), &config, NULL) < 0)
        return NULL;
    info = json_pack("{s:o, s:I}", "config", config, "pid", (json_int_t)proc_pid(p));
    if (info && s->tag)
        (void)json_object_set_new(info, "tag", json_string(s->tag));
    return info;
}

int process_start_error(const struct proc *p, const struct err *why, struct err *e)
{
    char *const *argv = proc_spec(p)->argv;
    char command[256];
    size_t n = 0;

    if (why->code == ERR_EXHAUSTED || str_eq(why->field, "user"))
        return err_set(e, (enum err_code)why->code, "%s", why->message);
    command[0] = '\0';
    for (; *argv && n < sizeof(command); argv++)
        n += (size_t)snprintf(command + n, sizeof(command) - n, "%s%s", n ? " " : "", *argv);
    return err_set(e, ERR_INVALID, "error starting process '%s': %s", command, why->message);
}
