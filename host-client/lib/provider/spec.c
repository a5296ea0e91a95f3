#include "lib/provider/spec.h"

#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/jsonx.h"
#include "common/path.h"
#include "common/str.h"
#include "lib/provider/provider.h"

#define SPEC_TTL_MIN_MS 1000
#define SPEC_TTL_MAX_MS (30LL * 24 * 3600 * 1000)
#define SPEC_IDLE_MIN_MS 1000
#define SPEC_IDLE_MAX_MS SPEC_TTL_MAX_MS
#define SPEC_CPU_MIN_MILLIS 10
#define SPEC_CPU_MAX_MILLIS (1024 * 1000)
#define SPEC_MEMORY_MIN_BYTES (16ULL << 20)
#define SPEC_MEMORY_MAX_BYTES (1ULL << 46)
#define SPEC_DISK_MIN_BYTES (16ULL << 20)
#define SPEC_DISK_MAX_BYTES (1ULL << 60)
#define SPEC_PIDS_MIN 16
#define SPEC_PIDS_MAX (4U << 20)
#define SPEC_PATH_BYTES 4096
#define SPEC_RUNTIME_MAX 63
#define SPEC_POOL_MAX 253
#define SPEC_LIST_MAX 1000
#define SPEC_PAIR_BYTES (128 * 1024) /* the kernel's limit for one string of the environment */
#define SPEC_SECRET_BYTES (1024 * 1024)

bool spec_is_name(const char *name)
{
    size_t n = strlen(name);

    return n >= 1 && n <= 63 && name[0] != '-' &&
           strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-") == n;
}

static int invalid_value(struct err *e, const char *field, const char *what, const char *value)
{
    return err_field(e, ERR_INVALID, field, "%s: '%.200s' is not %s", field, value, what);
}

/* ---- single values ---- */

/* The value must be one of the words. */
static int check_word(const char *field, const char *value, const char *const *words, char **ret,
                      struct err *e)
{
    for (size_t i = 0; words[i]; i++) {
        if (strcmp(value, words[i]) != 0)
            continue;
        *ret = strdup(value);
        return *ret ? 0 : err_oom(e);
    }
    if (words[2] && words[3])
        return err_field(e, ERR_INVALID, field,
                         "%s: '%.64s' is not one of '%s', '%s', '%s' and '%s'", field, value,
                         words[0], words[1], words[2], words[3]);
    if (words[2])
        return err_field(e, ERR_INVALID, field, "%s: '%.64s' is not one of '%s', '%s' and '%s'",
                         field, value, words[0], words[1], words[2]);
    return err_field(e, ERR_INVALID, field, "%s: '%.64s' is neither '%s' nor '%s'", field, value,
                     words[0], words[1]);
}

static int check_text(const char *field, const char *value, char **ret, struct err *e)
{
    if (!*value || strlen(value) >= SPEC_PATH_BYTES)
        return err_field(e, ERR_INVALID, field, "%s must have 1 to %d bytes", field,
                         SPEC_PATH_BYTES - 1);
    if (!str_is_utf8(value, strlen(value)))
        return err_field(e, ERR_INVALID, field, "%s is not valid UTF-8", field);
    *ret = strdup(value);
    return *ret ? 0 : err_oom(e);
}

static int check_dest(const char *value, char **ret, struct err *e)
{
    _cleanup_free_ char *text = NULL;
    char *clean;
    int r = check_text("dest", value, &text, e);

    if (r < 0)
        return r;
    if (value[0] != '/')
        return invalid_value(e, "dest", "an absolute path", value);
    if (strcmp(value, "/..") == 0 || strstr(value, "/../") || str_has_suffix(value, "/.."))
        return invalid_value(e, "dest", "a path without '..'", value);
    clean = path_clean(value);
    if (!clean)
        return err_oom(e);
    if (strcmp(clean, "/") == 0) {
        free(clean);
        return invalid_value(e, "dest", "a directory below '/'", value);
    }
    *ret = clean;
    return 0;
}

