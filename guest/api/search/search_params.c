#include "api/search/search_params.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/b64.h"
#include "common/cleanup.h"
#include "common/clock.h"
#include "common/jsonx.h"
#include "common/str.h"

#define UNSET UINT32_MAX
#define CURSOR_MAX_BYTES (16 * 1024)

/* --- one field --- */

static int one_of(json_t *v, const char *const *names, unsigned *out, struct err *e)
{
    const char *s = json_string_value(v);
    char list[192] = "";
    size_t n = 0;

    for (unsigned i = 0; names[i]; i++) {
        if (s && strcmp(s, names[i]) == 0) {
            *out = i;
            return 0;
        }
        n += (size_t)snprintf(list + n, sizeof(list) - n, "%s\"%s\"", i ? ", " : "", names[i]);
    }
    return err_set(e, ERR_INVALID, "must be one of %s", list);
}

static int decode_case(json_t *v, void *out, struct err *e)
{
    static const char *const names[] = {"sensitive", "insensitive", "smart", NULL};

    return one_of(v, names, out, e);
}

static int decode_mode(json_t *v, void *out, struct err *e)
{
    static const char *const names[] = {
        "lines", "files", "count", "count_matches", "files_without_match", NULL};

    return one_of(v, names, out, e);
}

static int decode_binary(json_t *v, void *out, struct err *e)
{
    static const char *const names[] = {"skip", "report", "text", NULL};

    return one_of(v, names, out, e);
}

static int decode_encoding(json_t *v, void *out, struct err *e)
{
    static const char *const names[] = {"auto", "none", "utf-16le", "utf-16be", "latin1", NULL};

    return one_of(v, names, out, e);
}

static int decode_kind(json_t *v, void *out, struct err *e)
{
    static const char *const names[] = {"glob", "regex", "fixed", NULL};

    return one_of(v, names, out, e);
}

static int decode_sort(json_t *v, void *out, struct err *e)
{
    static const char *const names[] = {"none",    "path", "modified", "accessed",
                                        "changed", "size", NULL};

    return one_of(v, names, out, e);
}

static const char *const type_names[] = {"file",       "directory", "symlink", "other",
                                         "executable", "empty",     NULL};

const char *search_type_name(enum tree_type type)
{
    return type_names[type];
}

static int add_type(json_t *v, unsigned *found, struct err *e)
{
    unsigned type;
    int r = one_of(v, type_names, &type, e);

    if (r == 0)
        *found |= 1u << type;
    return r;
}

/* One name or a list of them. */
static int decode_type(json_t *v, void *out, struct err *e)
{
    json_t *one;
    size_t i;

    if (!json_is_array(v))
        return add_type(v, out, e);
    json_array_foreach (v, i, one) {
        int r = add_type(one, out, e);

        if (r < 0)
            return r;
    }
    return 0;
}

static int decode_context(json_t *v, void *out, struct err *e)
{
    uint32_t n;
    int r = jx_u32(v, &n, e);

    if (r == 0 && n > GREP_MAX_CONTEXT)
        r = err_set(e, ERR_INVALID, "must be at most %d", GREP_MAX_CONTEXT);
    if (r == 0)
        *(uint32_t *)out = n;
    return r;
}

static int decode_columns(json_t *v, void *out, struct err *e)
{
    uint32_t n;
    int r = jx_u32(v, &n, e);

    if (r == 0 && (n < 1 || n > GREP_TEXT_MAX_BYTES))
        r = err_set(e, ERR_INVALID, "must be from 1 to %d", GREP_TEXT_MAX_BYTES);
    if (r == 0)
        *(uint32_t *)out = n;
    return r;
}

#define FIELD(name, fn) JX(struct search_params, name, fn, JX_NULLABLE)
#define FIELD_AS(wire, name, fn) JX_AS(wire, struct search_params, name, fn, JX_NULLABLE)

