#include "search/ignore.h"

#include <ctype.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "common/cleanup.h"
#include "common/str.h"
#include "search/pattern.h"

struct rule {
    struct pattern *pattern;
    bool keep;     /* written with a '!' */
    bool dir_only; /* written with a '/' at the end */
};

/* One bucket per last byte of a match, and one for rules without such a byte. */
#define N_BUCKETS 257
#define INDEX_FROM_RULES 8 /* fewer rules are tried one by one */

struct rules {
    struct rule *list;
    size_t n;
    size_t n_plain; /* without a '!' */

    /* Rule numbers by the last byte of their matches; within a bucket the last rule is first. Bucket b is
     * order[start[b]..start[b + 1]). NULL: no index. */
    uint16_t *order;
    uint16_t start[N_BUCKETS + 1];
};

struct rules *rules_free(struct rules *r)
{
    if (r) {
        for (size_t i = 0; i < r->n; i++)
            pattern_free(r->list[i].pattern);
        free(r->order);
        free(r->list);
        free(r);
    }
    return NULL;
}

static int rules_grow(struct rules *r, struct err *e)
{
    size_t cap = r->n ? r->n * 2 : 8;
    struct rule *list;

    if (r->n >= IGNORE_MAX_RULES)
        return err_set(e, ERR_EXHAUSTED, "more than %d rules", IGNORE_MAX_RULES);
    if (r->n & (r->n - 1) || (r->n && r->n < 8))
        return 0; /* there is room up to the next power of two */
    list = realloc(r->list, cap * sizeof(*list));
    if (!list)
        return err_oom(e);
    r->list = list;
    return 0;
}

static size_t trim_end(const char *line, size_t len)
{
    if (len >= 2 && line[len - 1] == ' ' && line[len - 2] == '\\')
        return len;
    while (len && isspace((unsigned char)line[len - 1]))
        len--;
    return len;
}

static bool starts_with(const char *s, size_t len, const char *prefix)
{
    size_t n = strlen(prefix);

    return len >= n && memcmp(s, prefix, n) == 0;
}

/*
 * Compiles the glob of a line: without a slash it matches in any directory below, and a final "**" matches
 * the content of a directory but not the directory itself.
 */
static int compile_line(const char *s, size_t len, bool anchored, bool caseless,
                        struct pattern **ret, struct err *e)
{
    char glob[PATTERN_MAX_BYTES];
    bool anywhere = !anchored && !memchr(s, '/', len) && !(len == 2 && memcmp(s, "**", 2) == 0);
    int n;

    if (len > PATTERN_MAX_BYTES - 6)
        return err_set(e, ERR_INVALID, "a glob of more than %d bytes", PATTERN_MAX_BYTES - 6);
    n = snprintf(glob, sizeof(glob), "%s%.*s", anywhere ? "**/" : "", (int)len, s);
    if (n >= 3 && memcmp(glob + n - 3, "/**", 3) == 0) {
        memcpy(glob + n, "/*", 3);
        n += 2;
    }
    return pattern_new(glob, (size_t)n, caseless, ret, e);
}

static int add_line(struct rules *r, const char *s, size_t len, bool caseless, struct err *e)
{
    struct rule rule = {0};
    bool anchored = false;
    int ret;

    len = trim_end(s, len);
    if (!len || s[0] == '#')
        return 0;
    ret = rules_grow(r, e);
    if (ret < 0)
        return ret;
    if (starts_with(s, len, "\\!") || starts_with(s, len, "\\#")) {
        s++;
        len--;
    } else {
        rule.keep = s[0] == '!';
        s += rule.keep;
        len -= rule.keep;
        anchored = len && s[0] == '/';
        s += anchored;
        len -= anchored;
    }
    rule.dir_only = len && s[len - 1] == '/';
    len -= rule.dir_only;
    ret = compile_line(s, len, anchored, caseless, &rule.pattern, e);
    if (ret < 0)
        return ret;
    r->n_plain += !rule.keep;
    r->list[r->n++] = rule;
    return 0;
}

static size_t bucket_of(const struct rule *rule)
{
    int byte = pattern_last_byte(rule->pattern);

    return byte < 0 ? N_BUCKETS - 1 : (size_t)byte;
}

