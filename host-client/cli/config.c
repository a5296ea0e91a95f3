#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli.h"
#include "common/cleanup.h"
#include "common/io.h"
#include "common/path.h"
#include "common/str.h"
#include "lib/provider/provider.h"
#include "lib/util/toml.h"

#define SYSTEM_FILE "/etc/bellhop/config.toml"
#define KEY_BYTES TOML_MAX_KEY_BYTES

struct config_file {
    char *path;
    bool is_system;
    bool is_named; /* by $BELLHOP_CONFIG: it must be there */
    bool is_there;
    struct toml toml;
    char **problems; /* one sentence each */
    struct err first;
};

struct cli_config {
    struct config_file files[2]; /* the user's, then the system's */
};

#define SETTING(name, type, member, arg, help, env) \
    { \
        name, 0, type, offsetof(struct cli_settings, member), arg, help, NULL, env \
    }

const struct cli_option cli_settings_options[] = {
    SETTING("state-dir", CLI_STR, state_dir, "DIR", "boxes and their store", "BELLHOP_STATE_DIR"),
    SETTING("cache-dir", CLI_STR, cache_dir, "DIR", "downloads", "BELLHOP_CACHE_DIR"),
    SETTING("answer-timeout", CLI_DURATION, answer_timeout_ms, "TIME",
            "how long a box's guest agent may be silent on a call (default: 30s)",
            "BELLHOP_ANSWER_TIMEOUT"),
    SETTING("provider-timeout", CLI_DURATION, provider_timeout_ms, "TIME",
            "how long a provider may take for one call (default: 5m)", "BELLHOP_PROVIDER_TIMEOUT"),
    SETTING("records-for", CLI_DURATION, records_for_ms, "TIME",
            "how long the records of destroyed boxes are kept (default: 30d)",
            "BELLHOP_RECORDS_FOR"),
    SETTING("agent-path", CLI_STR, agent_path, "FILE", "bellhopd", "BELLHOP_AGENT"),
    SETTING("monitor-path", CLI_STR, monitor_path, "FILE", "bellhop-monitor", "BELLHOP_MONITOR"),
    SETTING("recipe-dir", CLI_STR, recipe_dir, "DIR", "recipes of coding agents",
            "BELLHOP_RECIPES"),
    SETTING("image-dir", CLI_STR, image_dir, "DIR", "images", "BELLHOP_IMAGES"),
    SETTING("template-dir", CLI_STR, template_dir, "DIR", "templates of images",
            "BELLHOP_TEMPLATES"),
    SETTING("image-cache-dir", CLI_STR, image_cache_dir, "DIR", "layers of images",
            "BELLHOP_IMAGE_CACHE"),
    SETTING("npm-registry", CLI_STR, npm_registry, "URL", "where coding agents come from",
            "npm_config_registry"),
    SETTING("docker-host", CLI_STR, docker_host, "URL",
            "the engine of the provider docker (default: as docker's own command)", "DOCKER_HOST"),
    SETTING("kubeconfig", CLI_STR, kubeconfig, "FILE|proxy:SOCKET",
            "the cluster of the provider kubernetes (default: as kubectl)", "KUBECONFIG"),
    SETTING("kube-context", CLI_STR, kube_context, "NAME",
            "the context in it (default: the current one)", "BELLHOP_KUBE_CONTEXT"),
    SETTING("kube-namespace", CLI_STR, kube_namespace, "NAME",
            "the namespace of boxes (default: the context's)", "BELLHOP_KUBE_NAMESPACE"),
    SETTING("kube-registry", CLI_STR, kube_registry, "PREFIX",
            "where the cluster gets images (default: docker.io/bellhop)", "BELLHOP_KUBE_REGISTRY"),
    SETTING("debug-log", CLI_STR, debug_log, "1|FILE|PARTS", "the debug log", "BELLHOP_DEBUG"),
    {0},
};

#define LIMITS "limits" /* a table of the system's file alone */
#define LIMIT(name, type, member, arg, help, values) \
    { \
        name, 0, type, offsetof(struct cli_limits, member), arg, help, values, NULL \
    }

static const char *const limit_networks[] = {"user", "none", "host", NULL};
static const char *const limit_privileges[] = {"sudo", "strict", NULL};

