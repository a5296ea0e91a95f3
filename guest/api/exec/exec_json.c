#include "api/exec/exec_json.h"

#include <inttypes.h>
#include <nettle/sha2.h>
#include <string.h>
#include <sys/resource.h>

#include "api/rpc.h"
#include "common/cleanup.h"
#include "common/clock.h"
#include "common/jsonx.h"
#include "common/signals.h"
#include "common/str.h"
#include "proc/journal.h"
#include "proc/registry.h"

#define MAX_DURATION_MS ((uint64_t)365 * 24 * 3600 * 1000)
#define UMASK_MAX 0777

_Static_assert(JX_ARE_BYTES(struct proc_spec, script, script_len), "decoded as jx_bytes");
_Static_assert(JX_ARE_BYTES(struct proc_spec, stdin_data, stdin_len), "decoded as jx_bytes");

/* A script is a string, or bytes. */
static int jx_script(json_t *v, void *out, struct err *e)
{
    struct jx_bytes *script = out;
    size_t len = json_string_length(v);
    char *text;

    if (!json_is_string(v))
        return jx_bytes(v, script, e);
    text = malloc(len + 1);
    if (!text)
        return err_oom(e);
    memcpy(text, json_string_value(v), len + 1);
    jx_bytes_done(script);
    *script = (struct jx_bytes){text, len};
    return 0;
}

static int add_variable(struct strv_list *env, const char *name, json_t *value, struct err *e)
{
    _cleanup_free_ char *setting = NULL;
    char *text = NULL;
    size_t bytes;
    int r;

    /* A value may be bytes, like an element of argv. */
    if (!*name || strchr(name, '='))
        return err_field(e, ERR_INVALID, name, "'%.64s' can't be the name of a variable", name);
    if (json_is_string(value) && json_string_length(value) == 0)
        text = strdup("");
    else if ((r = jx_path(value, &text, e)) < 0)
        return err_at(e, r, name);
    bytes = text ? strlen(name) + strlen(text) + 2 : 0;
    setting = text ? malloc(bytes) : NULL;
    if (setting)
        (void)snprintf(setting, bytes, "%s=%s", name, text);
    free(text);
    return setting ? strv_list_add(env, setting, e) : err_oom(e);
}

int exec_jx_env(json_t *v, void *out, struct err *e)
{
    struct strv_list list = {0};
    const char *name;
    json_t *value;
    int r = 0;

    if (!json_is_object(v))
        return err_set(e, ERR_INVALID, "must be an object of strings");
    json_object_foreach (v, name, value)
        if (r == 0)
            r = add_variable(&list, name, value, e);
    if (r < 0) {
        strv_free(list.v);
        return r;
    }
    strv_free(*(char ***)out);
    *(char ***)out = list.v;
    return 0;
}

/* "022": octal, as in chmod(1). */
static int jx_umask(json_t *v, void *out, struct err *e)
{
    const char *s = json_string_value(v);
    int mask = 0;

    if (!s || !*s || strlen(s) > 4 || strspn(s, "01234567") != strlen(s))
        return err_set(e, ERR_INVALID, "must be an octal number in a string, \"022\" say");
    for (; *s; s++)
        mask = mask * 8 + (*s - '0');
    if (mask > UMASK_MAX)
        return err_set(e, ERR_INVALID, "must be at most \"777\"");
    *(int *)out = mask;
    return 0;
}

static int jx_wait_for(json_t *v, void *out, struct err *e)
{
    const char *s = json_string_value(v);

    if (!str_eq(s, "exit") && !str_eq(s, "eof"))
        return err_set(e, ERR_INVALID, "must be \"exit\" or \"eof\"");
    *(bool *)out = str_eq(s, "eof");
    return 0;
}

static int jx_duration(json_t *v, void *out, struct err *e)
{
    int r = jx_u64(v, out, e);

    if (r == 0 && *(uint64_t *)out > MAX_DURATION_MS)
        return err_set(e, ERR_INVALID, "must be at most a year");
    return r;
}

/* `out` is the whole spec. */
static int jx_pty(json_t *v, void *out, struct err *e)
{
    static const struct jx_field fields[] = {
        JX_RANGE("cols", struct proc_spec, cols, jx_u32, 0, 1, PTY_MAX_SIDE),
        JX_RANGE("rows", struct proc_spec, rows, jx_u32, 0, 1, PTY_MAX_SIDE),
        JX_AS("raw", struct proc_spec, pty_raw, jx_bool, 0),
        {0},
    };

    ((struct proc_spec *)out)->has_pty = true;
    return jx_decode(v, fields, out, e);
}