/* The index is optional: without memory for it, matching is slower. */
static void make_index(struct rules *r)
{
    uint16_t at[N_BUCKETS];

    free(r->order);
    r->order = r->n < INDEX_FROM_RULES ? NULL : malloc(r->n * sizeof(*r->order));
    if (!r->order)
        return;
    memset(r->start, 0, sizeof(r->start));
    for (size_t i = 0; i < r->n; i++)
        r->start[bucket_of(&r->list[i]) + 1]++;
    for (size_t b = 0; b < N_BUCKETS; b++)
        r->start[b + 1] = (uint16_t)(r->start[b + 1] + r->start[b]);
    memcpy(at, r->start, sizeof(at));
    for (size_t i = r->n; i-- > 0;)
        r->order[at[bucket_of(&r->list[i])]++] = (uint16_t)i;
}

int rules_parse(const char *text, size_t len, struct rules **ret, struct err *e)
{
    struct rules *r = calloc(1, sizeof(*r));
    const char *end = text + len;

    if (!r)
        return err_oom(e);
    if (starts_with(text, len, "\xef\xbb\xbf"))
        text += 3;
    while (text < end) {
        const char *eol = memchr(text, '\n', (size_t)(end - text));
        size_t n = (size_t)((eol ? eol : end) - text);
        int res = memchr(text, '\0', n) ? 0 : add_line(r, text, n, false, e);

        if (res < 0 && res != -ERR_INVALID) {
            rules_free(r);
            return res;
        }
        text += n + 1;
    }
    make_index(r);
    *ret = r;
    return 0;
}

static int add_glob(struct rules *r, const char *glob, enum rules_kind kind, struct err *e)
{
    char line[PATTERN_MAX_BYTES];
    size_t len = strlen(glob);

    if (kind != RULES_EXCLUDES)
        return add_line(r, glob, len, kind == RULES_IGLOBS, e);
    if (len >= sizeof(line))
        return err_set(e, ERR_INVALID, "a glob of more than %d bytes", PATTERN_MAX_BYTES - 6);
    line[0] = '!';
    memcpy(line + 1, glob, len);
    return add_line(r, line, len + 1, false, e);
}

int rules_add_globs(struct rules **r, char *const *globs, enum rules_kind kind, const char *field,
                    struct err *e)
{
    if (!globs || !globs[0])
        return 0;
    if (!*r && !(*r = calloc(1, sizeof(**r))))
        return err_oom(e);
    for (size_t i = 0; globs[i]; i++) {
        int res = add_glob(*r, globs[i], kind, e);

        if (res < 0) {
            char numbered[64];

            (void)snprintf(numbered, sizeof(numbered), "%s[%zu]", field, i);
            return err_at(e, res, numbered);
        }
    }
    make_index(*r);
    return 0;
}

static bool rule_matches(const struct rule *rule, const char *path, size_t len, bool is_dir)
{
    return (is_dir || !rule->dir_only) && pattern_match(rule->pattern, path, len);
}

/* The last rule that matches, or -1. */
static int last_match(const struct rules *r, const char *path, size_t len, bool is_dir)
{
    for (size_t i = r->n; i-- > 0;)
        if (rule_matches(&r->list[i], path, len, is_dir))
            return (int)i;
    return -1;
}

/* The same within one bucket; -1 also if no rule after `than` matches. */
static int last_in_bucket(const struct rules *r, size_t bucket, int than, const char *path,
                          size_t len, bool is_dir)
{
    for (size_t k = r->start[bucket]; k < r->start[bucket + 1] && r->order[k] > than; k++)
        if (rule_matches(&r->list[r->order[k]], path, len, is_dir))
            return r->order[k];
    return -1;
}

enum ignore_verdict rules_match(const struct rules *r, const char *path, size_t len, bool is_dir)
{
    int found, more;

    if (!r || !r->n || !len)
        return IGNORE_NONE;
    if (!r->order) {
        found = last_match(r, path, len, is_dir);
    } else {
        found = last_in_bucket(r, N_BUCKETS - 1, -1, path, len, is_dir);
        more = last_in_bucket(r, (unsigned char)path[len - 1], found, path, len, is_dir);
        found = more > found ? more : found;
    }
    if (found < 0)
        return IGNORE_NONE;
    return r->list[found].keep ? IGNORE_KEEP : IGNORE_HIDE;
}