static int check_numbers(const struct bh_create_options *o, struct spec *s, struct err *e)
{
    if (o->timeout_ms && (o->timeout_ms < SPEC_TTL_MIN_MS || o->timeout_ms > SPEC_TTL_MAX_MS))
        return err_field(e, ERR_INVALID, "timeout", "timeout must be from 1 second to 30 days");
    if (o->idle_ms && (o->idle_ms < SPEC_IDLE_MIN_MS || o->idle_ms > SPEC_IDLE_MAX_MS))
        return err_field(e, ERR_INVALID, "idle", "idle must be from 1 second to 30 days");
    if (o->start_timeout_ms < 0)
        return err_field(e, ERR_INVALID, "start-timeout", "start-timeout must not be negative");
    if (o->cpu_millis &&
        (o->cpu_millis < SPEC_CPU_MIN_MILLIS || o->cpu_millis > SPEC_CPU_MAX_MILLIS))
        return err_field(e, ERR_INVALID, "cpus", "cpus must be from 0.01 to 1024");
    if (o->memory_bytes &&
        (o->memory_bytes < SPEC_MEMORY_MIN_BYTES || o->memory_bytes > SPEC_MEMORY_MAX_BYTES))
        return err_field(e, ERR_INVALID, "memory", "memory must be from 16M to 64T");
    if (o->disk_bytes &&
        (o->disk_bytes < SPEC_DISK_MIN_BYTES || o->disk_bytes > SPEC_DISK_MAX_BYTES))
        return err_field(e, ERR_INVALID, "disk", "disk must be from 16M to 1048576T");
    if (o->pids && (o->pids < SPEC_PIDS_MIN || o->pids > SPEC_PIDS_MAX))
        return err_field(e, ERR_INVALID, "pids", "pids must be from %d to %u", SPEC_PIDS_MIN,
                         SPEC_PIDS_MAX);

    s->timeout_ms = o->timeout_ms ? o->timeout_ms : SPEC_TTL_MS;
    s->idle_ms = o->idle_ms ? o->idle_ms : SPEC_IDLE_MS;
    s->cpu_millis = o->cpu_millis;
    s->memory_bytes = o->memory_bytes;
    s->disk_bytes = o->disk_bytes;
    s->pids = o->pids ? o->pids : SPEC_PIDS;
    s->agent_port = o->agent_port;
    s->read_only = o->read_only;
    return 0;
}

/* ---- lists ---- */

