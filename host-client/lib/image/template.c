#include "lib/image/template.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/buf.h"
#include "common/cleanup.h"
#include "common/io.h"
#include "common/path.h"
#include "common/str.h"
#include "lib/recipe/recipe.h"
#include "lib/util/toml.h"

/* ---- words ---- */

/*
 * The words allowed in a template's fields become words of commands that root runs (apt-get, npm,
 * pip): none may look like an option or contain white space. Each function returns NULL if the
 * word is fine, else a description of the expected word: "a package's name".
 */

#define LOWER "abcdefghijklmnopqrstuvwxyz"
#define UPPER "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
#define DIGITS "0123456789"

/* min to max bytes; the first is in `first`, the others in `first` or `rest`. */
static bool is_made_of(const char *word, size_t len, size_t max, const char *first,
                       const char *rest)
{
    if (!len || len > max || !strchr(first, word[0]))
        return false;
    for (size_t i = 1; i < len; i++)
        if (!strchr(first, word[i]) && !strchr(rest, word[i]))
            return false;
    return true;
}

static bool is_word(const char *word, size_t max, const char *first, const char *rest)
{
    return is_made_of(word, strlen(word), max, first, rest);
}

/* 1 to 4095 bytes, no control characters but line ends */
static const char *word_text(const char *word)
{
    size_t n = strlen(word);

    for (size_t i = 0; i < n; i++)
        if (((unsigned char)word[i] < ' ' && !strchr("\t\n", word[i])) || word[i] == 0x7f)
            return "a text without control characters";
    return n && n < 4096 ? NULL : "a text of 1 to 4095 bytes";
}

static const char *word_name(const char *word)
{
    return is_word(word, 63, LOWER DIGITS, "._-")
               ? NULL
               : "a name of a-z, 0-9, '.', '_' and '-', up to 63";
}

static const char *word_version(const char *word)
{
    return is_word(word, 63, LOWER UPPER DIGITS, "._-+") ? NULL : "a version such as 1.0.0";
}

static const char *word_suite(const char *word)
{
    return is_word(word, 31, LOWER, "-") ? NULL : "a suite of Debian";
}

const char *word_user(const char *word)
{
    return is_word(word, 31, LOWER "_", DIGITS "-") && strcmp(word, "root") != 0
               ? NULL
               : "a user's name (and not root)";
}

static bool is_path(const char *word)
{
    return word[0] == '/' && strlen(word) < 1024 && !strstr(word, "/../") &&
           !str_has_suffix(word, "/..") && !strpbrk(word, " \t\r\n\"'\\");
}

static const char *word_dir(const char *word)
{
    return is_path(word) && word[1] && !strpbrk(word, "*?[") ? NULL
                                                             : "an absolute directory without '..'";
}

static const char *word_glob(const char *word)
{
    return is_path(word) && word[1] ? NULL : "an absolute path or pattern";
}

/* NAME or NAME=VERSION */
static const char *word_package(const char *word)
{
    size_t n = strcspn(word, "=");

    if (!is_made_of(word, n, 100, LOWER DIGITS, "+.-") || n < 2 ||
        (word[n] && !is_word(word + n + 1, 100, LOWER UPPER DIGITS, "+.:~-")))
        return "a package's name";
    return NULL;
}

/* [@SCOPE/]NAME[@VERSION] */
static const char *word_npm(const char *word)
{
    const char *name = word;
    size_t n;

    if (*name == '@') {
        n = strcspn(++name, "/");
        if (!name[n] || !is_made_of(name, n, 100, LOWER UPPER DIGITS, "._-~"))
            return "a package of npm";
        name += n + 1;
    }
    n = strcspn(name, "@");
    if (!is_made_of(name, n, 200, LOWER UPPER DIGITS, "._-~") ||
        (name[n] && !is_word(name + n + 1, 60, LOWER UPPER DIGITS "^~", "._-+")))
        return "a package of npm";
    return NULL;
}

/* NAME[EXTRAS]==VERSION, with any comparisons. */
static const char *word_pip(const char *word)
{
    return is_word(word, 200, LOWER UPPER DIGITS, "._-[],=<>!~*+") ? NULL : "a package of pip";
}

static const char *word_agent(const char *word)
{
    return is_word(word, 100, LOWER UPPER DIGITS, "._-@+") ? NULL : "a coding agent's name";
}

