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

struct run_params {
    char *id;
    char **argv;
    struct jx_bytes shell;
    char *cwd;
    char **env;
    char *user;
    struct jx_bytes stdin;
    bool stdin_open;
    bool has_pty, raw;
    uint32_t cols, rows;
    uint64_t timeout_ms, kill_grace_ms;
    bool kill_on_exit;
    bool wait_eof;
    int umask;
    struct spawn_limit limits[SPAWN_MAX_LIMITS];
    uint64_t memory_bytes, pids, cpu_millis;
    uint64_t head_bytes, tail_bytes, spill_bytes;
    bool lossless;
};

static int jx_string_copy(json_t *v, void *out, struct err *e)
{
    const char *s;
    char *copy;
    int r = jx_str(v, &s, e);

    if (r < 0)
        return r;
    copy = strdup(s);
    if (!copy)
        return err_oom(e);
    free(*(char **)out);
    *(char **)out = copy;
    return 0;
}

/* A script: a string, or bytes. */
static int jx_script(json_t *v, void *out, struct err *e)
{
    struct jx_bytes *b = out;
    char *copy;

    if (!json_is_string(v))
        return jx_bytes(v, out, e);
    copy = malloc(json_string_length(v) + 1);
    if (!copy)
        return err_oom(e);
    memcpy(copy, json_string_value(v), json_string_length(v) + 1);
    jx_bytes_done(b);
    b->data = copy;
    b->len = json_string_length(v);
    return 0;
}

static int add_setting(struct strv_list *env, const char *name, json_t *value, struct err *e)
{
    _cleanup_free_ char *setting = NULL;
    char *text = NULL;
    size_t bytes;
    int r;

    /* A value may be bytes, as an element of argv may. */
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
            r = add_setting(&list, name, value, e);
    if (r < 0) {
        strv_free(list.v);
        return r;
    }
    strv_free(*(char ***)out);
    *(char ***)out = list.v;
    return 0;
}

/* "022": octal, as everywhere. */
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

/* Objects within the request decode into the whole struct: `out` is its start. */
static int jx_pty(json_t *v, void *out, struct err *e)
{
    static const struct jx_field fields[] = {
        JX(struct run_params, cols, jx_side, 0),
        JX(struct run_params, rows, jx_side, 0),
        JX(struct run_params, raw, jx_bool, 0),
        {0},
    };

    ((struct run_params *)out)->has_pty = true;
    return jx_decode(v, fields, out, e);
}

static int jx_limits(json_t *v, void *out, struct err *e)
{
    static const struct jx_field fields[] = {
        JX(struct run_params, memory_bytes, jx_u64, JX_NULLABLE),
        JX(struct run_params, pids, jx_u64, JX_NULLABLE),
        JX(struct run_params, cpu_millis, jx_u64, JX_NULLABLE),
        {0},
    };

    return jx_decode(v, fields, out, e);
}

static int jx_output(json_t *v, void *out, struct err *e)
{
    static const struct jx_field fields[] = {
        JX(struct run_params, head_bytes, jx_kept, 0),
        JX(struct run_params, tail_bytes, jx_kept, 0),
        JX(struct run_params, spill_bytes, jx_spilled, 0),
        {0},
    };

    return jx_decode(v, fields, out, e);
}

/* A number, or "unlimited". Which resource it is follows from the place in the array. */
static const struct {
    const char *name, *field;
    int resource;
} rlimits[] = {
    {"as", "rlimits.as", RLIMIT_AS},
    {"core", "rlimits.core", RLIMIT_CORE},
    {"cpu", "rlimits.cpu", RLIMIT_CPU},
    {"data", "rlimits.data", RLIMIT_DATA},
    {"fsize", "rlimits.fsize", RLIMIT_FSIZE},
    {"memlock", "rlimits.memlock", RLIMIT_MEMLOCK},
    {"nofile", "rlimits.nofile", RLIMIT_NOFILE},
    {"nproc", "rlimits.nproc", RLIMIT_NPROC},
    {"stack", "rlimits.stack", RLIMIT_STACK},
};
_Static_assert(N_ELEMENTS(rlimits) <= SPAWN_MAX_LIMITS, "a place for each");

static int jx_rlimit(json_t *v, void *out, struct err *e)
{
    struct spawn_limit *limit = out;
    uint64_t n;
    int r;

    if (str_eq(json_string_value(v), "unlimited")) {
        limit->value = RLIM_INFINITY;
    } else {
        r = jx_u64(v, &n, e);
        if (r < 0)
            return err_set(e, ERR_INVALID, "must be a whole number or \"unlimited\"");
        limit->value = (rlim_t)n;
    }
    limit->field = "";
    return 0;
}