static int jx_limits(json_t *v, void *out, struct err *e)
{
    static const struct jx_field fields[] = {
#define LIMIT(field, ...) JX(struct cgroup_limits, field, jx_u64, JX_NULLABLE),
#include "common/wire/limits.def"
        {0},
    };

    return jx_decode(v, fields, out, e);
}

static int jx_output(json_t *v, void *out, struct err *e)
{
    static const struct jx_field fields[] = {
        JX_RANGE("head_bytes", struct proc_spec, head_bytes, jx_u64, 0, 0, JOURNAL_MAX_BYTES),
        JX_RANGE("tail_bytes", struct proc_spec, tail_bytes, jx_u64, 0, 0, JOURNAL_MAX_BYTES),
        JX_RANGE("spill_bytes", struct proc_spec, spill_bytes, jx_u64, 0, 0, SPILL_MAX_BYTES),
        {0},
    };

    return jx_decode(v, fields, out, e);
}

/* A number, or "unlimited"; jx_rlimits() fills in the rest. */
static int jx_rlimit(json_t *v, void *out, struct err *e)
{
    struct spawn_limit *limit = out;
    uint64_t n = RLIM_INFINITY;

    if (!str_eq(json_string_value(v), "unlimited") && jx_u64(v, &n, e) < 0)
        return err_set(e, ERR_INVALID, "must be a whole number or \"unlimited\"");
    *limit = (struct spawn_limit){.value = (rlim_t)n, .field = ""};
    return 0;
}

/* Each limit decodes into the slot of its row; then the slots without a limit are dropped. */
static int jx_rlimits(json_t *v, void *out, struct err *e)
{
    enum {
#define RLIMIT(name, resource) ROW_##name,
#include "common/wire/limits.def"
        N_ROWS
    };
    static const struct jx_field fields[] = {
#define RLIMIT(name, resource) JX_AS(#name, struct proc_spec, limits[ROW_##name], jx_rlimit, 0),
#include "common/wire/limits.def"
        {0},
    };
    static const struct spawn_limit rows[] = {
#define RLIMIT(name, res) {.resource = RLIMIT_##res, .field = "rlimits." #name},
#include "common/wire/limits.def"
    };
    struct proc_spec *s = out;
    int r = jx_decode(v, fields, s, e);

    _Static_assert(N_ROWS <= SPAWN_MAX_LIMITS, "a slot for each row");
    for (size_t i = 0; r == 0 && i < N_ROWS; i++) {
        rlim_t value = s->limits[i].value;

        if (!s->limits[i].field)
            continue;
        s->limits[s->n_limits] = rows[i];
        s->limits[s->n_limits++].value = value;
    }
    return r;
}

#define OPTIONAL(name, member, fn) JX_AS(name, struct exec_request, member, fn, JX_NULLABLE)

static const struct jx_field request_fields[] = {
    OPTIONAL("id", spec.id, jx_str_copy),
    OPTIONAL("argv", spec.argv, jx_argv),
    OPTIONAL("shell", spec.script, jx_script),
    OPTIONAL("cwd", spec.cwd, jx_path),
    OPTIONAL("env", spec.env, exec_jx_env),
    OPTIONAL("user", spec.user, jx_str_copy),
    OPTIONAL("stdin", spec.stdin_data, jx_bytes),
    OPTIONAL("stdin_open", spec.stdin_open, jx_bool),
    OPTIONAL("timeout_ms", spec.timeout_ms, jx_duration),
    OPTIONAL("kill_grace_ms", spec.kill_grace_ms, jx_duration),
    OPTIONAL("kill_on_exit", spec.kill_on_exit, jx_bool),
    OPTIONAL("wait_for", spec.wait_eof, jx_wait_for),
    OPTIONAL("umask", spec.umask, jx_umask),
    OPTIONAL("pty", spec, jx_pty),
    OPTIONAL("limits", spec.cgroup, jx_limits),
    OPTIONAL("rlimits", spec, jx_rlimits),
    OPTIONAL("output", spec, jx_output),
    OPTIONAL("lossless", is_lossless, jx_bool),
    {0},
};

static int check_command(const struct proc_spec *s, struct err *e)
{
    if (s->argv && s->script)
        return err_field(e, ERR_INVALID, "shell", "'argv' and 'shell' exclude each other");
    if (!s->argv && !s->script)
        return err_field(e, ERR_INVALID, "argv", "one of 'argv' and 'shell' is required");
    if (s->argv && !s->argv[0])
        return err_field(e, ERR_INVALID, "argv", "field 'argv' must not be empty");
    if (s->argv && !*s->argv[0])
        return err_field(e, ERR_INVALID, "argv[0]", "field 'argv[0]' must not be empty");
    return 0;
}