static const char *word_env(const char *word)
{
    size_t n = strcspn(word, "=");

    if (!word[n] || !is_made_of(word, n, 255, LOWER UPPER "_", DIGITS))
        return "NAME=VALUE";
    return strpbrk(word, "\r\n") ? "NAME=VALUE on one line" : NULL;
}

/* ---- the fields ---- */

struct field {
    const char *key;
    enum toml_type type;
    size_t offset; /* char *, uint32_t, bool or char ** */
    /* NULL: the word is fine; else a description of the expected word. */
    const char *(*check)(const char *word);
    const char *otherwise; /* NULL: required; lists have no default */
    uint32_t min, max;     /* of integers */
};

#define TEXT(key_, member, check_, otherwise_) \
    { \
        .key = (key_), .type = TOML_STRING, .offset = offsetof(struct template, member), \
        .check = (check_), .otherwise = (otherwise_) \
    }
#define NUMBER(key_, member, min_, max_, otherwise_) \
    { \
        .key = (key_), .type = TOML_INTEGER, .offset = offsetof(struct template, member), \
        .min = (min_), .max = (max_), .otherwise = (otherwise_) \
    }
#define LIST(key_, member, check_) \
    { \
        .key = (key_), .type = TOML_LIST, .offset = offsetof(struct template, member), \
        .check = (check_), .otherwise = "" \
    }

static const struct field template_fields[] = {
    TEXT("template_id", template_id, word_text, ""),
    TEXT("template_name", name, word_name, NULL),
    TEXT("dockerfile", dockerfile, word_text, ""),
    TEXT("start_cmd", start_cmd, word_text, ""),
    TEXT("ready_cmd", ready_cmd, word_text, ""),
    NUMBER("cpu_count", cpu_count, 1, 1024, "0"),
    NUMBER("memory_mb", memory_mb, 128, 1 << 20, "0"),
    TEXT("team_id", team_id, word_text, ""),
    TEXT("bellhop.version", version, word_version, "latest"),
    TEXT("bellhop.suite", suite, word_suite, "bookworm"),
    TEXT("bellhop.from", from_name, word_text, ""),
    TEXT("bellhop.user", user, word_user, ""),
    TEXT("bellhop.workdir", workdir, word_dir, ""),
    NUMBER("bellhop.size_mb", size_mb, 1, 100000, "0"),
    {.key = "bellhop.node",
     .type = TOML_BOOLEAN,
     .offset = offsetof(struct template, node),
     .otherwise = "false"},
    LIST("bellhop.packages", packages, word_package),
    LIST("bellhop.npm", npm, word_npm),
    LIST("bellhop.pip", pip, word_pip),
    LIST("bellhop.agents", agents, word_agent),
    LIST("bellhop.env", env, word_env),
    LIST("bellhop.exclude", exclude, word_glob),
    LIST("bellhop.flavours", flavours, word_name),
};

__attribute__((format(printf, 5, 6))) static int wrong(const struct template *t, unsigned line,
                                                       const char *field, struct err *e,
                                                       const char *fmt, ...)
{
    char text[300];
    va_list ap;

    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    return err_field(e, ERR_INVALID, field, "%.150s:%u: %s", t->path, line, text);
}

/* Offset 0 would be `path`, which is no field. */
static void *field_at(struct template *t, const struct field *f)
{
    return (char *)t + f->offset;
}

static int take_list(struct template *t, const struct field *f, struct toml_value *v, struct err *e)
{
    for (size_t i = 0; v->list[i]; i++) {
        const char *want = f->check(v->list[i]);

        if (want)
            return wrong(t, v->list_lines[i], f->key, e, "%s: '%.80s' is not %s", f->key,
                         v->list[i], want);
        for (size_t k = 0; k < i; k++)
            if (strcmp(v->list[k], v->list[i]) == 0)
                return wrong(t, v->list_lines[i], f->key, e, "%s: '%.80s' is there twice", f->key,
                             v->list[i]);
    }
    *(char ***)field_at(t, f) = TAKE(v->list);
    return 0;
}

static int take_field(struct template *t, const struct field *f, struct toml_value *v,
                      struct err *e)
{
    const char *want;

