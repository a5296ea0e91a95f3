/* search: grep and glob in a box. */
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/jsonx.h"
#include "lib/agent/call.h"
#include "lib/util/context.h"

struct search {
    int (*on_match)(void *arg, const struct bh_match *match);
    int (*on_path)(void *arg, const char *path, const char *type);
    void *arg;
    struct bh_search_result result;
};

/* Both methods take these. */
static void set_common_params(json_t *p, struct bh_box *box, const struct bh_search_options *o,
                              struct err *e)
{
    if (!o->keep_relative)
        params_set_path(p, box, "path", o->path ? o->path : ".", e);
    else if (o->path)
        params_set_take(p, "path", jx_new_path(o->path), e);
    params_set_text(p, "pattern", o->pattern, e);
    params_set_text(p, "user", o->user, e);
    params_set_list(p, "globs", o->globs, e);
    params_set_list(p, "iglobs", o->iglobs, e);
    params_set_list(p, "exclude", o->excludes, e);
    params_set_list(p, "type_not", o->types_not, e);
    params_set_list(p, "type_add", o->types_add, e);
    params_set_flag(p, "hidden", o->hidden, e);
    params_set_flag(p, "no_ignore", o->no_ignore, e);
    params_set_flag(p, "no_ignore_vcs", o->no_ignore_vcs, e);
    params_set_flag(p, "no_ignore_parent", o->no_ignore_parent, e);
    params_set_flag(p, "follow", o->follow, e);
    params_set_flag(p, "one_file_system", o->one_file_system, e);
    params_set_count(p, "max_depth", o->max_depth, e);
    params_set_count(p, "max_filesize", o->max_filesize, e);
    params_set_text(p, "sort", o->sort, e);
    params_set_flag(p, "reverse", o->reverse, e);
    params_set_text(p, "cursor", o->cursor, e);
    params_set_text(p, "case", o->letters, e);
}

/* An option that only the other method takes is sent too: the agent refuses it by name. */
static json_t *new_params(struct bh_box *box, const struct bh_search_options *o, bool is_glob,
                          struct err *e)
{
    json_t *p = json_object();

    set_common_params(p, box, o, e);
    if (is_glob)
        params_set_text(p, "kind", o->regex ? "regex" : o->fixed ? "fixed" : NULL, e);
    else
        params_set_flag(p, "fixed", o->fixed, e);
    params_set_list(p, is_glob ? "type" : "types", o->types, e);
    params_set_count(p, is_glob ? "limit" : "max_count", o->limit, e);

    params_set_list(p, "patterns", o->patterns, e);
    params_set_flag(p, "word", o->word, e);
    params_set_flag(p, "line", o->line, e);
    params_set_flag(p, "invert", o->invert, e);
    params_set_flag(p, "multiline", o->multiline, e);
    params_set_flag(p, "dotall", o->dotall, e);
    params_set_flag(p, "crlf", o->crlf, e);
    params_set_flag(p, "only_matching", o->only_matching, e);
    params_set_text(p, "mode", o->mode, e);
    params_set_text(p, "replace", o->replace, e);
    params_set_text(p, "encoding", o->encoding, e);
    params_set_text(p, "binary", o->binary, e);
    params_set_count(p, "context", o->context, e);
    params_set_count(p, "before", o->before, e);
    params_set_count(p, "after", o->after, e);
    params_set_count(p, "max_per_file", o->max_per_file, e);
    params_set_count(p, "max_columns", o->max_columns, e);

    params_set_list(p, "extensions", o->extensions, e);
    params_set_flag(p, "full_path", o->full_path, e);
    params_set_count(p, "min_depth", o->min_depth, e);
    params_set_count(p, "min_size", o->min_size, e);
    params_set_count(p, "max_size", o->max_size, e);
    params_set_count(p, "changed_within_ms", (uint64_t)o->changed_within_ms, e);
    params_set_count(p, "changed_after_ms", (uint64_t)o->changed_after_ms, e);
    params_set_count(p, "changed_before_ms", (uint64_t)o->changed_before_ms, e);
    return p;
}

