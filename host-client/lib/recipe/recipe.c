#include "lib/recipe/recipe.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/buf.h"
#include "common/cleanup.h"
#include "common/io.h"
#include "common/jsonx.h"
#include "common/path.h"
#include "common/str.h"
#include "lib/recipe/conversation.h"

#define NAME_MAX_CHARS 63
#define VERSION_MAX_CHARS 64
#define PORT_MAX 65535
#define TIME_MAX_MS (60 * 60 * 1000)

#define LOWER "abcdefghijklmnopqrstuvwxyz"
#define UPPER "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
#define DIGITS "0123456789"

/* ---- templates ---- */

static const struct {
    const char *name;
    size_t offset;
} recipe_variables[] = {
    {"port", offsetof(struct recipe_vars, port)},
    {"password", offsetof(struct recipe_vars, password)},
    {"workdir", offsetof(struct recipe_vars, workdir)},
    {"version", offsetof(struct recipe_vars, version)},
    {"home", offsetof(struct recipe_vars, home)},
    {"install", offsetof(struct recipe_vars, install)},
    {"session", offsetof(struct recipe_vars, session)},
};

/* The offset of a variable's value by its name of len characters; false: there is no such
 * variable. */
static bool find_variable(const char *name, size_t len, size_t *ret_offset)
{
    for (size_t i = 0; i < N_ELEMENTS(recipe_variables); i++) {
        if (strlen(recipe_variables[i].name) == len &&
            memcmp(recipe_variables[i].name, name, len) == 0) {
            *ret_offset = recipe_variables[i].offset;
            return true;
        }
    }
    return false;
}

/* Expands one "${name}" at p. vars NULL: only checks the name. */
static int expand_variable(const char *p, const struct recipe_vars *vars, struct buf *out,
                           size_t *ret_len, struct err *e)
{
    const char *end = strchr(p, '}');
    const char *value;
    size_t offset;

    if (!end)
        return err_set(e, ERR_INVALID, "has a '${' without a '}'");
    if (!find_variable(p + 2, (size_t)(end - p - 2), &offset))
        return err_set(e, ERR_INVALID, "has the unknown variable '%.*s'", (int)(end - p + 1), p);
    *ret_len = (size_t)(end - p) + 1;
    if (!vars)
        return 0;
    memcpy(&value, (const char *)vars + offset, sizeof(value));
    if (!value)
        return err_set(e, ERR_INVALID, "the variable '%.*s' has no value here", (int)(end - p + 1),
                       p);
    return buf_adds(out, value, e);
}

static int expand_vars(const char *text, const struct recipe_vars *vars, struct buf *out,
                       struct err *e)
{
    int r = 0;

    while (*text && r == 0) {
        size_t n = strcspn(text, "$");

        if (n) {
            r = buf_add(out, text, n, e);
        } else if (str_has_prefix(text, "$${")) {
            n = 3;
            r = buf_adds(out, "${", e);
        } else if (str_has_prefix(text, "${")) {
            r = expand_variable(text, vars, out, &n, e);
        } else {
            n = 1;
            r = buf_add(out, text, 1, e);
        }
        text += n;
    }
    return r;
}

int recipe_expand(const char *text, const struct recipe_vars *vars, char **ret, struct err *e)
{
    _cleanup_buf_ struct buf out;
    int r;

    buf_init(&out, RECIPE_MAX_TEXT_BYTES);
    r = expand_vars(text, vars, &out, e);
    if (r < 0)
        return r;
    *ret = buf_take(&out);
    return *ret ? 0 : err_oom(e);
}

int recipe_expand_list(json_t *list, const struct recipe_vars *vars, json_t *array, struct err *e)
{
    json_t *item;
    size_t i;

    json_array_foreach (list, i, item) {
        _cleanup_free_ char *text = NULL;
        int r = recipe_expand(json_string_value(item), vars, &text, e);

        if (r < 0)
            return r;
        if (json_array_append_new(array, json_string(text)) < 0)
            return err_oom(e);
    }
    return 0;
}