static const struct cli_option limit_options[] = {
    LIMIT("memory", CLI_SIZE, values.memory_bytes, "SIZE", "of a box", NULL),
    LIMIT("cpus", CLI_CPUS, values.cpu_millis, "N", "processors of a box", NULL),
    LIMIT("disk", CLI_SIZE, values.disk_bytes, "SIZE", "of a box", NULL),
    LIMIT("pids", CLI_U32, values.pids, "N", "processes of a box", NULL),
    LIMIT("timeout", CLI_DURATION, values.timeout_ms, "TIME", "time to live of a box", NULL),
    LIMIT("idle", CLI_DURATION, values.idle_ms, "TIME", "time that a box may be unused", NULL),
    LIMIT("boxes", CLI_U32, values.boxes, "N", "boxes in a state directory", NULL),
    LIMIT("providers", CLI_LIST, providers, "P", "providers that are allowed", provider_names),
    LIMIT("networks", CLI_LIST, networks, "MODE", "networks that are allowed", limit_networks),
    LIMIT("privileges", CLI_LIST, privileges, "MODE", "privileges that are allowed",
          limit_privileges),
    {0},
};

/* ---- keys ---- */

static const struct cli_option *find_row(const struct cli_option *o, const char *name)
{
    for (; o && o->name; o++)
        if (strcmp(o->name, name) == 0)
            return o;
    return NULL;
}

/* Commands that make no context read no files. */
static const struct cli_command *find_configured(const char *name, size_t len)
{
    const struct cli_command *cmd;

    for (size_t i = 0; (cmd = cli_command_at(i)); i++)
        if (strncmp(cmd->name, name, len) == 0 && !cmd->name[len])
            return cmd->flags & CLI_NO_CONTEXT ? NULL : cmd;
    return NULL;
}

/* "up.memory" or "state-dir". NULL: there is no such key. */
static const struct cli_option *option_of_key(const char *key)
{
    const char *dot = strchr(key, '.');
    const struct cli_command *cmd = dot ? find_configured(key, (size_t)(dot - key)) : NULL;
    const struct cli_option *o;

    if (dot && str_has_prefix(key, LIMITS "."))
        return find_row(limit_options, dot + 1);
    if (dot)
        return cmd ? find_row(cmd->options, dot + 1) : NULL;
    o = find_row(cli_settings_options, key);
    return o ? o : find_row(cli_common_options, key);
}

/* ---- values ---- */

static bool is_type_right(const struct cli_option *o, enum toml_type type)
{
    switch (o->type) {
    case CLI_FLAG:
        return type == TOML_BOOLEAN;
    case CLI_LIST:
        return type == TOML_LIST;
    case CLI_STR:
    case CLI_DURATION:
        return type == TOML_STRING;
    case CLI_SIZE:
    case CLI_CPUS:
        return type == TOML_STRING || type == TOML_INTEGER;
    case CLI_U16:
    case CLI_U32:
        return type == TOML_INTEGER;
    }
    return false;
}

static const char *type_wanted(const struct cli_option *o)
{
    if (o->type == CLI_SIZE || o->type == CLI_CPUS)
        return "a string or an integer";
    return toml_type_name(o->type == CLI_FLAG                        ? TOML_BOOLEAN
                          : o->type == CLI_LIST                      ? TOML_LIST
                          : o->type == CLI_U16 || o->type == CLI_U32 ? TOML_INTEGER
                                                                     : TOML_STRING);
}

static int store_toml(const struct cli_option *o, const struct toml_value *v, void *at,
                      struct err *e)
{
    char number[24];
    int r = 0;

    if (!is_type_right(o, v->type))
        return err_set(e, ERR_INVALID, "must be %s, not %s", type_wanted(o),
                       toml_type_name(v->type));
    if (o->type == CLI_STR && (str_eq(o->arg, "DIR") || str_eq(o->arg, "FILE")) &&
        !path_is_absolute(v->text))
        return err_set(e, ERR_INVALID, "'%.100s' is not an absolute path", v->text);
    if (v->type == TOML_BOOLEAN)
        *(bool *)at = v->number != 0;
    else if (v->type == TOML_LIST)
        for (char **s = v->list; r == 0 && s && *s; s++)
            r = cli_store_value(o, at, *s, e);
    else if (v->type == TOML_STRING)
        r = cli_store_value(o, at, v->text, e);
    else if (snprintf(number, sizeof(number), "%lld", (long long)v->number) > 0)
        r = cli_store_value(o, at, number, e);
    return r;
}