/* A repeated request has the same digest, whatever the order of its fields. */
static int set_digest(json_t *params, unsigned char digest[SPEC_DIGEST_BYTES], struct err *e)
{
    _cleanup_json_ json_t *copy = json_copy(params);
    _cleanup_free_ char *text = NULL;
    struct sha256_ctx ctx;

    if (copy) {
        (void)json_object_del(copy, "id");
        (void)json_object_del(copy, "lossless");
        text = json_dumps(copy, JSON_COMPACT | JSON_SORT_KEYS);
    }
    if (!text)
        return err_oom(e);
    sha256_init(&ctx);
    sha256_update(&ctx, strlen(text), (const uint8_t *)text);
    sha256_digest(&ctx, SPEC_DIGEST_BYTES, digest);
    return 0;
}

int exec_decode_request(json_t *params, const struct agent *agent, struct exec_request *ret,
                        struct err *e)
{
    int r;

    ret->spec.default_user = agent->default_user;
    ret->spec.workdir = agent->workdir;
    r = jx_decode(params, request_fields, ret, e);
    if (r == 0)
        r = check_command(&ret->spec, e);
    if (r == 0 && ret->spec.id)
        r = set_digest(params, ret->spec.digest, e);
    return r;
}

const char *exec_stream_name(enum proc_stream s)
{
    return s == PROC_STDOUT ? "stdout" : "stderr";
}

int exec_jx_stream(json_t *v, void *out, struct err *e)
{
    const char *s = json_string_value(v);

    if (!str_eq(s, "stdout") && !str_eq(s, "stderr"))
        return err_set(e, ERR_INVALID, "must be \"stdout\" or \"stderr\"");
    *(enum proc_stream *)out = str_eq(s, "stdout") ? PROC_STDOUT : PROC_STDERR;
    return 0;
}

static json_t *new_exit(const struct proc_info *i)
{
    static const char *const trees[] = {
        [TREE_BEST_EFFORT] = "best_effort", [TREE_GONE] = "gone", [TREE_LEFT] = "left"};
    char name[SIGNAL_NAME_BYTES];
    json_t *oom = i->oom == OOM_UNKNOWN ? json_string("unknown") : json_boolean(i->oom == OOM_YES);

    return json_pack("{s:s, s:o, s:o, s:o, s:s}", "reason", proc_reason_name(i->reason), "code",
                     i->code < 0 ? json_null() : json_integer(i->code), "signal",
                     i->signal ? json_string(signal_name(i->signal, name)) : json_null(), "oom",
                     oom, "tree", trees[i->tree]);
}

static json_t *new_count(int64_t n)
{
    return n < 0 ? json_null() : json_integer(n);
}

static json_t *new_usage(const struct proc_usage *u)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:o, s:o, s:o}", "wall_ms", (json_int_t)u->wall_ms,
                     "user_ms", (json_int_t)u->user_ms, "system_ms", (json_int_t)u->system_ms,
                     "max_rss_bytes", (json_int_t)u->max_rss_bytes, "tree_peak_bytes",
                     new_count(u->tree_peak_bytes), "read_bytes", new_count(u->read_bytes),
                     "write_bytes", new_count(u->write_bytes));
}

static int set_new(json_t *obj, const char *name, json_t *value, struct err *e)
{
    return json_object_set_new(obj, name, value) < 0 ? err_oom(e) : 0;
}

/* The byte counts of one stream. */
static json_t *new_counts(const struct proc *p, const struct proc_info *i, enum proc_stream s)
{
    _cleanup_json_ json_t *obj = json_pack("{s:I, s:I}", "bytes", (json_int_t)i->bytes[s],
                                           "dropped_bytes", (json_int_t)i->dropped[s]);
    struct err why = {0};
    int r = 0;

    if (proc_spec(p)->spill_bytes)
        r = json_object_set_new(obj, "spilled_bytes", json_integer((json_int_t)i->spilled[s]));
    if (r == 0 && i->spill_sys[s]) {
        (void)err_sys(&why, i->spill_sys[s], "spilling output");
        r = json_object_set_new(obj, "spill_error", json_string(why.message));
    }
    return r < 0 ? NULL : json_incref(obj);
}

/* Adds one stream with its bytes: the head, and the tail if bytes between them are missing. */
static int add_output(struct proc *p, const struct proc_info *i, enum proc_stream s, json_t *obj,
                      struct err *e)
{
    _cleanup_(proc_output_done) struct proc_output o = {0};
    json_t *out;
    int r;