static int jx_rlimits(json_t *v, void *out, struct err *e)
{
    struct run_params *p = out;
    struct jx_field fields[N_ELEMENTS(rlimits) + 1] = {0};
    int r;

    for (size_t i = 0; i < N_ELEMENTS(rlimits); i++)
        fields[i] = (struct jx_field){rlimits[i].name, jx_rlimit, i * sizeof(p->limits[0]), 0};
    r = jx_decode(v, fields, p->limits, e);
    for (size_t i = 0; r == 0 && i < N_ELEMENTS(rlimits); i++) {
        if (!p->limits[i].field)
            continue;
        p->limits[i].field = rlimits[i].field;
        p->limits[i].resource = rlimits[i].resource;
    }
    return r;
}

#define WHOLE(name, fn) \
    { \
        name, fn, 0, JX_NULLABLE \
    }
#define OPTIONAL(member, fn) JX(struct run_params, member, fn, JX_NULLABLE)

static const struct jx_field run_fields[] = {
    OPTIONAL(id, jx_string_copy),
    OPTIONAL(argv, jx_argv),
    OPTIONAL(shell, jx_script),
    OPTIONAL(cwd, jx_path),
    OPTIONAL(env, exec_jx_env),
    OPTIONAL(user, jx_string_copy),
    OPTIONAL(stdin, jx_bytes),
    OPTIONAL(stdin_open, jx_bool),
    OPTIONAL(timeout_ms, jx_duration),
    OPTIONAL(kill_grace_ms, jx_duration),
    OPTIONAL(kill_on_exit, jx_bool),
    JX_AS("wait_for", struct run_params, wait_eof, jx_wait_for, JX_NULLABLE),
    OPTIONAL(umask, jx_umask),
    OPTIONAL(lossless, jx_bool),
    WHOLE("pty", jx_pty),
    WHOLE("limits", jx_limits),
    WHOLE("rlimits", jx_rlimits),
    WHOLE("output", jx_output),
    {0},
};

static void run_params_done(struct run_params *p)
{
    free(p->id);
    strv_free(p->argv);
    jx_bytes_done(&p->shell);
    free(p->cwd);
    strv_free(p->env);
    free(p->user);
    jx_bytes_done(&p->stdin);
}

static int check(const struct run_params *p, struct err *e)
{
    if (p->argv && p->shell.data)
        return err_field(e, ERR_INVALID, "shell", "'argv' and 'shell' exclude each other");
    if (!p->argv && !p->shell.data)
        return err_field(e, ERR_INVALID, "argv", "one of 'argv' and 'shell' is required");
    if (p->argv && !p->argv[0])
        return err_field(e, ERR_INVALID, "argv", "field 'argv' must not be empty");
    if (p->argv && !*p->argv[0])
        return err_field(e, ERR_INVALID, "argv[0]", "field 'argv[0]' must not be empty");
    return 0;
}

/* The same request sent again has the same digest, in whatever order its fields are. */
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

static void move(struct run_params *p, const struct agent *agent, struct proc_spec *s)
{
    s->id = TAKE(p->id);
    s->argv = TAKE(p->argv);
    s->script_len = p->shell.len;
    s->script = TAKE(p->shell.data);
    s->cwd = TAKE(p->cwd);
    s->env = TAKE(p->env);
    s->user = TAKE(p->user);
    s->stdin_len = p->stdin.len;
    s->stdin_data = TAKE(p->stdin.data);
    s->stdin_open = p->stdin_open;
    s->has_pty = p->has_pty;
    s->pty_raw = p->raw;
    s->cols = p->cols;
    s->rows = p->rows;
    s->timeout_ms = p->timeout_ms;
    s->kill_grace_ms = p->kill_grace_ms;
    s->kill_on_exit = p->kill_on_exit;
    s->wait_eof = p->wait_eof;
    s->umask = p->umask;
    s->cgroup = (struct cgroup_limits){p->memory_bytes, p->pids, p->cpu_millis};
    s->head_bytes = p->head_bytes;
    s->tail_bytes = p->tail_bytes;
    s->spill_bytes = p->spill_bytes;
    s->default_user = agent->default_user;
    s->workdir = agent->workdir;
    for (size_t i = 0; i < SPAWN_MAX_LIMITS; i++)
        if (p->limits[i].field)
            s->limits[s->n_limits++] = p->limits[i];
}

int exec_decode_spec(json_t *params, const struct agent *agent, struct proc_spec *ret,
                     bool *ret_lossless, struct err *e)
{
    _cleanup_(run_params_done) struct run_params p = {
        .cols = ret->cols,
        .rows = ret->rows,
        .kill_grace_ms = ret->kill_grace_ms,
        .umask = ret->umask,
        .head_bytes = ret->head_bytes,
        .tail_bytes = ret->tail_bytes,
    };
    int r;

    r = jx_decode(params, run_fields, &p, e);
    if (r == 0)
        r = check(&p, e);
    if (r == 0 && p.lossless && !ret_lossless)
        r = err_field(e, ERR_INVALID, "lossless", "field 'lossless' is for streams");
    if (r == 0 && p.id)
        r = set_digest(params, ret->digest, e);
    if (r < 0)
        return r;
    if (ret_lossless)
        *ret_lossless = p.lossless;
    move(&p, agent, ret);
    return 0;
}