int recipe_expand_env(json_t *env, const struct recipe_vars *vars, json_t *object, struct err *e)
{
    const char *key;
    json_t *item;

    json_object_foreach (env, key, item) {
        _cleanup_free_ char *text = NULL;
        int r = recipe_expand(json_string_value(item), vars, &text, e);

        if (r < 0)
            return err_wrap(e, r, "'%s'", key);
        if (json_object_set_new(object, key, json_string(text)) < 0)
            return err_oom(e);
    }
    return 0;
}

/* ---- decoding ---- */

/* A string with known variables only. */
static int jx_template(json_t *v, void *out, struct err *e)
{
    _cleanup_buf_ struct buf scratch;
    const char *text;
    int r = jx_str(v, &text, e);

    if (r < 0)
        return r;
    buf_init(&scratch, RECIPE_MAX_BYTES);
    r = expand_vars(text, NULL, &scratch, e);
    if (r == 0)
        *(const char **)out = text;
    return r;
}

static int at_index(size_t i, int r, struct err *e)
{
    char field[ERR_FIELD_BYTES];

    if (!e)
        return r;
    (void)snprintf(field, sizeof(field), "[%zu]%s%s", i, e->field[0] ? "." : "", e->field);
    (void)snprintf(e->field, sizeof(e->field), "%s", field);
    return r;
}

static int jx_templates(json_t *v, void *out, struct err *e)
{
    const char *ignored;
    json_t *item;
    size_t i;

    if (!json_is_array(v))
        return err_set(e, ERR_INVALID, "must be an array of strings");
    json_array_foreach (v, i, item) {
        int r = jx_template(item, &ignored, e);

        if (r < 0)
            return at_index(i, r, e);
    }
    *(json_t **)out = v;
    return 0;
}

static int jx_command(json_t *v, void *out, struct err *e)
{
    int r = jx_templates(v, out, e);

    if (r == 0 && !json_array_size(v))
        return err_set(e, ERR_INVALID, "must name a program");
    return r;
}

static int jx_commands(json_t *v, void *out, struct err *e)
{
    json_t *ignored, *item;
    size_t i;

    if (!json_is_array(v))
        return err_set(e, ERR_INVALID, "must be an array of commands");
    json_array_foreach (v, i, item) {
        int r = jx_command(item, &ignored, e);

        if (r < 0)
            return at_index(i, r, e);
    }
    *(json_t **)out = v;
    return 0;
}

static int jx_env(json_t *v, void *out, struct err *e)
{
    const char *key, *ignored;
    json_t *item;

    if (!json_is_object(v))
        return err_set(e, ERR_INVALID, "must be an object of strings");
    json_object_foreach (v, key, item) {
        int r;

        if (!*key || strspn(key, LOWER UPPER DIGITS "_") != strlen(key) || strchr(DIGITS, *key))
            return err_field(e, ERR_INVALID, key, "'%.60s' is not the name of a variable", key);
        r = jx_template(item, &ignored, e);
        if (r < 0)
            return err_at(e, r, key);
    }
    *(json_t **)out = v;
    return 0;
}

static int jx_time(json_t *v, void *out, struct err *e)
{
    uint32_t ms;
    int r = jx_u32(v, &ms, e);

    if (r < 0)
        return r;
    if (ms < 1 || ms > TIME_MAX_MS)
        return err_set(e, ERR_INVALID, "must be from 1 to %d milliseconds", TIME_MAX_MS);
    *(uint32_t *)out = ms;
    return 0;
}

static int jx_port(json_t *v, void *out, struct err *e)
{
    uint32_t port;
    int r = jx_u32(v, &port, e);

    if (r < 0)
        return r;
    if (port < 1 || port > PORT_MAX)
        return err_set(e, ERR_INVALID, "must be from 1 to %d", PORT_MAX);
    *(uint32_t *)out = port;
    return 0;
}

/* An octal mode such as "0600". */
static int jx_mode(json_t *v, void *out, struct err *e)
{
    const char *text;
    uint32_t mode = 0;
    int r = jx_str(v, &text, e);

    if (r < 0)
        return r;
    if (strlen(text) < 3 || strlen(text) > 4 || strspn(text, "01234567") != strlen(text))
        return err_set(e, ERR_INVALID, "must be octal, as in \"0600\"");
    for (; *text; text++)
        mode = mode * 8 + (uint32_t)(*text - '0');
    *(uint32_t *)out = mode;
    return 0;
}