#define COMMON_FIELDS \
    FIELD(pattern, jx_str), FIELD(path, jx_path), FIELD(user, jx_str), FIELD(globs, jx_strv), \
        FIELD(iglobs, jx_strv), FIELD(exclude, jx_strv), FIELD(types, jx_strv), \
        FIELD(type_not, jx_strv), FIELD(type_add, jx_strv), FIELD(hidden, jx_bool), \
        FIELD(no_ignore, jx_bool), FIELD(no_ignore_vcs, jx_bool), \
        FIELD(no_ignore_parent, jx_bool), FIELD(follow, jx_bool), FIELD(one_file_system, jx_bool), \
        FIELD(max_depth, jx_u32), FIELD(max_filesize, jx_u64), FIELD(sort, decode_sort), \
        FIELD(reverse, jx_bool), FIELD(cursor, jx_str), FIELD_AS("case", letters, decode_case)

static const struct jx_field glob_fields[] = {
    COMMON_FIELDS,
    FIELD(kind, decode_kind),
    FIELD_AS("type", found, decode_type),
    FIELD(full_path, jx_bool),
    FIELD(extensions, jx_strv),
    FIELD(min_depth, jx_u32),
    FIELD(min_size, jx_u64),
    FIELD(max_size, jx_u64),
    FIELD(changed_after_ms, jx_i64),
    FIELD(changed_before_ms, jx_i64),
    FIELD(changed_within_ms, jx_i64),
    FIELD(limit, jx_u64),
    {0},
};

static const struct jx_field grep_fields[] = {
    COMMON_FIELDS,
    FIELD(patterns, jx_strv),
    FIELD(context, decode_context),
    FIELD(before, decode_context),
    FIELD_AS("after", after_lines, decode_context),
    FIELD_AS("max_count", limit, jx_u64),
    FIELD(max_per_file, jx_u64),
    FIELD(mode, decode_mode),
    FIELD(binary, decode_binary),
    FIELD(encoding, decode_encoding),
    FIELD(fixed, jx_bool),
    FIELD(word, jx_bool),
    FIELD(line, jx_bool),
    FIELD(invert, jx_bool),
    FIELD(multiline, jx_bool),
    FIELD(dotall, jx_bool),
    FIELD(crlf, jx_bool),
    FIELD(only_matching, jx_bool),
    FIELD(replace, jx_str),
    FIELD(max_columns, decode_columns),
    {0},
};

/* --- cursors: "1:fingerprint:key:skip:path", in base64 --- */

static uint64_t hash_text(const char *s, size_t len)
{
    uint64_t h = 0xcbf29ce484222325u; /* FNV-1a: only to tell requests apart by accident */

    for (size_t i = 0; i < len; i++)
        h = (h ^ (unsigned char)s[i]) * 0x100000001b3u;
    return h;
}

/* What a cursor must agree on with the request it is used in: all but where and how much. */
static int set_fingerprint(struct search_params *p, struct err *e)
{
    _cleanup_json_ json_t *copy = json_copy(p->source);
    _cleanup_free_ char *text = NULL;

    if (copy) {
        (void)json_object_del(copy, "cursor");
        (void)json_object_del(copy, "limit");
        (void)json_object_del(copy, "max_count");
        text = json_dumps(copy, JSON_COMPACT | JSON_SORT_KEYS);
    }
    if (!text)
        return err_oom(e);
    p->fingerprint = hash_text(text, strlen(text));
    return 0;
}

int search_cursor_new(const struct search_params *p, const struct order_place *last, uint64_t skip,
                      char **ret, struct err *e)
{
    _cleanup_buf_ struct buf plain = {.max = CURSOR_MAX_BYTES};
    char *text;
    int r = buf_addf(&plain, e, "1:%" PRIx64 ":%" PRId64 ":%" PRIu64 ":%s", p->fingerprint,
                     last->key, skip, last->below);

    if (r < 0)
        return r;
    text = calloc(1, B64_LEN(plain.len) + 1);
    if (!text)
        return err_oom(e);
    b64_encode(plain.data, plain.len, text);
    *ret = text;
    return 0;
}