    r = proc_copy_output(p, s, &o, e);
    if (r < 0)
        return r;
    out = new_counts(p, i, s);
    r = set_new(obj, exec_stream_name(s), out, e);
    if (r == 0)
        r = jx_add_bytes(out, o.head, o.head_len, e);
    if (r == 0 && o.has_gap)
        r = set_new(out, "tail", jx_new_bytes(o.tail, o.tail_len), e);
    return r;
}

static int add_streams(struct proc *p, const struct proc_info *i, bool has_output, json_t *obj,
                       struct err *e)
{
    size_t n = proc_spec(p)->has_pty ? 1 : N_PROC_STREAMS;
    int r = 0;

    for (size_t s = 0; r == 0 && s < n; s++)
        r = has_output ? add_output(p, i, (enum proc_stream)s, obj, e)
                       : set_new(obj, exec_stream_name((enum proc_stream)s),
                                 new_counts(p, i, (enum proc_stream)s), e);
    return r;
}

int exec_new_result(struct proc *p, bool has_output, json_t **ret, struct err *e)
{
    _cleanup_json_ json_t *obj = NULL;
    struct proc_info i;
    int r;

    proc_get_info(p, &i);
    obj = json_pack("{s:s, s:I, s:o, s:o}", "id", proc_id(p), "pid", (json_int_t)i.pid, "exit",
                    new_exit(&i), "usage", new_usage(&i.usage));
    if (!obj)
        return err_oom(e);
    r = add_streams(p, &i, has_output, obj, e);
    return r < 0 ? r : rpc_reply_take(json_incref(obj), ret, e);
}

/* Adds the beginning of the script and the length of the whole. */
static int add_script(const struct proc_summary *w, json_t *obj, struct err *e)
{
    json_t *script = jx_new_bytes(w->script, w->script_len);
    int r = set_new(obj, "script", script, e);

    if (r == 0)
        r = set_new(script, "bytes", json_integer((json_int_t)w->script_bytes), e);
    return r < 0 ? r : set_new(obj, "shell", json_true(), e);
}

static int add_summary(const struct proc_summary *w, json_t *obj, struct err *e)
{
    json_t *list = NULL;
    int r = 0;

    if (w->script)
        return add_script(w, obj, e);
    if (w->n_omitted)
        r = set_new(obj, "argv_omitted",
                    json_pack("{s:I, s:I}", "arguments", (json_int_t)w->n_omitted, "bytes",
                              (json_int_t)w->omitted_bytes),
                    e);
    if (r == 0)
        r = set_new(obj, "argv", list = json_array(), e);
    for (char **at = w->argv; r == 0 && *at; at++)
        if (json_array_append_new(list, **at ? jx_new_path(*at) : json_string("")) < 0)
            r = err_oom(e);
    return r;
}

static int add_time(json_t *obj, const char *name, int64_t real_ms, struct err *e)
{
    char text[CLOCK_TEXT_BYTES];

    if (real_ms == 0)
        return 0;
    clock_text(real_ms, text);
    return set_new(obj, name, json_string(text), e);
}

int exec_new_state(struct proc *p, bool has_output, json_t **ret, struct err *e)
{
    static const char *const states[] = {[PROC_STARTING] = "starting",
                                         [PROC_RUNNING] = "running",
                                         [PROC_ENDED] = "ended",
                                         [PROC_FAILED] = "failed"};
    _cleanup_json_ json_t *obj = NULL;
    struct proc_info i;
    int r;

    proc_get_info(p, &i);
    obj = json_pack("{s:s, s:s, s:I, s:b, s:b}", "id", proc_id(p), "state", states[i.state], "pid",
                    (json_int_t)i.pid, "pty", proc_spec(p)->has_pty, "stdin_open", i.is_stdin_open);
    if (!obj)
        return err_oom(e);
    r = add_summary(proc_summary(p), obj, e);
    if (r == 0)
        r = add_time(obj, "started", i.started_ms, e);
    if (r == 0)
        r = add_time(obj, "ended", i.ended_ms, e);
    if (r == 0)
        r = add_streams(p, &i, has_output, obj, e);
    if (r == 0 && i.state == PROC_ENDED)
        r = set_new(obj, "exit", new_exit(&i), e);
    if (r == 0 && i.state == PROC_ENDED)
        r = set_new(obj, "usage", new_usage(&i.usage), e);
    return r < 0 ? r : rpc_reply_take(json_incref(obj), ret, e);
}