static bool is_limit(const char *key)
{
    return strcmp(key, LIMITS) == 0 || str_has_prefix(key, LIMITS ".");
}

/* A limit of nothing, or one that knows other words, would be a mistake. */
static int check_limit(const struct cli_option *o, const struct toml_value *v, const void *stored,
                       struct err *e)
{
    if (o->type != CLI_LIST)
        return *(const uint64_t *)stored ? 0 : err_set(e, ERR_INVALID, "must not be 0");
    for (char **s = v->list; *s; s++) {
        size_t i = 0;

        while (o->values[i] && strcmp(o->values[i], *s) != 0)
            i++;
        if (!o->values[i])
            return err_set(e, ERR_INVALID, "there is no '%.64s'", *s);
    }
    return *v->list ? 0 : err_set(e, ERR_INVALID, "the list is empty");
}

/* Is the value one of its option? The error names file, line and key. */
static int check_value(const struct config_file *f, const struct toml_value *v, struct err *e)
{
    const struct cli_option *o = option_of_key(v->key);
    union {
        bool flag;
        const char *text;
        char **list;
        uint64_t number;
    } scratch = {0};
    struct err why = {0};
    int r = o ? store_toml(o, v, &scratch, &why)
              : err_set(&why, ERR_INVALID, "there is no such key ('bellhop config --all')");

    if (r == 0 && is_limit(v->key))
        r = f->is_system ? check_limit(o, v, &scratch, &why)
                         : err_set(&why, ERR_INVALID, "only '%s' sets limits", SYSTEM_FILE);
    if (o && o->type == CLI_LIST)
        (void)strv_free(scratch.list);
    return r < 0 ? err_field(e, (enum err_code) - r, v->key, "%s:%u: %s: %s", f->path, v->line,
                             v->key, why.message)
                 : 0;
}

/* ---- files ---- */

static int keep_problem(struct config_file *f, const struct err *e)
{
    if (!f->first.code)
        f->first = *e;
    return strv_push(&f->problems, e->message, NULL);
}

/* A user who can write the file could choose what runs as its reader. */
static int check_owner(const struct config_file *f, int fd, struct err *e)
{
    struct stat st;

    if (fstat(fd, &st) < 0)
        return err_sys(e, errno, "'%s'", f->path);
    if (!S_ISREG(st.st_mode))
        return err_set(e, ERR_INVALID, "%s: not a regular file", f->path);
    if (st.st_uid != 0 && (f->is_system || st.st_uid != geteuid()))
        return err_set(e, ERR_DENIED, "%s: belongs to another user (%u)", f->path,
                       (unsigned)st.st_uid);
    if (st.st_mode & S_IWOTH || (st.st_mode & S_IWGRP && (f->is_system || st.st_gid != getegid())))
        return err_set(e, ERR_DENIED, "%s: can be written by others (mode %04o): chmod go-w it",
                       f->path, (unsigned)(st.st_mode & 07777));
    return 0;
}