    if (v->type != f->type)
        return wrong(t, v->line, f->key, e, "%s must be %s, and is %s", f->key,
                     toml_type_name(f->type), toml_type_name(v->type));
    switch (f->type) {
    case TOML_STRING:
        want = f->check(v->text);
        if (want)
            return wrong(t, v->line, f->key, e, "%s: '%.80s' is not %s", f->key, v->text, want);
        *(char **)field_at(t, f) = TAKE(v->text);
        return 0;
    case TOML_INTEGER:
        if (v->number < f->min || v->number > f->max)
            return wrong(t, v->line, f->key, e, "%s must be from %u to %u", f->key, f->min, f->max);
        *(uint32_t *)field_at(t, f) = (uint32_t)v->number;
        return 0;
    case TOML_BOOLEAN:
        *(bool *)field_at(t, f) = v->number != 0;
        return 0;
    case TOML_LIST:
        return take_list(t, f, v, e);
    }
    return 0;
}

static int take_default(struct template *t, const struct field *f, struct err *e)
{
    uint64_t n = 0;

    if (!f->otherwise)
        return wrong(t, 1, f->key, e, "the field '%s' is missing", f->key);
    switch (f->type) {
    case TOML_STRING:
        *(char **)field_at(t, f) = strdup(f->otherwise);
        return *(char **)field_at(t, f) ? 0 : err_oom(e);
    case TOML_INTEGER:
        (void)str_parse_u64(f->otherwise, 0, UINT32_MAX, &n, NULL);
        *(uint32_t *)field_at(t, f) = (uint32_t)n;
        return 0;
    case TOML_BOOLEAN:
        return 0;
    case TOML_LIST:
        *(char ***)field_at(t, f) = calloc(1, sizeof(char *));
        return *(char ***)field_at(t, f) ? 0 : err_oom(e);
    }
    return 0;
}

static int take_fields(struct template *t, struct toml *doc, struct err *e)
{
    bool seen[N_ELEMENTS(template_fields)] = {false};
    int r = 0;

    /* An empty table shows up in no field. */
    for (size_t i = 0; i < doc->n_tables; i++)
        if (strcmp(doc->tables[i].key, "bellhop") != 0)
            return wrong(t, doc->tables[i].line, doc->tables[i].key, e,
                         "there is no table '%s', only 'bellhop'", doc->tables[i].key);
    for (size_t i = 0; r == 0 && i < doc->n; i++) {
        struct toml_value *v = &doc->values[i];
        size_t k = 0;

        while (k < N_ELEMENTS(template_fields) && strcmp(template_fields[k].key, v->key) != 0)
            k++;
        if (k == N_ELEMENTS(template_fields))
            return wrong(t, v->line, v->key, e, "there is no field '%s'", v->key);
        seen[k] = true;
        r = take_field(t, &template_fields[k], v, e);
    }
    for (size_t k = 0; r == 0 && k < N_ELEMENTS(template_fields); k++)
        if (!seen[k])
            r = take_default(t, &template_fields[k], e);
    return r;
}

/* The line of a field, for errors that are found once everything is read. */
static unsigned line_of(const struct toml *doc, const char *key)
{
    for (size_t i = 0; i < doc->n; i++)
        if (strcmp(doc->values[i].key, key) == 0)
            return doc->values[i].line;
    return 1;
}

/* ---- what it stands on ---- */

static int load_at(const struct bh_ctx *ctx, const char *path, unsigned depth,
                   struct template **ret, struct err *e);

static int our_path(const struct bh_ctx *ctx, const char *name, char **ret, struct err *e)
{
    return asprintf(ret, "%s/templates/%s/e2b.toml", ctx->template_dir, name) < 0 ? err_oom(e) : 0;
}

static int load_ours(const struct bh_ctx *ctx, const char *name, unsigned depth,
                     struct template **ret, struct err *e)
{
    _cleanup_free_ char *path = NULL;
    int r = our_path(ctx, name, &path, e);

    return r < 0 ? r : load_at(ctx, path, depth, ret, e);
}

static bool is_ours(const struct bh_ctx *ctx, const char *name)
{
    _cleanup_free_ char *path = NULL;

    return our_path(ctx, name, &path, NULL) == 0 && access(path, F_OK) == 0;
}