/* A path that stays within its directory. */
static int jx_inside(json_t *v, void *out, struct err *e)
{
    _cleanup_free_ char *clean = NULL;
    const char *text;
    int r = jx_str(v, &text, e);

    if (r < 0)
        return r;
    clean = path_clean(text);
    if (!clean)
        return err_oom(e);
    if (!*text || path_is_absolute(text) || str_eq(clean, "..") || str_has_prefix(clean, "../"))
        return err_set(e, ERR_INVALID, "must be a path within the directory");
    *(const char **)out = text;
    return 0;
}

static int jx_check(json_t *v, void *out, struct err *e)
{
    static const struct jx_field fields[] = {
        JX_AS("argv", struct recipe, check_argv, jx_command, JX_REQUIRED),
        JX_AS("output", struct recipe, check_output, jx_template, 0),
        {0},
    };

    return jx_decode(v, fields, out, e);
}

static int jx_npm(json_t *v, void *out, struct err *e)
{
    static const struct jx_field fields[] = {
        JX(struct recipe_npm, package, jx_str, JX_REQUIRED),
        JX(struct recipe_npm, arch, jx_str, 0),
        JX(struct recipe_npm, cpu, jx_str, 0),
        JX(struct recipe_npm, integrity, jx_str, 0),
        {0},
    };
    struct recipe *rec = out;
    json_t *item;
    size_t i;

    if (!json_is_array(v) || json_array_size(v) > RECIPE_MAX_NPM)
        return err_set(e, ERR_INVALID, "must be an array of at most %d packages", RECIPE_MAX_NPM);
    json_array_foreach (v, i, item) {
        struct recipe_npm row = {.arch = "", .cpu = "", .integrity = ""};
        int r = jx_decode(item, fields, &row, e);

        if (r == 0 && *row.integrity && !str_has_prefix(row.integrity, "sha512-"))
            r = err_field(e, ERR_INVALID, "integrity", "must begin with 'sha512-'");
        if (r < 0)
            return at_index(i, r, e);
        rec->npm[rec->n_npm++] = row;
    }
    return 0;
}

/* {"version", "npm"}: rows as in npm above, all of one version. */
static int jx_node(json_t *v, void *out, struct err *e)
{
    static const struct jx_field fields[] = {
        JX_AS("version", struct recipe, node_version, jx_str, JX_REQUIRED),
        {"npm", jx_npm, 0, JX_REQUIRED},
        {0},
    };
    struct recipe *rec = out;
    struct recipe node = {0};
    int r = jx_decode(v, fields, &node, e);

    if (r < 0)
        return r;
    if (node.n_npm > RECIPE_MAX_NODE)
        return err_field(e, ERR_INVALID, "npm", "has more than %d packages", RECIPE_MAX_NODE);
    memcpy(rec->node, node.npm, node.n_npm * sizeof(*node.npm));
    rec->n_node = node.n_npm;
    rec->node_version = node.node_version;
    return 0;
}

static int jx_install(json_t *v, void *out, struct err *e)
{
    static const struct jx_field fields[] = {
        {"npm", jx_npm, 0, 0},
        JX(struct recipe, npm_lock, jx_inside, 0),
        {"node", jx_node, 0, 0},
        JX_AS("commands", struct recipe, install_argvs, jx_commands, 0),
        {0},
    };

    return jx_decode(v, fields, out, e);
}

static int check_file(const struct recipe_file *f, struct err *e)
{
    bool is_text = f->path && f->content && !f->from && !f->into;
    bool is_copy = f->from && f->into && !f->path && !f->content;

    if (!is_text && !is_copy)
        return err_set(e, ERR_INVALID, "needs either 'path' and 'content' or 'from' and 'into'");
    return 0;
}

