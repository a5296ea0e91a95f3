#include <inttypes.h>
#include <nettle/sha2.h>
#include <string.h>
#include <sys/resource.h>

#include "common/cleanup.h"
#include "common/jsonx.h"
#include "common/str.h"
#include "proc/journal.h"
#include "proc/pty.h"
#include "proc/spill.h"
#include "api/exec/exec_json.h"

#define MAX_DURATION_MS ((uint64_t)365 * 24 * 3600 * 1000)
#define UMASK_MAX 0777

/* A script is a string, or bytes. `out` is the whole spec. */
static int jx_script(json_t *v, void *out, struct err *e)
{
    struct proc_spec *s = out;
    struct jx_bytes b = {0};
    int r = 0;

    if (!json_is_string(v))
        r = jx_bytes(v, &b, e);
    else if (!(b.data = malloc(json_string_length(v) + 1)))
        r = err_oom(e);
    else
        memcpy(b.data, json_string_value(v), (b.len = json_string_length(v)) + 1);
    if (r < 0)
        return r;
    free(s->script);
    s->script = b.data;
    s->script_len = b.len;
    return 0;
}

/* `out` is the whole spec. */
static int jx_stdin(json_t *v, void *out, struct err *e)
{
    struct proc_spec *s = out;
    struct jx_bytes b = {0};
    int r = jx_bytes(v, &b, e);

    if (r < 0)
        return r;
    free(s->stdin_data);
    s->stdin_data = b.data;
    s->stdin_len = b.len;
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

static int jx_kept(json_t *v, void *out, struct err *e)
{
    int r = jx_u64(v, out, e);

    if (r == 0 && *(uint64_t *)out > JOURNAL_MAX_BYTES)
        return err_set(e, ERR_INVALID, "must be at most %d", JOURNAL_MAX_BYTES);
    return r;
}

static int jx_spilled(json_t *v, void *out, struct err *e)
{
    int r = jx_u64(v, out, e);

    if (r == 0 && *(uint64_t *)out > SPILL_MAX_BYTES)
        return err_set(e, ERR_INVALID, "must be at most %" PRIu64, SPILL_MAX_BYTES);
    return r;
}

static int jx_side(json_t *v, void *out, struct err *e)
{
    int r = jx_u32(v, out, e);

    if (r == 0 && (*(uint32_t *)out < 1 || *(uint32_t *)out > PTY_MAX_SIDE))
        return err_set(e, ERR_INVALID, "must be from 1 to %d", PTY_MAX_SIDE);
    return r;
}

/* `out` is the whole spec. */
static int jx_pty(json_t *v, void *out, struct err *e)
{
    static const struct jx_field fields[] = {
        JX(struct proc_spec, cols, jx_side, 0),
        JX(struct proc_spec, rows, jx_side, 0),
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
        JX(struct proc_spec, head_bytes, jx_kept, 0),
        JX(struct proc_spec, tail_bytes, jx_kept, 0),
        JX(struct proc_spec, spill_bytes, jx_spilled, 0),
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
    OPTIONAL("shell", spec, jx_script),
    OPTIONAL("cwd", spec.cwd, jx_path),
    OPTIONAL("env", spec.env, exec_jx_env),
    OPTIONAL("user", spec.user, jx_str_copy),
    OPTIONAL("stdin", spec, jx_stdin),
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