static int load_from(const struct bh_ctx *ctx, struct template *t, const struct toml *doc,
                     unsigned depth, struct err *e)
{
    unsigned line = line_of(doc, "bellhop.from");
    _cleanup_free_ char *dir = NULL;
    _cleanup_free_ char *path = NULL;

    if (!*t->from_name)
        return 0;
    if (depth == TEMPLATE_MAX_DEPTH)
        return wrong(t, line, "bellhop.from", e, "more than %d templates are based on each other",
                     TEMPLATE_MAX_DEPTH);
    if (!template_is_path(t->from_name)) {
        if (word_name(t->from_name) || !is_ours(ctx, t->from_name))
            return wrong(t, line, "bellhop.from", e, "bellhop.from: there is no template '%.80s'",
                         t->from_name);
        return load_ours(ctx, t->from_name, depth + 1, &t->from, e);
    }
    dir = path_dir(t->path);
    path = dir ? path_join(dir, t->from_name) : NULL;
    if (!path)
        return err_oom(e);
    if (access(path, F_OK) < 0)
        return wrong(t, line, "bellhop.from", e, "bellhop.from: there is no '%.200s'", path);
    return load_at(ctx, path, depth + 1, &t->from, e);
}

static int add_all(char ***to, char *const *from, struct err *e)
{
    int r = 0;

    for (; r == 0 && *from; from++) {
        size_t i = 0;

        while ((*to)[i] && strcmp((*to)[i], *from) != 0)
            i++;
        if (!(*to)[i])
            r = strv_push(to, *from, e);
    }
    return r;
}

/* A flavour adds its own lists, but not those of the template that it is based on. */
static int add_flavour(const struct bh_ctx *ctx, struct template *t, const char *name,
                       unsigned line, unsigned depth, struct err *e)
{
    _cleanup_template_ struct template *flavour = NULL;
    int r;

    if (!is_ours(ctx, name))
        return wrong(t, line, "bellhop.flavours", e, "bellhop.flavours: there is no template '%s'",
                     name);
    r = load_ours(ctx, name, depth + 1, &flavour, e);
    if (r == 0)
        r = add_all(&t->packages, flavour->packages, e);
    if (r == 0)
        r = add_all(&t->npm, flavour->npm, e);
    if (r == 0)
        r = add_all(&t->pip, flavour->pip, e);
    if (r == 0)
        r = add_all(&t->agents, flavour->agents, e);
    if (r == 0)
        r = add_all(&t->env, flavour->env, e);
    if (r == 0)
        t->node |= flavour->node;
    return r;
}

static bool has_package(const struct template *t, const char *package)
{
    for (; t; t = t->from)
        for (char *const *p = t->packages; *p; p++)
            if (strcmp(*p, package) == 0)
                return true;
    return false;
}

static bool has_node(const struct template *t)
{
    return t && (t->node || has_node(t->from));
}

static int check_agents(const struct bh_ctx *ctx, const struct template *t, const struct toml *doc,
                        struct err *e)
{
    unsigned line = line_of(doc, "bellhop.agents");

    for (char *const *p = t->agents; *p; p++) {
        struct recipe recipe = {0};
        struct err why = {0};
        bool is_npm;
        int r = recipe_load(ctx->recipe_dir, *p, &recipe, &why);

        if (r < 0)
            return wrong(t, line, "bellhop.agents", e, "bellhop.agents: %.200s", why.message);
        is_npm = recipe.npm_lock != NULL;
        recipe_done(&recipe);
        if (is_npm && !has_node(t))
            return wrong(t, line, "bellhop.agents", e, "bellhop.agents: '%s' needs node = true",
                         *p);
    }
    return 0;
}

/* Checks the fields against each other. */
static int check_whole(const struct bh_ctx *ctx, struct template *t, const struct toml *doc,
                       struct err *e)
{
    const struct template *from = t->from;

    if (*t->npm && !has_node(t))
        return wrong(t, line_of(doc, "bellhop.npm"), "bellhop.npm", e,
                     "bellhop.npm needs node = true");
    if (*t->pip && !has_package(t, "python3-pip"))
        return wrong(t, line_of(doc, "bellhop.pip"), "bellhop.pip", e,
                     "bellhop.pip needs the package python3-pip");
    if (from && strcmp(from->suite, t->suite) != 0)
        return wrong(t, line_of(doc, "bellhop.suite"), "bellhop.suite", e,
                     "bellhop.suite is '%s', but '%s' is made of '%s'", t->suite, from->name,
                     from->suite);
    return check_agents(ctx, t, doc, e);
}