static int jx_files(json_t *v, void *out, struct err *e)
{
    static const struct jx_field fields[] = {
        JX(struct recipe_file, path, jx_template, 0),
        JX(struct recipe_file, content, jx_template, 0),
        JX(struct recipe_file, mode, jx_mode, 0),
        JX(struct recipe_file, from, jx_inside, 0),
        JX(struct recipe_file, into, jx_template, 0),
        {0},
    };
    struct recipe *rec = out;
    json_t *item;
    size_t i;

    if (!json_is_array(v) || json_array_size(v) > RECIPE_MAX_FILES)
        return err_set(e, ERR_INVALID, "must be an array of at most %d files", RECIPE_MAX_FILES);
    json_array_foreach (v, i, item) {
        struct recipe_file row = {.mode = 0600};
        int r = jx_decode(item, fields, &row, e);

        if (r == 0)
            r = check_file(&row, e);
        if (r < 0)
            return at_index(i, r, e);
        rec->files[rec->n_files++] = row;
    }
    return 0;
}

static int jx_start_mode(json_t *v, void *out, struct err *e)
{
    if (str_eq(json_string_value(v), "server"))
        *(enum recipe_mode *)out = RECIPE_SERVER;
    else if (str_eq(json_string_value(v), "rpc"))
        *(enum recipe_mode *)out = RECIPE_RPC;
    else
        return err_set(e, ERR_INVALID, "must be \"server\" or \"rpc\"");
    return 0;
}

static int jx_start(json_t *v, void *out, struct err *e)
{
    static const struct jx_field fields[] = {
        JX_AS("argv", struct recipe, start_argv, jx_command, JX_REQUIRED),
        JX_AS("env", struct recipe, start_env, jx_env, 0),
        JX(struct recipe, cwd, jx_template, 0),
        JX(struct recipe, mode, jx_start_mode, JX_REQUIRED),
        JX(struct recipe, session_args, jx_templates, 0),
        JX(struct recipe, session_unknown, jx_template, 0),
        {0},
    };

    return jx_decode(v, fields, out, e);
}

static int jx_http(json_t *v, void *out, struct err *e)
{
    static const struct jx_field fields[] = {
        JX(struct recipe_health, path, jx_str, JX_REQUIRED),
        JX(struct recipe_health, expect, jx_object, 0),
        JX(struct recipe_health, username, jx_str, 0),
        {0},
    };
    struct recipe_health *h = out;
    int r = jx_decode(v, fields, h, e);

    if (r == 0 && h->path[0] != '/')
        return err_field(e, ERR_INVALID, "path", "must begin with a '/'");
    return r;
}

static int jx_rpc(json_t *v, void *out, struct err *e)
{
    static const struct jx_field fields[] = {
        JX(struct recipe_health, send, jx_object, JX_REQUIRED),
        JX(struct recipe_health, expect, jx_object, JX_REQUIRED),
        JX(struct recipe_health, session, jx_str, 0),
        {0},
    };

    return jx_decode(v, fields, out, e);
}

static int jx_health(json_t *v, void *out, struct err *e)
{
    static const struct jx_field fields[] = {
        {"http", jx_http, 0, 0},
        {"rpc", jx_rpc, 0, 0},
        JX(struct recipe_health, attempt_ms, jx_time, 0),
        JX(struct recipe_health, total_ms, jx_time, 0),
        JX(struct recipe_health, interval_ms, jx_time, 0),
        {0},
    };
    struct recipe_health *h = out;
    int r = jx_decode(v, fields, h, e);

    if (r == 0 && !h->path == !h->send)
        return err_set(e, ERR_INVALID, "needs either 'http' or 'rpc'");
    return r;
}

static int jx_restarts(json_t *v, void *out, struct err *e)
{
    uint32_t max;
    int r = jx_u32(v, &max, e);

    if (r < 0)
        return r;
    if (max > RECIPE_RESTARTS_MAX)
        return err_set(e, ERR_INVALID, "must be at most %d", RECIPE_RESTARTS_MAX);
    *(uint32_t *)out = max;
    return 0;
}

static int jx_restart(json_t *v, void *out, struct err *e)
{
    static const struct jx_field fields[] = {
        JX_AS("max", struct recipe, restart_max, jx_restarts, 0),
        JX_AS("args", struct recipe, restart_args, jx_templates, 0),
        {0},
    };

    return jx_decode(v, fields, out, e);
}