static int bad_cursor(struct err *e)
{
    return err_field(e, ERR_INVALID, "cursor", "no cursor of this search");
}

static int read_cursor(struct search_params *p, struct err *e)
{
    size_t len = strlen(p->cursor), n;
    _cleanup_free_ char *plain = malloc(len / 4 * 3 + 1);
    uint64_t fingerprint;
    int path_at = 0;

    if (!plain)
        return err_oom(e);
    if (len > B64_LEN(CURSOR_MAX_BYTES) || b64_decode(p->cursor, len, plain, &n, NULL) < 0)
        return bad_cursor(e);
    plain[n] = '\0';
    if (strlen(plain) != n ||
        sscanf(plain, "1:%" SCNx64 ":%" SCNd64 ":%" SCNu64 ":%n", &fingerprint, &p->after.key,
               &p->skip, &path_at) != 3 ||
        !path_at || fingerprint != p->fingerprint)
        return bad_cursor(e);
    p->after.below = strdup(plain + path_at);
    return p->after.below ? 0 : err_oom(e);
}

static int check_cursor(struct search_params *p, struct err *e)
{
    int r;

    if (p->sort == ORDER_NONE)
        return p->cursor ? err_field(e, ERR_INVALID, "cursor", "field 'cursor' is for 'sort'") : 0;
    r = set_fingerprint(p, e);
    return r < 0 || !p->cursor ? r : read_cursor(p, e);
}

/* --- the whole --- */

static int check_together(struct search_params *p, struct err *e)
{
    if (p->dotall && !p->multiline)
        return err_field(e, ERR_INVALID, "dotall", "field 'dotall' is for 'multiline'");
    if (p->reverse && p->sort == ORDER_NONE)
        return err_field(e, ERR_INVALID, "reverse", "field 'reverse' is for 'sort'");
    if (!p->is_glob && !p->pattern && !strv_len(p->patterns))
        return err_field(e, ERR_INVALID, "pattern", "field 'pattern' is required");
    if ((p->replace || p->only_matching) && p->mode != GREP_LINES)
        return err_field(e, ERR_INVALID, p->replace ? "replace" : "only_matching",
                         "field '%s' is for mode \"lines\"",
                         p->replace ? "replace" : "only_matching");
    return check_cursor(p, e);
}

static void set_defaults(struct search_params *p)
{
    if (p->before == UNSET)
        p->before = p->context;
    if (p->after_lines == UNSET)
        p->after_lines = p->context;
    if (p->changed_within_ms) {
        int64_t since;

        if (__builtin_sub_overflow(clock_real_ms(), p->changed_within_ms, &since))
            since = INT64_MAX;
        if (since > p->changed_after_ms)
            p->changed_after_ms = since;
    }
}

void search_params_free(void *arg)
{
    struct search_params *p = arg;

    if (!p)
        return;
    free(p->path);
    free(p->after.below);
    strv_free(p->globs);
    strv_free(p->iglobs);
    strv_free(p->exclude);
    strv_free(p->types);
    strv_free(p->type_not);
    strv_free(p->type_add);
    strv_free(p->extensions);
    strv_free(p->patterns);
    json_decref(p->source);
    free(p);
}

int search_params_new(const struct rpc_call *call, bool is_glob, struct search_params **ret,
                      struct err *e)
{
    struct search_params *p = calloc(1, sizeof(*p));
    int r;

    if (!p)
        return err_oom(e);
    *p = (struct search_params){.source = json_incref(call->params),
                                .agent = call->agent,
                                .is_glob = is_glob,
                                .max_depth = UINT32_MAX,
                                .max_filesize = UINT64_MAX,
                                .max_size = UINT64_MAX,
                                .max_per_file = UINT64_MAX,
                                .before = UNSET,
                                .after_lines = UNSET};
    r = jx_decode(call->params, is_glob ? glob_fields : grep_fields, p, e);
    if (r == 0)
        r = check_together(p, e);
    if (r < 0) {
        search_params_free(p);
        return r;
    }
    set_defaults(p);
    *ret = p;
    return 0;
}