/* The user defaults to that of the template below. Its workdir is inherited only with the same
 * user: it is that user's home. */
static int settle_user(struct template *t, struct err *e)
{
    const struct template *from = t->from;
    bool is_same = from && (!*t->user || strcmp(t->user, from->user) == 0);
    char *made = NULL;

    if (!*t->user) {
        made = strdup(from ? from->user : TEMPLATE_USER);
        if (!made)
            return err_oom(e);
        free(t->user);
        t->user = made;
    }
    if (*t->workdir)
        return 0;
    if (asprintf(&made, "%s%s", is_same ? "" : "/home/", is_same ? from->workdir : t->user) < 0)
        return err_oom(e);
    free(t->workdir);
    t->workdir = made;
    return 0;
}

/* ---- loading ---- */

static int template_fill(const struct bh_ctx *ctx, struct template *t, struct toml *doc,
                         unsigned depth, struct err *e)
{
    int r = take_fields(t, doc, e);

    if (r == 0)
        r = load_from(ctx, t, doc, depth, e);
    if (r == 0)
        r = settle_user(t, e);
    for (char *const *p = t->flavours; r == 0 && p && *p; p++)
        r = depth == TEMPLATE_MAX_DEPTH
                ? wrong(t, line_of(doc, "bellhop.flavours"), "bellhop.flavours", e,
                        "more than %d templates are based on each other", TEMPLATE_MAX_DEPTH)
                : add_flavour(ctx, t, *p, line_of(doc, "bellhop.flavours"), depth, e);
    return r < 0 ? r : check_whole(ctx, t, doc, e);
}

static int find_file(const char *path, char **ret, struct err *e)
{
    struct stat st;

    if (stat(path, &st) < 0)
        return err_at(e, err_sys(e, errno, "template '%.300s'", path), "image");
    *ret = S_ISDIR(st.st_mode) ? path_join(path, "e2b.toml") : strdup(path);
    return *ret ? 0 : err_oom(e);
}

static int load_at(const struct bh_ctx *ctx, const char *path, unsigned depth,
                   struct template **ret, struct err *e)
{
    _cleanup_template_ struct template *t = calloc(1, sizeof(*t));
    _cleanup_free_ char *text = NULL;
    struct toml doc = {0};
    size_t len;
    int r;

    if (!t)
        return err_oom(e);
    r = find_file(path, &t->path, e);
    if (r == 0)
        r = io_read_file(AT_FDCWD, t->path, TOML_MAX_BYTES + 1, &text, &len, e);
    if (r < 0)
        return err_at(e, r, "image");
    r = toml_parse(t->path, text, len, &doc, e);
    if (r == 0)
        r = template_fill(ctx, t, &doc, depth, e);
    toml_done(&doc);
    if (r == 0)
        *ret = TAKE(t);
    return r;
}

int template_load(const struct bh_ctx *ctx, const char *path, struct template **ret, struct err *e)
{
    return load_at(ctx, path, 0, ret, e);
}

struct template *template_free(struct template *t)
{
    if (!t)
        return NULL;
    for (size_t i = 0; i < N_ELEMENTS(template_fields); i++) {
        if (template_fields[i].type == TOML_STRING)
            free(*(char **)field_at(t, &template_fields[i]));
        else if (template_fields[i].type == TOML_LIST)
            (void)strv_free(*(char ***)field_at(t, &template_fields[i]));
    }
    (void)template_free(t->from);
    free(t->path);
    free(t);
    return NULL;
}

/* ---- finding ---- */

bool template_is_path(const char *ref)
{
    return strchr(ref, '/') || str_has_suffix(ref, ".toml") || strcmp(ref, ".") == 0 ||
           strcmp(ref, "..") == 0;
}

static int check_version(const struct template *t, const char *want, struct err *e)
{
    if (!want || strcmp(want, t->version) == 0)
        return 0;
    return err_field(e, ERR_NOT_FOUND, "image", "the template '%s' is version '%s', not '%.60s'",
                     t->name, t->version, want);
}