static int jx_timeouts(json_t *v, void *out, struct err *e)
{
    static const struct jx_field fields[] = {
        JX_AS("check_ms", struct recipe_timeouts, check, jx_time, 0),
        JX_AS("install_ms", struct recipe_timeouts, install, jx_time, 0),
        JX_AS("files_ms", struct recipe_timeouts, files, jx_time, 0),
        JX_AS("start_ms", struct recipe_timeouts, start, jx_time, 0),
        {0},
    };

    return jx_decode(v, fields, out, e);
}

static int jx_name(json_t *v, void *out, struct err *e)
{
    const char *name;
    int r = jx_str(v, &name, e);

    if (r < 0)
        return r;
    if (!*name || strlen(name) > NAME_MAX_CHARS || strspn(name, LOWER DIGITS "-") != strlen(name))
        return err_set(e, ERR_INVALID, "must be of a-z, 0-9 and '-', at most %d", NAME_MAX_CHARS);
    *(const char **)out = name;
    return 0;
}

static int check_version(const char *version, struct err *e)
{
    if (!strchr(DIGITS, *version) || !*version || strlen(version) > VERSION_MAX_CHARS ||
        strspn(version, LOWER UPPER DIGITS ".+-") != strlen(version))
        return err_set(e, ERR_INVALID, "must be an exact version, as in 1.18.33");
    return 0;
}

static int jx_version(json_t *v, void *out, struct err *e)
{
    const char *version;
    int r = jx_str(v, &version, e);

    if (r == 0)
        r = check_version(version, e);
    if (r == 0)
        *(const char **)out = version;
    return r;
}

static int jx_ignored(json_t *v, void *out, struct err *e)
{
    const char *ignored;

    (void)out;
    return jx_str(v, &ignored, e);
}

static const struct jx_field recipe_fields[] = {
    {"$schema", jx_ignored, 0, 0}, /* for editors */
    JX(struct recipe, name, jx_name, JX_REQUIRED),
    JX(struct recipe, description, jx_str, JX_REQUIRED),
    JX_AS("version", struct recipe, own_version, jx_version, JX_REQUIRED),
    JX(struct recipe, port, jx_port, 0),
    {"check", jx_check, 0, 0},
    {"install", jx_install, 0, 0},
    {"files", jx_files, 0, 0},
    JX(struct recipe, env, jx_env, 0),
    {"start", jx_start, 0, JX_REQUIRED},
    JX(struct recipe, health, jx_health, JX_REQUIRED),
    JX(struct recipe, conversation, jx_str, 0),
    {"restart", jx_restart, 0, 0},
    JX(struct recipe, timeouts, jx_timeouts, 0),
    {0},
};

/* Checks that the tables cannot express. */
static int check_whole(const struct recipe *r, struct err *e)
{
    if (r->mode == RECIPE_SERVER && !r->port)
        return err_field(e, ERR_INVALID, "port", "field 'port' is required of a server");
    if (r->mode == RECIPE_SERVER && !r->health.path)
        return err_field(e, ERR_INVALID, "health.http", "a server's health is asked by 'http'");
    if (r->mode == RECIPE_RPC && !r->health.send)
        return err_field(e, ERR_INVALID, "health.rpc",
                         "field 'health.rpc' is required in rpc mode");
    if (r->conversation && (r->mode != RECIPE_SERVER || !conversation_knows(r->conversation)))
        return err_field(e, ERR_INVALID, "conversation",
                         "field 'conversation' must be 'opencode', of a server");
    return 0;
}

int recipe_from_json(json_t *doc, const char *dir, const char *version, struct recipe *ret,
                     struct err *e)
{
    struct recipe rec = {
        .cwd = "${workdir}",
        .restart_max = RECIPE_RESTARTS,
        .health = {.attempt_ms = RECIPE_ATTEMPT_MS,
                   .total_ms = RECIPE_TOTAL_MS,
                   .interval_ms = RECIPE_INTERVAL_MS},
        .timeouts = {.check = 20000, .install = 300000, .files = 60000, .start = 20000},
    };
    int r = jx_decode(doc, recipe_fields, &rec, e);