enum ignore_verdict rules_match_globs(const struct rules *r, const char *path, size_t len,
                                      bool is_dir)
{
    switch (rules_match(r, path, len, is_dir)) {
    case IGNORE_HIDE:
        return IGNORE_KEEP;
    case IGNORE_KEEP:
        return IGNORE_HIDE;
    case IGNORE_NONE:
    default:
        return r && r->n_plain && !is_dir ? IGNORE_HIDE : IGNORE_NONE;
    }
}

struct ignore {
    struct ignore *up; /* a reference */
    struct ignore_dir dir;
    bool in_git; /* this directory or one above it has a .git */
    int refs;    /* atomic */
};

static void dir_done(struct ignore_dir *d)
{
    for (size_t i = 0; i < IGNORE_N_FILES; i++)
        d->files[i] = rules_free(d->files[i]);
}

int ignore_new_take(struct ignore *up, struct ignore_dir *d, struct ignore **ret, struct err *e)
{
    struct ignore *ig = calloc(1, sizeof(*ig));

    if (!ig) {
        dir_done(d);
        return err_oom(e);
    }
    ig->up = ignore_ref(up);
    ig->dir = *d;
    ig->in_git = d->has_git || (up && up->in_git);
    ig->refs = 1;
    *d = (struct ignore_dir){0};
    *ret = ig;
    return 0;
}

struct ignore *ignore_ref(struct ignore *ig)
{
    if (ig)
        (void)__atomic_add_fetch(&ig->refs, 1, __ATOMIC_RELAXED);
    return ig;
}

struct ignore *ignore_unref(struct ignore *ig)
{
    while (ig && __atomic_sub_fetch(&ig->refs, 1, __ATOMIC_ACQ_REL) == 0) {
        struct ignore *up = ig->up;

        dir_done(&ig->dir);
        free(ig);
        ig = up;
    }
    return NULL;
}

/*
 * A kind of file takes precedence over the next kind, wherever it is; within a kind the nearest directory
 * wins. git's own files apply only within their repository.
 */
enum ignore_verdict ignore_match(const struct ignore *ig, const struct rules *global,
                                 size_t global_skip, const char *path, size_t len, bool is_dir)
{
    enum ignore_verdict v[IGNORE_N_FILES] = {IGNORE_NONE};
    bool in_git = ig && ig->in_git;
    bool left_repo = false;

    for (const struct ignore *at = ig; at; at = at->up) {
        for (size_t i = 0; i < IGNORE_N_FILES; i++) {
            bool applies = i < IGNORE_FILE_GIT || (in_git && !left_repo);

            if (v[i] == IGNORE_NONE && at->dir.files[i] && applies)
                v[i] =
                    rules_match(at->dir.files[i], path + at->dir.skip, len - at->dir.skip, is_dir);
        }
        left_repo = left_repo || at->dir.has_git;
    }
    for (size_t i = 0; i < IGNORE_N_FILES; i++)
        if (v[i] != IGNORE_NONE)
            return v[i];
    return in_git ? rules_match(global, path + global_skip, len - global_skip, is_dir)
                  : IGNORE_NONE;
}

/* The value of an "excludesfile = value" line, or NULL. */
static const char *excludes_value(const char *line, size_t len, size_t *ret_len)
{
    static const char key[] = "excludesfile";
    const char *end = line + len;

    while (line < end && isspace((unsigned char)*line))
        line++;
    if ((size_t)(end - line) < sizeof(key) || strncasecmp(line, key, sizeof(key) - 1) != 0)
        return NULL;
    line += sizeof(key) - 1;
    while (line < end && isspace((unsigned char)*line))
        line++;
    if (line == end || *line++ != '=')
        return NULL;
    while (line < end && (isspace((unsigned char)*line) || *line == '"'))
        line++;
    while (end > line && (isspace((unsigned char)end[-1]) || end[-1] == '"'))
        end--;
    *ret_len = (size_t)(end - line);
    return *ret_len ? line : NULL;
}

char *ignore_excludes_file(const char *config, const char *home)
{
    while (*config) {
        size_t n = strcspn(config, "\n"), len = 0;
        const char *value = excludes_value(config, n, &len);
        char *path;

        if (value) {
            bool tilde = *value == '~' && home;

            if (asprintf(&path, "%s%.*s", tilde ? home : "", (int)(len - tilde), value + tilde) < 0)
                return NULL;
            return path;
        }
        config += n + (config[n] == '\n');
    }
    return NULL;
}