int template_find(const struct bh_ctx *ctx, const char *ref, struct template **ret, struct err *e)
{
    _cleanup_template_ struct template *t = NULL;
    _cleanup_free_ char *name = NULL;
    const char *version;
    int r;

    if (template_is_path(ref))
        return template_load(ctx, ref, ret, e);
    version = strchr(ref, ':');
    name = strndup(ref, version ? (size_t)(version - ref) : strlen(ref));
    if (!name)
        return err_oom(e);
    if (word_name(name) || (version && word_version(version + 1)))
        return err_field(e, ERR_INVALID, "image", "image: '%.80s' is not NAME or NAME:VERSION",
                         ref);
    if (is_ours(ctx, name))
        r = load_ours(ctx, name, 0, &t, e);
    else if (access("e2b.toml", F_OK) == 0)
        r = template_load(ctx, "e2b.toml", &t, e);
    else
        r = 0;
    if (r < 0)
        return r;
    if (!t || strcmp(t->name, name) != 0)
        return err_field(e, ERR_NOT_FOUND, "image",
                         "there is no image and no template '%.80s' ('bellhop image ls')", ref);
    r = check_version(t, version ? version + 1 : NULL, e);
    if (r == 0)
        *ret = TAKE(t);
    return r;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

int template_names(const struct bh_ctx *ctx, char ***ret, struct err *e)
{
    _cleanup_strv_ char **names = calloc(1, sizeof(char *));
    _cleanup_free_ char *path = path_join(ctx->template_dir, "templates");
    _cleanup_closedir_ DIR *dir = NULL;
    struct dirent *entry;
    int r = 0;

    if (!names || !path)
        return err_oom(e);
    dir = opendir(path);
    while (r == 0 && dir && (entry = readdir(dir)))
        if (!word_name(entry->d_name) && is_ours(ctx, entry->d_name))
            r = strv_push(&names, entry->d_name, e);
    if (r < 0)
        return r;
    qsort(names, strv_len(names), sizeof(*names), by_name);
    *ret = TAKE(names);
    return 0;
}

/* ---- writing ---- */

static int write_one(const char *dir, const char *name, const char *text, struct err *e)
{
    _cleanup_free_ char *path = path_join(dir, name);

    return path ? io_write_file(AT_FDCWD, path, text, strlen(text), 0644, false, e) : err_oom(e);
}

static int write_field_list(const char *dir, const char *name, char *const *list, struct err *e)
{
    struct buf text;
    int r = 0;

    buf_init(&text, TOML_MAX_BYTES * 2);
    for (; r == 0 && *list; list++)
        r = buf_addf(&text, e, "%s\n", *list);
    if (r == 0)
        r = buf_add(&text, "", 1, e);
    if (r == 0)
        r = write_one(dir, name, text.data, e);
    buf_done(&text);
    return r;
}

static int write_field(const struct template *t, const struct field *f, const char *dir,
                       struct err *e)
{
    const char *dot = strchr(f->key, '.');
    const char *name = strcmp(f->key, "template_name") == 0 ? "name" : dot ? dot + 1 : f->key;
    void *value = field_at((struct template *)t, f);
    char text[32];

    switch (f->type) {
    case TOML_STRING: {
        _cleanup_free_ char *line = NULL;
        const char *word = *(char **)value;

        if (asprintf(&line, "%s%s", word, *word ? "\n" : "") < 0)
            return err_oom(e);
        return write_one(dir, strcmp(name, "from") == 0 ? "from_name" : name, line, e);
    }
    case TOML_LIST:
        return write_field_list(dir, name, *(char ***)value, e);
    case TOML_INTEGER:
    case TOML_BOOLEAN:
        if (f->type == TOML_INTEGER)
            (void)snprintf(text, sizeof(text), "%u\n", *(uint32_t *)value);
        else
            (void)snprintf(text, sizeof(text), "%s\n", *(bool *)value ? "true" : "false");
        return write_one(dir, name, text, e);
    }
    return 0;
}

int template_write(const struct template *t, const char *dir, struct err *e)
{
    _cleanup_free_ char *from = path_join(dir, "from");
    int r = from ? io_mkdir_p(dir, 0755, e) : err_oom(e);

    for (size_t i = 0; r == 0 && i < N_ELEMENTS(template_fields); i++)
        r = write_field(t, &template_fields[i], dir, e);
    if (r == 0 && t->from)
        r = template_write(t->from, from, e);
    return r;
}