    if (r == 0)
        r = check_whole(&rec, e);
    if (r < 0)
        return r;
    rec.dir = strdup(dir);
    rec.version = strdup(version ? version : rec.own_version);
    rec.doc = json_incref(doc);
    if (!rec.dir || !rec.version) {
        recipe_done(&rec);
        return err_oom(e);
    }
    *ret = rec;
    return 0;
}

void recipe_done(struct recipe *r)
{
    if (!r)
        return;
    json_decref(r->doc);
    free(r->dir);
    free(r->version);
    *r = (struct recipe){0};
}

/* ---- finding ---- */

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Lists the known names: "opencode, pi, none". */
static int list_known(const char *dir, struct buf *out, struct err *e)
{
    _cleanup_closedir_ DIR *d = opendir(dir);
    _cleanup_strv_ char **names = NULL;
    struct dirent *de;
    int r = 0;

    while (d && r == 0 && (de = readdir(d)))
        if (str_has_suffix(de->d_name, ".json") && !str_eq(de->d_name, "schema.json"))
            r = strv_push(&names, de->d_name, e);
    if (names)
        qsort(names, strv_len(names), sizeof(*names), compare_names);
    for (size_t i = 0; r == 0 && names && names[i]; i++)
        r = buf_addf(out, e, "%.*s, ", (int)(strlen(names[i]) - strlen(".json")), names[i]);
    return r == 0 ? buf_adds(out, "none", e) : r;
}

static int unknown_recipe(const char *dir, const char *name, struct err *e)
{
    _cleanup_buf_ struct buf known;
    int r;

    buf_init(&known, ERR_MESSAGE_BYTES);
    r = list_known(dir, &known, e);
    if (r < 0)
        return r;
    return err_field(e, ERR_NOT_FOUND, "agent",
                     "there is no recipe for '%.64s'; known are %s, or give the path of a recipe",
                     name, known.data);
}

static int load_file(const char *path, const char *version, struct recipe *ret, struct err *e)
{
    _cleanup_free_ char *text = NULL, *dir = NULL;
    _cleanup_json_ json_t *doc = NULL;
    size_t len;
    int r = io_read_file(AT_FDCWD, path, RECIPE_MAX_BYTES, &text, &len, e);

    if (r < 0)
        return err_at(e, err_wrap(e, r, "the recipe"), "agent");
    r = jx_parse(text, len, &doc, e);
    if (r < 0)
        return err_at(e, err_wrap(e, r, "the recipe '%s'", path), "agent");
    dir = path_dir(path);
    if (!dir)
        return err_oom(e);
    r = recipe_from_json(doc, dir, version, ret, e);
    return r < 0 ? err_wrap(e, r, "the recipe '%s'", path) : 0;
}

static int load_named(const char *recipe_dir, const char *agent, struct recipe *ret, struct err *e)
{
    size_t len = strcspn(agent, "@");
    const char *version = agent[len] ? agent + len + 1 : NULL;
    _cleanup_free_ char *name = strndup(agent, len);
    _cleanup_free_ char *path = NULL;
    int r;

    if (!name)
        return err_oom(e);
    r = version ? check_version(version, e) : 0;
    if (r < 0)
        return err_at(e, err_wrap(e, r, "the version in '%.80s'", agent), "agent");
    if (!len || strspn(name, LOWER DIGITS "-") != len || str_eq(name, "schema"))
        return unknown_recipe(recipe_dir, name, e);
    if (asprintf(&path, "%s/%s.json", recipe_dir, name) < 0)
        return err_oom(e);
    if (access(path, F_OK) < 0 && errno == ENOENT)
        return unknown_recipe(recipe_dir, name, e);
    return load_file(path, version, ret, e);
}

int recipe_load(const char *recipe_dir, const char *agent, struct recipe *ret, struct err *e)
{
    if (strchr(agent, '/') || str_has_suffix(agent, ".json"))
        return load_file(agent, NULL, ret, e);
    return load_named(recipe_dir, agent, ret, e);
}