static bool is_env_name(const char *s, size_t n)
{
    static const char first[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_";

    if (n == 0 || n > 255 || !strchr(first, s[0]))
        return false;
    for (size_t i = 0; i < n; i++)
        if (!strchr(first, s[i]) && (s[i] < '0' || s[i] > '9'))
            return false;
    return true;
}

static bool is_label_name(const char *s, size_t n)
{
    return n > 0 && n <= 255 &&
           strspn(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._/-") >= n;
}

/* The message has the name alone: the value may be a secret. */
static int check_pair(const char *field, const char *pair, bool is_label, size_t max, struct err *e)
{
    const char *eq = strchr(pair, '=');
    size_t n = eq ? (size_t)(eq - pair) : strlen(pair);

    if (!eq)
        return err_field(e, ERR_INVALID, field, "%s: '%.*s' has no '='", field,
                         (int)(n < 64 ? n : 64), pair);
    if (is_label ? !is_label_name(pair, n) : !is_env_name(pair, n))
        return err_field(e, ERR_INVALID, field, "%s: '%.*s' is not a name", field,
                         (int)(n < 64 ? n : 64), pair);
    if (strlen(pair) >= max)
        return err_field(e, ERR_INVALID, field, "%s: the value of '%.*s' is longer than %zu bytes",
                         field, (int)n, pair, max - n - 2);
    if (!str_is_utf8(eq, strlen(eq)))
        return err_field(e, ERR_INVALID, field, "%s: the value of '%.*s' is not valid UTF-8", field,
                         (int)n, pair);
    return 0;
}

static int check_pairs(const char *field, const char *const *pairs, bool is_label, size_t max,
                       char ***ret, struct err *e)
{
    _cleanup_strv_ char **list = calloc(1, sizeof(char *));
    size_t n = 0;

    if (!list)
        return err_oom(e);
    for (; pairs && pairs[n]; n++) {
        int r = check_pair(field, pairs[n], is_label, max, e);

        if (r < 0)
            return r;
        if (n >= SPEC_LIST_MAX)
            return err_field(e, ERR_INVALID, field, "%s: more than %d values", field,
                             SPEC_LIST_MAX);
        r = ret ? strv_push(&list, pairs[n], e) : 0;
        if (r < 0)
            return r;
    }
    if (ret)
        *ret = TAKE(list);
    return 0;
}

static int copy_list(const char *field, const char *const *from, char ***ret, struct err *e)
{
    _cleanup_strv_ char **list = calloc(1, sizeof(char *));
    int r = list ? 0 : err_oom(e);

    for (size_t i = 0; r == 0 && from && from[i]; i++) {
        if (!*from[i] || i >= SPEC_LIST_MAX)
            return err_field(e, ERR_INVALID, field, "%s: an empty value, or too many", field);
        r = strv_push(&list, from[i], e);
    }
    if (r == 0)
        *ret = TAKE(list);
    return r;
}

const char *const spec_pieces[SPEC_N_PIECES] = {
    [SPEC_USER_NAMESPACE] = "user_namespace",
    [SPEC_PID_NAMESPACE] = "pid_namespace",
    [SPEC_MOUNT_NAMESPACE] = "mount_namespace",
    [SPEC_IPC_NAMESPACE] = "ipc_namespace",
    [SPEC_UTS_NAMESPACE] = "uts_namespace",
    [SPEC_NETWORK_NAMESPACE] = "network_namespace",
    [SPEC_SECCOMP] = "seccomp",
    [SPEC_NO_NEW_PRIVILEGES] = "no_new_privileges",
    [SPEC_CAPABILITIES] = "capabilities",
    [SPEC_PIDS_LIMIT] = "pids_limit",
    [SPEC_MEMORY_LIMIT] = "memory_limit",
    [SPEC_CPU_LIMIT] = "cpu_limit",
    [SPEC_NETWORK_FILTER] = "network_filter",
};

/* A name that is no piece's is a slip of the caller's with every provider, also one that misses nothing. */
static int copy_pieces(const char *const *from, char ***ret, struct err *e)
{
    _cleanup_strv_ char **list = NULL;
    int r = copy_list("allow-missing", from, &list, e);

    for (char **name = list; r == 0 && name && *name; name++) {
        size_t i = 0;

        while (i < SPEC_N_PIECES && !str_eq(spec_pieces[i], *name))
            i++;
        if (i == SPEC_N_PIECES)
            return err_field(e, ERR_INVALID, "allow-missing",
                             "allow-missing: there is no piece '%.64s'; 'status' lists them",
                             *name);
    }
    if (r == 0)
        *ret = TAKE(list);
    return r;
}

/* ---- options ---- */

/* Pause is the default where the provider has it. The machine may lack it all the same: then the
 * monitor stops the box. */
static int check_on_idle(const struct bh_create_options *o, struct spec *s, struct err *e)
{
    static const char *const ends[] = {"pause", "stop", "rm", "keep", NULL};
    const struct provider *p = provider_find(s->provider);
    bool can_pause = p && p->pauses & PROVIDER_PAUSE_FREEZE;

    if (p && !can_pause && o->on_idle && strcmp(o->on_idle, "pause") == 0)
        return err_field(e, ERR_UNIMPLEMENTED, "on-idle",
                         "on-idle: the provider '%s' cannot pause a box", p->name);
    return check_word("on-idle",
                      o->on_idle  ? o->on_idle
                      : can_pause ? "pause"
                                  : "stop",
                      ends, &s->on_idle, e);
}

static int check_on_timeout(const struct bh_create_options *o, struct spec *s, struct err *e)
{
    static const char *const ends[] = {"stop", "snapshot", "rm", NULL};
    const struct provider *p = provider_find(s->provider);

    if (p && !p->has_snapshots && str_eq(o->on_timeout, "snapshot"))
        return err_field(e, ERR_UNIMPLEMENTED, "on-timeout",
                         "on-timeout: the provider '%s' cannot make snapshots", p->name);
    return check_word("on-timeout", o->on_timeout ? o->on_timeout : "stop", ends, &s->on_timeout,
                      e);
}

/* A provider may name its runtimes; others are names of an engine's settings. */
static int check_runtime(const struct bh_create_options *o, struct spec *s, struct err *e)
{
    const struct provider *p = provider_find(s->provider);
    size_t n = strlen(o->runtime);

    if (!p || p->runtimes)
        return check_word("runtime", o->runtime, p ? p->runtimes : provider_at(0)->runtimes,
                          &s->runtime, e);
    if (!n || n > SPEC_RUNTIME_MAX ||
        strspn(o->runtime, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-") < n)
        return err_field(e, ERR_INVALID, "runtime", "runtime: '%.64s' is not a runtime's name",
                         o->runtime);
    s->runtime = strdup(o->runtime);
    return s->runtime ? 0 : err_oom(e);
}

/* A name of an engine's object: it goes into paths as it is. */
static int check_pool(const struct bh_create_options *o, struct spec *s, struct err *e)
{
    const char *pool = o->pool ? o->pool : "";
    size_t n = strlen(pool);

    if (o->pool && (!n || n > SPEC_POOL_MAX || *pool == '.' || *pool == '-' ||
                    strspn(pool, "abcdefghijklmnopqrstuvwxyz0123456789-.") < n))
        return err_field(e, ERR_INVALID, "pool", "pool: '%.64s' is not a pool's name", pool);
    s->pool = strdup(pool);
    return s->pool ? 0 : err_oom(e);
}

static int check_texts(const struct bh_create_options *o, struct spec *s, struct err *e)
{
    static const char *const networks[] = {"user", "none", "host", NULL};
    static const char *const privileges[] = {"sudo", "strict", NULL, NULL};
    int r;

    r = check_text("provider", o->provider ? o->provider : provider_at(0)->name, &s->provider, e);
    if (r == 0)
        r = check_text("image", o->image ? o->image : "slim", &s->image, e);
    if (r == 0)
        r = check_text("agent", o->agent ? o->agent : "none", &s->agent, e);
    if (r == 0)
        r = check_dest(o->dest ? o->dest : SPEC_DEST, &s->dest, e);
    if (r == 0)
        r = check_word("network", o->network ? o->network : "user", networks, &s->network, e);
    if (r == 0)
        r = check_word("privilege", o->privilege ? o->privilege : "sudo", privileges, &s->privilege,
                       e);
    if (r == 0)
        r = check_on_timeout(o, s, e);
    if (r == 0)
        r = check_on_idle(o, s, e);
    if (r == 0)
        r = check_pool(o, s, e);
    if (r == 0 && o->runtime)
        r = check_runtime(o, s, e);
    if (r < 0)
        return r;
    if (!s->runtime)
        s->runtime = strdup("");
    s->engine = strdup("");
    s->image_dir = NULL;
    return s->runtime && s->engine ? 0 : err_oom(e);
}

/* A relative path would be another one for the next command. NULL: none. */
static json_t *new_real_path(const char *path)
{
    _cleanup_free_ char *real = path ? realpath(path, NULL) : NULL;

    return path ? json_string(real ? real : path) : json_null();
}

/* Keeps the facts for making the box again; the project is in the store. */
static int note_content(const struct bh_create_options *o, struct spec *s, struct err *e)
{
    static const char *const ways[] = {"destroy", "recreate", NULL, NULL};
    int r = check_word("on-gone", o->on_gone ? o->on_gone : "destroy", ways, &s->on_gone, e);

    if (r < 0 || strcmp(s->on_gone, "recreate") != 0)
        return r;
    s->content = json_pack("{s:b, s:s, s:b, s:o, s:o, s:b}", "upload", (int)!o->no_upload, "git",
                           o->git ? o->git : "full", "with_secrets", (int)o->with_secrets,
                           "agent_config", new_real_path(o->agent_config), "git_token_file",
                           new_real_path(o->git_token_file), "has_secrets",
                           (int)(o->secrets && o->secrets[0]));
    return s->content ? 0
                      : err_field(e, ERR_INVALID, "on-gone",
                                  "on-gone: recreate needs paths that are valid UTF-8");
}

static int check_project(const struct bh_create_options *o, struct err *e)
{
    static const char *const gits[] = {"full", "shallow", "none", NULL};
    _cleanup_free_ char *git = NULL;
    const char *at;
    int r;

    r = o->git ? check_word("git", o->git, gits, &git, e) : 0;
    if (r < 0)
        return r;
    if (o->git_token_file && !o->repo_url)
        return err_field(e, ERR_INVALID, "git-token-file", "git-token-file needs repo");
    if (!o->repo_url)
        return 0;
    if (o->project)
        return err_field(e, ERR_INVALID, "repo", "repo and a directory exclude each other");
    if (!str_has_prefix(o->repo_url, "https://") && !str_has_prefix(o->repo_url, "http://") &&
        !str_has_prefix(o->repo_url, "file:///"))
        return invalid_value(e, "repo", "an http, https or file URL", o->repo_url);
    at = strchr(o->repo_url, '@');
    if (at && at < strchr(strstr(o->repo_url, "://") + 3, '\0') &&
        memchr(strstr(o->repo_url, "://") + 3, '/',
               (size_t)(at - strstr(o->repo_url, "://") - 3)) == NULL)
        return err_field(e, ERR_INVALID, "repo",
                         "repo must not contain a user or password: use git-token-file");
    if (o->git_token_file && !str_has_prefix(o->repo_url, "http"))
        return err_field(e, ERR_INVALID, "git-token-file", "git-token-file needs an http URL");
    return 0;
}

static unsigned asked_of(const struct bh_create_options *o)
{
    return (o->provider ? SPEC_ASKED_PROVIDER : 0u) | (o->image ? SPEC_ASKED_IMAGE : 0u) |
           (o->runtime ? SPEC_ASKED_RUNTIME : 0u) | (o->agent ? SPEC_ASKED_AGENT : 0u) |
           (o->dest ? SPEC_ASKED_DEST : 0u) | (o->network ? SPEC_ASKED_NETWORK : 0u) |
           (o->privilege ? SPEC_ASKED_PRIVILEGE : 0u) | (o->pids ? SPEC_ASKED_PIDS : 0u) |
           (o->on_timeout ? SPEC_ASKED_ON_TIMEOUT : 0u) |
           (o->timeout_ms ? SPEC_ASKED_TIMEOUT : 0u) | (o->on_idle ? SPEC_ASKED_ON_IDLE : 0u) |
           (o->on_gone ? SPEC_ASKED_ON_GONE : 0u) | (o->idle_ms ? SPEC_ASKED_IDLE : 0u) |
           (o->pool ? SPEC_ASKED_POOL : 0u);
}

static int spec_fill(const struct bh_create_options *o, struct spec *s, struct err *e)
{
    int r;

    if (!o->name || !spec_is_name(o->name))
        return err_field(e, ERR_INVALID, "name",
                         "name: '%.80s' is not 1 to 63 of a-z, 0-9 and '-', not starting with '-'",
                         o->name ? o->name : "");
    s->asked = asked_of(o);
    r = check_texts(o, s, e);
    if (r == 0)
        r = check_numbers(o, s, e);
    if (r == 0)
        r = check_project(o, e);
    if (r == 0)
        r = note_content(o, s, e);
    if (r == 0)
        r = check_pairs("env", o->env, false, SPEC_PAIR_BYTES, &s->env, e);
    if (r == 0)
        r = check_pairs("secret", o->secrets, false, SPEC_SECRET_BYTES, NULL, e);
    if (r == 0)
        r = check_pairs("label", o->labels, true, SPEC_PATH_BYTES, &s->labels, e);
    if (r == 0)
        r = copy_pieces(o->allow_missing, &s->allow_missing, e);
    if (r == 0 && o->sources)
        r = copy_list("sources", o->sources, &s->sources, e);
    if (r == 0)
        r = copy_list("defaults", o->defaults, &s->defaults, e);
    if (r < 0)
        return r;
    if (o->agent_port && strcmp(s->agent, "none") == 0)
        return err_field(e, ERR_INVALID, "port", "port needs an agent");
    if (o->agent_config && strcmp(s->agent, "none") == 0)
        return err_field(e, ERR_INVALID, "agent-config", "agent-config needs an agent");
    s->image_dir = strdup("");
    s->from = strdup(o->from ? o->from : "");
    return s->image_dir && s->from ? 0 : err_oom(e);
}

int spec_from_options(const struct bh_create_options *opts, struct spec *ret, struct err *e)
{
    struct spec s = {0};
    int r = spec_fill(opts, &s, e);

    if (r < 0) {
        spec_done(&s);
        return r;
    }
    *ret = s;
    return 0;
}

void spec_done(struct spec *s)
{
    if (!s)
        return;
    free(s->provider);
    free(s->image);
    free(s->image_dir);
    free(s->runtime);
    free(s->engine);
    json_decref(s->engine_facts);
    free(s->engine_id);
    free(s->pool);
    free(s->agent);
    free(s->dest);
    free(s->network);
    free(s->privilege);
    free(s->on_timeout);
    free(s->on_idle);
    free(s->from);
    free(s->on_gone);
    json_decref(s->content);
    (void)strv_free(s->env);
    (void)strv_free(s->labels);
    (void)strv_free(s->allow_missing);
    (void)strv_free(s->sources);
    (void)strv_free(s->defaults);
    memset(s, 0, sizeof(*s));
}

/* ---- JSON ---- */

json_t *spec_to_json(const struct spec *s)
{
    json_t *obj = json_pack(
        "{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:I, "
        "s:I, s:I, s:I, s:I, s:I}",
        "provider", s->provider, "image", s->image, "image_dir", s->image_dir, "runtime",
        s->runtime, "agent", s->agent, "dest", s->dest, "network", s->network, "privilege",
        s->privilege, "on_timeout", s->on_timeout, "on_idle", s->on_idle, "on_gone", s->on_gone,
        "timeout_ms", (json_int_t)s->timeout_ms, "idle_ms", (json_int_t)s->idle_ms, "cpu_millis",
        (json_int_t)s->cpu_millis, "memory_bytes", (json_int_t)s->memory_bytes, "disk_bytes",
        (json_int_t)s->disk_bytes, "pids", (json_int_t)s->pids, "agent_port",
        (json_int_t)s->agent_port, "asked", (json_int_t)s->asked);

    /* Defaults are left out where most boxes have them: lists of many boxes read all of it. */
    if (!obj || (*s->engine && json_object_set_new(obj, "engine", json_string(s->engine)) < 0) ||
        (s->engine_id && *s->engine_id &&
         json_object_set_new(obj, "engine_id", json_string(s->engine_id)) < 0) ||
        (s->pool && *s->pool && json_object_set_new(obj, "pool", json_string(s->pool)) < 0) ||
        (s->read_only && json_object_set_new(obj, "read_only", json_true()) < 0) ||
        json_object_set_new(obj, "env", jx_new_strv(s->env)) < 0 ||
        json_object_set_new(obj, "labels", jx_new_strv(s->labels)) < 0 ||
        json_object_set_new(obj, "allow_missing", jx_new_strv(s->allow_missing)) < 0 ||
        (s->from && json_object_set_new(obj, "from", json_string(s->from)) < 0) ||
        (s->content && json_object_set(obj, "content", s->content) < 0) ||
        (s->sources && json_object_set_new(obj, "sources", jx_new_strv(s->sources)) < 0)) {
        json_decref(obj);
        return NULL;
    }
    return obj;
}

#define N_TEXTS 14

/* The texts of a stored spec, in the order of spec_texts(). */
struct stored {
    const char *texts[N_TEXTS];
    bool read_only;
    uint32_t cpu_millis, pids, agent_port, asked;
    uint64_t memory_bytes, disk_bytes;
    int64_t timeout_ms, idle_ms;
    char **env, **labels, **allow_missing, **sources;
    char *from;
    json_t *content;
};

static void spec_texts(struct spec *s, char **out[N_TEXTS])
{
    char **all[N_TEXTS] = {&s->provider, &s->image,   &s->image_dir, &s->runtime,    &s->agent,
                           &s->dest,     &s->network, &s->privilege, &s->on_timeout, &s->on_idle,
                           &s->on_gone,  &s->engine,  &s->pool,      &s->engine_id};

    memcpy(out, all, sizeof(all));
}

static int take_stored(struct stored *in, struct spec *ret, struct err *e)
{
    struct spec s = {
        .asked = in->asked,
        .timeout_ms = in->timeout_ms,
        .idle_ms = in->idle_ms,
        .cpu_millis = in->cpu_millis,
        .memory_bytes = in->memory_bytes,
        .disk_bytes = in->disk_bytes,
        .pids = in->pids,
        .agent_port = (uint16_t)in->agent_port,
        .read_only = in->read_only,
    };
    char **texts[N_TEXTS];

    s.env = TAKE(in->env);
    s.labels = TAKE(in->labels);
    s.allow_missing = TAKE(in->allow_missing);
    s.sources = TAKE(in->sources);
    s.from = TAKE(in->from);
    s.content = json_incref(in->content);
    spec_texts(&s, texts);
    for (size_t i = 0; i < N_ELEMENTS(texts); i++) {
        *texts[i] = strdup(in->texts[i]);
        if (!*texts[i]) {
            spec_done(&s);
            return err_oom(e);
        }
    }
    *ret = s;
    return 0;
}

int spec_from_json(json_t *obj, struct spec *ret, struct err *e)
{
    static const struct jx_field fields[] = {
        JX_AS("provider", struct stored, texts[0], jx_str, JX_REQUIRED),
        JX_AS("image", struct stored, texts[1], jx_str, JX_REQUIRED),
        JX_AS("image_dir", struct stored, texts[2], jx_str, JX_REQUIRED),
        JX_AS("runtime", struct stored, texts[3], jx_str, JX_REQUIRED),
        JX_AS("agent", struct stored, texts[4], jx_str, JX_REQUIRED),
        JX_AS("dest", struct stored, texts[5], jx_str, JX_REQUIRED),
        JX_AS("network", struct stored, texts[6], jx_str, JX_REQUIRED),
        JX_AS("privilege", struct stored, texts[7], jx_str, JX_REQUIRED),
        JX_AS("on_timeout", struct stored, texts[8], jx_str, JX_REQUIRED),
        JX_AS("on_idle", struct stored, texts[9], jx_str, 0),    /* an earlier version wrote none */
        JX_AS("on_gone", struct stored, texts[10], jx_str, 0),   /* as the one above */
        JX_AS("engine", struct stored, texts[11], jx_str, 0),    /* as the one above */
        JX_AS("pool", struct stored, texts[12], jx_str, 0),      /* as the one above */
        JX_AS("engine_id", struct stored, texts[13], jx_str, 0), /* as the one above */
        JX(struct stored, read_only, jx_bool, 0),                /* as the one above */
        JX(struct stored, content, jx_object, 0),
        JX(struct stored, timeout_ms, jx_i64, JX_REQUIRED),
        JX(struct stored, idle_ms, jx_i64, 0), /* an earlier version wrote none */
        JX(struct stored, cpu_millis, jx_u32, JX_REQUIRED),
        JX(struct stored, memory_bytes, jx_u64, JX_REQUIRED),
        JX(struct stored, disk_bytes, jx_u64, 0), /* an earlier version wrote none */
        JX(struct stored, pids, jx_u32, JX_REQUIRED),
        JX(struct stored, agent_port, jx_u32, JX_REQUIRED),
        JX(struct stored, asked, jx_u32, JX_REQUIRED),
        JX(struct stored, env, jx_strv, JX_REQUIRED),
        JX(struct stored, labels, jx_strv, JX_REQUIRED),
        JX(struct stored, allow_missing, jx_strv, JX_REQUIRED),
        JX(struct stored, sources, jx_strv, 0),  /* an earlier version wrote none */
        JX(struct stored, from, jx_str_copy, 0), /* an earlier version wrote none */
        {0},
    };
    /* A box of an earlier version has no idle time. */
    struct stored in = {.texts[9] = "keep",
                        .texts[10] = "destroy",
                        .texts[11] = "",
                        .texts[12] = "",
                        .texts[13] = "",
                        .idle_ms = SPEC_IDLE_MS};
    int r = jx_decode_lax(obj, fields, &in, e);

    if (r == 0)
        r = take_stored(&in, ret, e);
    (void)strv_free(in.env);
    (void)strv_free(in.labels);
    (void)strv_free(in.allow_missing);
    (void)strv_free(in.sources);
    free(in.from);
    return r;
}

/* ---- a second `up` ---- */

static int value_differs(struct err *e, const char *field, const char *have, const char *want)
{
    return err_field(e, ERR_PRECONDITION, field,
                     "%s: the box was made with '%.200s', not '%.200s'; remove it first", field,
                     *have ? have : "none", *want ? want : "none");
}

static bool same_strv(char *const *a, char *const *b)
{
    for (; *a && *b; a++, b++)
        if (strcmp(*a, *b) != 0)
            return false;
    return !*a && !*b;
}

/* The message says "none" for a limit that the box does not have. */
static int compare_number(const char *field, uint64_t have, uint64_t want, double unit,
                          const char *suffix, struct err *e)
{
    char texts[2][40] = {"none", "none"};

    if (!want || have == want)
        return 0;
    if (have)
        (void)snprintf(texts[0], sizeof(texts[0]), "%.9g%s", (double)have / unit, suffix);
    (void)snprintf(texts[1], sizeof(texts[1]), "%.9g%s", (double)want / unit, suffix);
    return value_differs(e, field, texts[0], texts[1]);
}

/* Names the first variable that differs. */
static int compare_env(const struct spec *have, const struct spec *want, struct err *e)
{
    for (char **w = want->env; *w; w++) {
        size_t name = strcspn(*w, "=");
        const char *old = NULL;
        char field[80];

        for (char **h = have->env; *h && !old; h++)
            if (strncmp(*h, *w, name + 1) == 0)
                old = *h + name + 1;
        if (old && strcmp(old, *w + name + 1) == 0)
            continue;
        (void)snprintf(field, sizeof(field), "env %.60s", *w);
        field[strcspn(field, "=")] = '\0';
        /* the message has no values: they may be secret */
        return err_field(e, ERR_PRECONDITION, "env", "%s: the box was made %s; remove it first",
                         field, old ? "with another value" : "without it");
    }
    if (want->env[0] && !same_strv(have->env, want->env))
        return err_field(e, ERR_PRECONDITION, "env",
                         "env: the box was made with more variables, or in another order; "
                         "remove it first");
    return 0;
}

/* Is the value of the request a default, which a box that exists need not have? */
static bool is_default(const struct spec *want, const char *field)
{
    for (char **d = want->defaults; d && *d; d++)
        if (strcmp(*d, field) == 0)
            return true;
    return false;
}

static int compare_numbers(const struct spec *have, const struct spec *want, struct err *e)
{
    const struct {
        const char *field;
        uint64_t have, want;
        double unit;
        const char *suffix;
    } numbers[] = {
        {"cpus", have->cpu_millis, want->cpu_millis, 1000, ""},
        {"memory", have->memory_bytes, want->memory_bytes, 1024.0 * 1024, "M"},
        {"disk", have->disk_bytes, want->disk_bytes, 1024.0 * 1024, "M"},
        {"pids", have->pids, want->asked & SPEC_ASKED_PIDS ? want->pids : 0, 1, ""},
        {"port", have->agent_port, want->agent_port, 1, ""},
        {"idle", (uint64_t)have->idle_ms,
         want->asked & SPEC_ASKED_IDLE ? (uint64_t)want->idle_ms : 0, 1000, "s"},
    };

    for (size_t i = 0; i < N_ELEMENTS(numbers); i++) {
        int r = is_default(want, numbers[i].field)
                    ? 0
                    : compare_number(numbers[i].field, numbers[i].have, numbers[i].want,
                                     numbers[i].unit, numbers[i].suffix, e);
        if (r < 0)
            return r;
    }
    return is_default(want, "env") ? 0 : compare_env(have, want, e);
}

static int compare_flags(const struct spec *have, const struct spec *want, struct err *e)
{
    if (!want->read_only || have->read_only || is_default(want, "read-only"))
        return 0;
    return err_field(
        e, ERR_PRECONDITION, "read-only",
        "read-only: the box was made with a root that can be written; remove it first");
}

int spec_compare(const struct spec *have, const struct spec *want, struct err *e)
{
    const struct {
        unsigned bit;
        const char *field, *have, *want;
    } texts[] = {
        {SPEC_ASKED_PROVIDER, "provider", have->provider, want->provider},
        {SPEC_ASKED_IMAGE, "image", have->image, want->image},
        {SPEC_ASKED_RUNTIME, "runtime", have->runtime, want->runtime},
        {SPEC_ASKED_AGENT, "agent", have->agent, want->agent},
        {SPEC_ASKED_DEST, "dest", have->dest, want->dest},
        {SPEC_ASKED_NETWORK, "network", have->network, want->network},
        {SPEC_ASKED_PRIVILEGE, "privilege", have->privilege, want->privilege},
        {SPEC_ASKED_ON_TIMEOUT, "on-timeout", have->on_timeout, want->on_timeout},
        {SPEC_ASKED_ON_IDLE, "on-idle", have->on_idle, want->on_idle},
        {SPEC_ASKED_ON_GONE, "on-gone", have->on_gone, want->on_gone},
        {SPEC_ASKED_POOL, "pool", have->pool, want->pool},
    };

    for (size_t i = 0; i < N_ELEMENTS(texts); i++)
        if (want->asked & texts[i].bit && !is_default(want, texts[i].field) &&
            strcmp(texts[i].have, texts[i].want) != 0)
            return value_differs(e, texts[i].field, texts[i].have, texts[i].want);
    if (want->from && *want->from && !str_eq(have->from, want->from))
        return err_field(e, ERR_PRECONDITION, "from",
                         "from: the box is there already, and was not made from the snapshot "
                         "'%.64s': give the new one another name, or use 'bellhop restore'",
                         want->from);
    if (compare_flags(have, want, e) < 0)
        return -ERR_PRECONDITION;
    return compare_numbers(have, want, e);
}