static int read_file(struct config_file *f, struct err *e)
{
    _cleanup_close_ int fd = open(f->path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    _cleanup_free_ char *text = malloc(TOML_MAX_BYTES + 1);
    size_t len = 0;
    int r;

    if (fd < 0 && (errno == ENOENT || errno == ENOTDIR) && !f->is_named)
        return 0;
    if (fd < 0)
        return err_sys(e, errno, "'%s'", f->path);
    if (!text)
        return err_oom(e);
    f->is_there = true;
    r = check_owner(f, fd, e);
    if (r == 0)
        r = io_read_full(fd, text, TOML_MAX_BYTES + 1, &len, e);
    return r < 0 ? r : toml_parse(f->path, text, len, &f->toml, e);
}

static void check_keys(struct config_file *f)
{
    struct err e = {0};

    for (size_t i = 0; i < f->toml.n; i++)
        if (check_value(f, &f->toml.values[i], &e) < 0)
            (void)keep_problem(f, &e);
    for (size_t i = 0; i < f->toml.n_tables; i++) {
        const char *key = f->toml.tables[i].key;

        if (find_configured(key, strlen(key)) || is_limit(key))
            continue;
        (void)err_field(&e, ERR_INVALID, key, "%s:%u: [%s]: there is no such command", f->path,
                        f->toml.tables[i].line, key);
        (void)keep_problem(f, &e);
    }
}

static char *user_file(bool *ret_is_named)
{
    const char *set = getenv("BELLHOP_CONFIG");

    *ret_is_named = set && *set;
    return *ret_is_named ? strdup(set)
                         : cli_user_path("XDG_CONFIG_HOME", ".config", "/config.toml");
}

struct cli_config *cli_config_free(struct cli_config *g)
{
    for (size_t i = 0; g && i < N_ELEMENTS(g->files); i++) {
        free(g->files[i].path);
        toml_done(&g->files[i].toml);
        (void)strv_free(g->files[i].problems);
    }
    free(g);
    return NULL;
}

int cli_config_read(struct cli_config **ret, struct err *e)
{
    struct cli_config *g = calloc(1, sizeof(*g));

    if (!g)
        return err_oom(e);
    g->files[0].path = user_file(&g->files[0].is_named);
    g->files[1].path = strdup(SYSTEM_FILE);
    g->files[1].is_system = true;
    if (!g->files[0].path || !g->files[1].path) {
        (void)cli_config_free(g);
        return err_oom(e);
    }
    for (size_t i = 0; i < N_ELEMENTS(g->files); i++) {
        struct err why = {0};

        if (read_file(&g->files[i], &why) < 0)
            (void)keep_problem(&g->files[i], &why);
        else
            check_keys(&g->files[i]);
    }
    *ret = g;
    return 0;
}

int cli_config_check(const struct cli_config *g, struct err *e)
{
    for (size_t i = N_ELEMENTS(g->files); i-- > 0;) {
        if (!g->files[i].first.code)
            continue;
        if (e)
            *e = g->files[i].first;
        return -g->files[i].first.code;
    }
    return 0;
}

/* ---- where a value comes from ---- */

static const struct toml_value *find_value(const struct cli_config *g, const char *key,
                                           const struct config_file **ret_file)
{
    for (size_t i = 0; g && i < N_ELEMENTS(g->files); i++) {
        const struct config_file *f = &g->files[i];

        for (size_t n = 0; n < f->toml.n; n++) {
            if (strcmp(f->toml.values[n].key, key) != 0 ||
                check_value(f, &f->toml.values[n], NULL) < 0)
                continue;
            *ret_file = f;
            return &f->toml.values[n];
        }
    }
    return NULL;
}

/* The place of an option's value. */
struct origin {
    enum cli_source source;
    const char *text; /* of the variable */
    const struct toml_value *value;
    const struct config_file *file;
};

static const char *env_of(const struct cli_option *o)
{
    const char *set = o->env ? getenv(o->env) : NULL;

    return set && *set ? set : NULL;
}

static struct origin find_origin(const struct cli_config *g, const char *key,
                                 const struct cli_option *o, bool is_given)
{
    struct origin at = {.source = CLI_FROM_FLAG};

    if (is_given)
        return at;
    at.source = CLI_FROM_ENV;
    at.text = env_of(o);
    if (at.text)
        return at;
    at.source = CLI_FROM_FILE;
    at.value = find_value(g, key, &at.file);
    if (!at.value)
        at.source = CLI_BUILT_IN;
    return at;
}

static char *origin_text(const struct origin *at, const struct cli_option *o)
{
    char *text = NULL;
    int n = -1;

    if (at->source == CLI_FROM_FLAG)
        n = asprintf(&text, "flag --%s", o->name);
    else if (at->source == CLI_FROM_ENV)
        n = asprintf(&text, "env %s", o->env);
    else if (at->source == CLI_FROM_FILE)
        n = asprintf(&text, "%s:%u", at->file->path, at->value->line);
    else
        n = asprintf(&text, "built-in");
    return n < 0 ? NULL : text;
}

/* The rows of one table: their prefix in keys, and which of them were given. */
struct table {
    const struct cli_option *options;
    const char *prefix; /* or NULL */
    uint64_t given;
};

static void row_key(const struct table *t, const struct cli_option *o, char out[KEY_BYTES])
{
    (void)snprintf(out, KEY_BYTES, "%s%s%s", t->prefix ? t->prefix : "", t->prefix ? "." : "",
                   o->name);
}

static bool is_row_given(const struct table *t, const struct cli_option *o)
{
    return t->given >> (o - t->options) & 1;
}

static struct table own_table(const struct cli *c)
{
    return (struct table){c->command->options, c->command->name, c->given};
}

static int apply_table(const struct cli *c, const struct table *t, void *base, struct err *e)
{
    int r = 0;

    for (const struct cli_option *o = t->options; r == 0 && o && o->name; o++) {
        void *slot = (char *)base + o->offset;
        char key[KEY_BYTES];
        struct origin at;

        row_key(t, o, key);
        at = find_origin(c->config, key, o, is_row_given(t, o));
        if (at.source == CLI_FROM_ENV)
            r = err_at(e, cli_store_value(o, slot, at.text, e), o->name);
        else if (at.source == CLI_FROM_FILE)
            r = store_toml(o, at.value, slot, e);
        if (r == 0 && at.source != CLI_BUILT_IN && !t->prefix && o->type == CLI_DURATION &&
            *(const int64_t *)slot == 0) /* the library's default */
            r = err_field(e, ERR_INVALID, o->name, "the time must not be 0");
    }
    return r;
}

static int apply_limits(struct cli *c, struct err *e)
{
    const struct table t = {limit_options, LIMITS, 0};
    struct cli_limits *l = &c->limits;
    int r = apply_table(c, &t, l, e);

    l->values.size = sizeof(l->values);
    l->values.providers = (const char *const *)l->providers;
    l->values.networks = (const char *const *)l->networks;
    l->values.privileges = (const char *const *)l->privileges;
    l->values.source = SYSTEM_FILE;
    return r;
}

void cli_limits_done(struct cli_limits *l)
{
    l->providers = strv_free(l->providers);
    l->networks = strv_free(l->networks);
    l->privileges = strv_free(l->privileges);
}

int cli_config_apply(struct cli *c, void *args, struct err *e)
{
    const struct table tables[] = {
        own_table(c), {cli_common_options, NULL, c->given_common}, {cli_settings_options, NULL, 0}};
    void *const bases[] = {args, c, &c->settings};
    int r = 0;

    for (size_t i = 0; r == 0 && i < N_ELEMENTS(tables); i++)
        r = apply_table(c, &tables[i], bases[i], e);
    return r < 0 ? r : apply_limits(c, e);
}

enum cli_source cli_source_of(const struct cli *c, const char *name)
{
    const struct table t = own_table(c);
    const struct cli_option *o = find_row(t.options, name);
    char key[KEY_BYTES];

    if (!o)
        return CLI_BUILT_IN;
    row_key(&t, o, key);
    return find_origin(c->config, key, o, is_row_given(&t, o)).source;
}

int cli_sources(const struct cli *c, char ***ret_sources, char ***ret_defaults, struct err *e)
{
    const struct table t = own_table(c);
    int r = 0;

    for (const struct cli_option *o = t.options; r == 0 && o && o->name; o++) {
        _cleanup_free_ char *text = NULL;
        _cleanup_free_ char *pair = NULL;
        char key[KEY_BYTES];
        struct origin at;

        row_key(&t, o, key);
        at = find_origin(c->config, key, o, is_row_given(&t, o));
        if (at.source == CLI_BUILT_IN)
            continue;
        text = origin_text(&at, o);
        if (!text || asprintf(&pair, "%s=%s", o->name, text) < 0)
            return err_oom(e);
        r = strv_push(ret_sources, pair, e);
        if (r == 0 && at.source == CLI_FROM_FILE)
            r = strv_push(ret_defaults, o->name, e);
    }
    return r;
}

/* Is the option the field of an error? The library's fields have '_' where it has settings. */
static bool is_field(const char *field, const char *name)
{
    for (; *field && *name; field++, name++)
        if (*field != *name && !(*field == '_' && *name == '-'))
            return false;
    return !*field && !*name;
}

/* The message without the field in front of it: the variable's name says the same. */
static const char *message_of_field(const struct bh_error *err)
{
    size_t n = strlen(err->field);
    bool is_named =
        strncmp(err->message, err->field, n) == 0 && str_has_prefix(err->message + n, ": ");

    return is_named ? err->message + n + 2 : err->message;
}

void cli_config_name_origin(const struct cli *c, struct bh_error *err)
{
    const struct table tables[] = {own_table(c), {cli_settings_options, NULL, 0}};
    char message[sizeof(err->message)];

    for (size_t i = 0; c->config && *err->field && i < N_ELEMENTS(tables); i++) {
        for (const struct cli_option *o = tables[i].options; o && o->name; o++) {
            _cleanup_free_ char *text = NULL;
            char key[KEY_BYTES];
            struct origin at;

            if (!is_field(err->field, o->name))
                continue;
            row_key(&tables[i], o, key);
            at = find_origin(c->config, key, o, is_row_given(&tables[i], o));
            if (at.source != CLI_FROM_FILE && !(at.source == CLI_FROM_ENV && !tables[i].prefix))
                continue;
            text = origin_text(&at, o);
            (void)snprintf(message, sizeof(message), "%.200s: %.300s",
                           at.source == CLI_FROM_ENV ? o->env
                           : text                    ? text
                                                     : "",
                           at.source == CLI_FROM_ENV ? message_of_field(err) : err->message);
            (void)snprintf(err->message, sizeof(err->message), "%s", message);
            return;
        }
    }
}

/* ---- a listing ---- */

/* Variables may be secret: their names only. */
static json_t *list_json(const struct cli_option *o, char *const *list)
{
    bool is_secret = strcmp(o->name, "env") == 0 || strcmp(o->name, "secret") == 0;
    json_t *out = json_array();

    for (; list && *list; list++) {
        size_t n = strcspn(*list, "=");

        (void)json_array_append_new(out, is_secret && (*list)[n]
                                             ? json_sprintf("%.*s=...", (int)n, *list)
                                             : json_string(*list));
    }
    return out;
}

/* A URL without its user and password. */
static json_t *text_json(const char *text)
{
    const char *host = strstr(text, "://");
    size_t n = host ? strcspn(host + 3, "/") : 0;
    const char *at = host ? memrchr(host + 3, '@', n) : NULL;

    return at ? json_sprintf("%.*s...%s", (int)(host + 3 - text), text, at) : json_string(text);
}

static json_t *value_json(const struct cli *c, const struct cli_option *o, const struct origin *at)
{
    const struct toml_value *v = at->value;

    switch (at->source) {
    case CLI_FROM_FLAG:
        return json_boolean(*(const bool *)((const char *)c + o->offset)); /* of every command */
    case CLI_FROM_ENV:
        return text_json(at->text);
    case CLI_BUILT_IN:
        return o->type == CLI_FLAG ? json_false() : json_null();
    case CLI_FROM_FILE:
        break;
    }
    if (v->type == TOML_LIST)
        return list_json(o, v->list);
    if (v->type == TOML_BOOLEAN)
        return json_boolean(v->number);
    return v->type == TOML_INTEGER ? json_integer((json_int_t)v->number) : text_json(v->text);
}

static void add_table(const struct cli *c, const struct table *t, json_t *out)
{
    for (const struct cli_option *o = t->options; o && o->name; o++) {
        _cleanup_free_ char *text = NULL;
        char key[KEY_BYTES];
        struct origin at;
        json_t *value = NULL;

        row_key(t, o, key);
        at = find_origin(c->config, key, o, is_row_given(t, o));
        text = origin_text(&at, o);
        if (t->options == cli_settings_options && at.source == CLI_BUILT_IN)
            value = cli_setting_default(o->name);
        if (!value)
            value = value_json(c, o, &at);
        (void)json_array_append_new(out,
                                    json_pack("{s:s, s:o, s:s, s:s}", "key", key, "value", value,
                                              "source", text ? text : "", "about", o->help));
    }
}

json_t *cli_config_values(const struct cli *c)
{
    const struct table tables[] = {{cli_settings_options, NULL, 0},
                                   {cli_common_options, NULL, c->given_common},
                                   {limit_options, LIMITS, 0}};
    const struct cli_command *cmd;
    json_t *out = json_array();

    for (size_t i = 0; i < N_ELEMENTS(tables); i++)
        add_table(c, &tables[i], out);
    for (size_t i = 0; (cmd = cli_command_at(i)); i++) {
        struct table t = {cmd->options, cmd->name, 0};

        if (!(cmd->flags & CLI_NO_CONTEXT))
            add_table(c, &t, out);
    }
    return out;
}

json_t *cli_config_files(const struct cli_config *g)
{
    json_t *out = json_array();

    for (size_t i = 0; i < N_ELEMENTS(g->files); i++) {
        const struct config_file *f = &g->files[i];
        json_t *problems = json_array();

        for (char **p = f->problems; p && *p; p++)
            (void)json_array_append_new(problems, json_string(*p));
        (void)json_array_append_new(out, json_pack("{s:s, s:b, s:b, s:o}", "path", f->path,
                                                   "system", f->is_system, "exists", f->is_there,
                                                   "problems", problems));
    }
    return out;
}