/* {"text"} or {"b64"}, among other fields; free() it. */
static char *copy_bytes(json_t *obj, size_t *ret_len)
{
    struct jx_bytes b = {0};

    if ((!json_object_get(obj, "text") && !json_object_get(obj, "b64")) ||
        reply_bytes(obj, &b, NULL) < 0) {
        *ret_len = 0;
        return strdup("");
    }
    *ret_len = b.len;
    return b.data;
}

static int give_match(struct search *s, json_t *m, const char *path)
{
    json_t *replaced = json_object_get(m, "replaced");
    struct bh_match match = {.size = sizeof(match),
                             .path = path,
                             .line = (uint64_t)reply_count(m, "line"),
                             .column = (uint64_t)reply_count(m, "column"),
                             .offset = (uint64_t)reply_count(m, "offset"),
                             .count = (uint64_t)reply_count(m, "count")};
    _cleanup_free_ char *json = NULL;
    size_t ignored;
    _cleanup_free_ char *text = copy_bytes(m, &match.text_len);
    _cleanup_free_ char *other = replaced ? copy_bytes(replaced, &ignored) : NULL;

    if (jx_dump(m, &json, NULL, NULL) < 0 || !text || (replaced && !other))
        return 1;
    match.text = text;
    match.replaced = other;
    match.json = json;
    return s->on_match(s->arg, &match);
}

static int take_search_end(struct search *s, json_t *end)
{
    const char *cursor = json_string_value(json_object_get(end, "cursor"));

    s->result.limit_reached = json_is_true(json_object_get(end, "limit_reached"));
    s->result.incomplete = json_array_size(json_object_get(end, "incomplete")) +
                           (uint64_t)reply_count(end, "incomplete_more");
    s->result.cursor = cursor ? strdup(cursor) : NULL;
    return jx_dump(end, &s->result.json, NULL, NULL) < 0;
}

static int take_search_message(void *arg, json_t *msg)
{
    struct search *s = arg;
    json_t *match = json_object_get(msg, "match"), *file = json_object_get(msg, "file");
    json_t *item = match ? match : file;
    _cleanup_free_ char *path = NULL;

    if (json_object_get(msg, "end"))
        return take_search_end(s, json_object_get(msg, "end"));
    if (!item || jx_path(json_object_get(item, "path"), &path, NULL) < 0)
        return 0;
    s->result.found++;
    return match ? give_match(s, match, path) : s->on_path(s->arg, path, reply_text(file, "type"));
}

static int search_run(struct bh_box *box, const struct bh_search_options *opts, struct search *s,
                      struct bh_search_result *ret, struct bh_error *err)
{
    bool is_glob = s->on_path != NULL;
    _cleanup_json_ json_t *p = NULL;
    struct bh_search_options o;
    struct client *c = NULL;
    struct err e = {0};
    int r = options_copy(&o, sizeof(o), opts, &e);

    s->result.size = sizeof(s->result);
    if (r == 0) {
        p = new_params(box, &o, is_glob, &e);
        r = e.code ? -e.code : agent_begin(box, &c, &e);
    }
    if (r == 0) { /* recreated, the box may have another working directory */
        json_decref(p);
        p = new_params(box, &o, is_glob, &e);
        r = -e.code;
    }
    if (r == 0)
        r = client_stream(c, is_glob ? RPC_search_glob : RPC_search_grep, p, 0, take_search_message,
                          s, &e);
    if (r == 0 && ret) {
        *ret = s->result;
        return 0;
    }
    free(s->result.cursor);
    free(s->result.json);
    return ctx_fail(err, r, &e);
}

int bh_grep(struct bh_box *box, const struct bh_search_options *opts,
            int (*fn)(void *arg, const struct bh_match *match), void *arg,
            struct bh_search_result *ret_result, struct bh_error *err)
{
    struct search s = {.on_match = fn, .arg = arg};

    return search_run(box, opts, &s, ret_result, err);
}

int bh_glob(struct bh_box *box, const struct bh_search_options *opts,
            int (*fn)(void *arg, const char *path, const char *type), void *arg,
            struct bh_search_result *ret_result, struct bh_error *err)
{
    struct search s = {.on_path = fn, .arg = arg};

    return search_run(box, opts, &s, ret_result, err);
}
