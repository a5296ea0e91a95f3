/* files: calls of the Fs service: stat, list, changes, edits, watches. */
#include <inttypes.h>
#include <nettle/sha2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/buf.h"
#include "common/cleanup.h"
#include "common/jsonx.h"
#include "common/path.h"
#include "common/str.h"
#include "lib/agent/call.h"
#include "lib/agent/client_internal.h"
#include "lib/util/context.h"

/* ---- stat and list ---- */

/* A path of a reply; free() it. */
static char *path_of(json_t *obj, const char *key)
{
    char *path = NULL;
    json_t *v = json_object_get(obj, key);

    return v && jx_path(v, &path, NULL) == 0 ? path : strdup("");
}

static uint32_t mode_of(const char *octal)
{
    uint32_t mode = 0;

    for (; *octal >= '0' && *octal <= '7'; octal++)
        mode = mode * 8 + (uint32_t)(*octal - '0');
    return mode;
}

static int give_file_info(json_t *o, int (*fn)(void *arg, const struct bh_file_info *info),
                          void *arg, struct err *e)
{
    _cleanup_free_ char *path = path_of(o, "path");
    _cleanup_free_ char *name = path_of(o, "name");
    _cleanup_free_ char *target = path_of(o, "target");
    json_t *error = json_object_get(o, "error");
    struct bh_file_info i = {
        .size = sizeof(i),
        .path = path,
        .name = name,
        .target = target,
        .type = reply_text(o, "type"),
        .bytes = (uint64_t)json_integer_value(json_object_get(o, "size")),
        .mode = mode_of(reply_text(o, "mode")),
        .uid = (uint32_t)json_integer_value(json_object_get(o, "uid")),
        .gid = (uint32_t)json_integer_value(json_object_get(o, "gid")),
        .user = reply_text(o, "user"),
        .group = reply_text(o, "group"),
        .mtime = reply_text(o, "mtime"),
        .etag = reply_text(o, "etag"),
        .error = json_is_object(error) ? reply_text(error, "message") : reply_text(o, "error"),
    };

    return path && name && target ? fn(arg, &i) : err_oom(e);
}

int bh_file_stat(struct bh_box *box, const char *path, bool etag,
                 int (*fn)(void *arg, const struct bh_file_info *info), void *arg,
                 struct bh_error *err)
{
    _cleanup_json_ json_t *reply = NULL;
    struct err e = {0};
    json_t *p = json_object();
    int r;

    params_set_path(p, box, "path", path, &e);
    params_set_flag(p, "etag", etag, &e);
    r = agent_call_take(box, RPC_fs_stat, p, 0, &reply, &e);
    if (r == 0)
        r = give_file_info(reply, fn, arg, &e);
    return r < 0 ? ctx_fail(err, r, &e) : r;
}

int bh_file_list(struct bh_box *box, const struct bh_file_list_options *opts,
                 int (*fn)(void *arg, const struct bh_file_info *info), void *arg,
                 struct bh_error *err)
{
    _cleanup_json_ json_t *next = NULL;
    struct bh_file_list_options o;
    struct err e = {0};
    int r = options_copy(&o, sizeof(o), opts, &e);

    do {
        _cleanup_json_ json_t *reply = NULL;
        json_t *p, *entry;
        size_t i;

        if (r < 0)
            break;
        p = json_object();
        params_set_path(p, box, "path", o.path, &e);
        params_set_flag(p, "etag", o.etag, &e);
        params_set_count(p, "depth", o.depth, &e);
        if (json_is_string(next))
            (void)json_object_set(p, "cursor", next);
        r = agent_call_take(box, RPC_fs_list, p, 0, &reply, &e);
        json_array_foreach (json_object_get(reply, "entries"), i, entry) {
            if (r == 0)
                r = give_file_info(entry, fn, arg, &e);
        }
        json_decref(next);
        next = json_incref(json_object_get(reply, "next"));
    } while (r == 0 && json_is_string(next));
    return r < 0 ? ctx_fail(err, r, &e) : r;
}

/* ---- changes ---- */

/* An option of another method is sent too: the agent refuses it by name. */
static int call_change_take(struct bh_box *box, enum rpc_method method, json_t *p,
                            const struct bh_file_change_options *opts, struct bh_error *err,
                            struct err *e)
{
    struct bh_file_change_options o = {.size = sizeof(o)};

    if (opts && !e->code)
        (void)options_copy(&o, sizeof(o), opts, e);
    params_set_text(p, "if_match", o.if_match, e);
    params_set_text(p, "if_none_match", o.if_none_match, e);
    params_set_flag(p, "recursive", o.recursive, e);
    params_set_flag(p, "missing_ok", o.missing_ok, e);
    params_set_flag(p, "overwrite", o.overwrite, e);
    if (o.no_parents)
        params_set_take(p, "parents", json_false(), e);
    params_set_mode(p, "mode", o.mode, e);
    params_set_text(p, "owner", o.owner, e);
    params_set_text(p, "group", o.group, e);
    params_set_text(p, "mtime", o.mtime, e);
    return ctx_fail(err, agent_call_take(box, method, p, 0, NULL, e), e);
}

static int change_one(struct bh_box *box, enum rpc_method method, const char *path,
                      const struct bh_file_change_options *opts, struct bh_error *err)
{
    struct err e = {0};
    json_t *p = json_object();

    params_set_path(p, box, "path", path, &e);
    return call_change_take(box, method, p, opts, err, &e);
}

static int change_two(struct bh_box *box, enum rpc_method method, const char *from, const char *to,
                      const struct bh_file_change_options *opts, struct bh_error *err)
{
    struct err e = {0};
    json_t *p = json_object();

    params_set_path(p, box, "from", from, &e);
    params_set_path(p, box, "to", to, &e);
    params_set_take(p, "parents", json_true(), &e); /* the agent's own default is false */
    return call_change_take(box, method, p, opts, err, &e);
}

int bh_file_remove(struct bh_box *box, const char *path, const struct bh_file_change_options *opts,
                   struct bh_error *err)
{
    return change_one(box, RPC_fs_remove, path, opts, err);
}

int bh_file_mkdir(struct bh_box *box, const char *path, const struct bh_file_change_options *opts,
                  struct bh_error *err)
{
    return change_one(box, RPC_fs_make_dir, path, opts, err);
}

int bh_file_set_attr(struct bh_box *box, const char *path,
                     const struct bh_file_change_options *opts, struct bh_error *err)
{
    return change_one(box, RPC_fs_set_attr, path, opts, err);
}

int bh_file_move(struct bh_box *box, const char *from, const char *to,
                 const struct bh_file_change_options *opts, struct bh_error *err)
{
    return change_two(box, RPC_fs_move, from, to, opts, err);
}

int bh_file_copy(struct bh_box *box, const char *from, const char *to,
                 const struct bh_file_change_options *opts, struct bh_error *err)
{
    return change_two(box, RPC_fs_copy, from, to, opts, err);
}

/* ---- edit ---- */

static json_t *new_edit(const struct bh_edit *d, struct err *e)
{
    json_t *v = json_object();

    params_set_take(v, "old", jx_new_bytes(d->old_text, strlen(d->old_text)), e);
    params_set_take(v, "new", jx_new_bytes(d->new_text, strlen(d->new_text)), e);
    if (d->all)
        params_set_flag(v, "all", true, e);
    else
        params_set_count(v, "count", d->count, e);
    return v;
}

static int read_edit(json_t *reply, struct bh_edit_result *ret, struct err *e)
{
    json_t *diff = json_object_get(reply, "diff");
    struct jx_bytes text = {0};

    if (json_is_object(diff) && jx_bytes(diff, &text, e) < 0)
        return -ERR_DATA_LOSS;
    ret->diff = text.data;
    ret->replaced = (uint64_t)json_integer_value(json_object_get(reply, "replaced"));
    (void)snprintf(ret->etag, sizeof(ret->etag), "%s", reply_text(reply, "etag"));
    return 0;
}

int bh_file_edit(struct bh_box *box, const struct bh_edit_options *opts,
                 struct bh_edit_result *ret_result, struct bh_error *err)
{
    struct bh_edit_result result = {.size = sizeof(result)};
    _cleanup_json_ json_t *reply = NULL;
    struct bh_edit_options o;
    struct err e = {0};
    json_t *p = NULL, *list;
    int r = options_copy(&o, sizeof(o), opts, &e);

    if (r == 0) {
        p = json_object();
        list = json_array();
        params_set_path(p, box, "path", o.path, &e);
        for (size_t i = 0; i < o.n_edits; i++)
            (void)json_array_append_new(list, new_edit(&o.edits[i], &e));
        params_set_take(p, "edits", list, &e);
        params_set_flag(p, "dry_run", o.dry_run, &e);
        params_set_text(p, "if_match", o.if_match, &e);
        r = agent_call_take(box, RPC_fs_edit, p, 0, &reply, &e);
    }
    if (r == 0)
        r = read_edit(reply, &result, &e);
    if (r < 0)
        return ctx_fail(err, r, &e);
    if (ret_result)
        *ret_result = result;
    else
        free(result.diff);
    return 0;
}

/* ---- watch ---- */

struct watch {
    int (*fn)(void *arg, const struct bh_watch_event *event);
    void *arg;
};

static int take_watch_message(void *arg, json_t *msg)
{
    static const char *const kinds[] = {"started", "event", "end"};
    const struct watch *w = arg;
    _cleanup_free_ char *text = NULL;
    const char *kind = NULL;
    json_t *v = NULL;

    for (size_t i = 0; !v && i < N_ELEMENTS(kinds); i++) {
        kind = kinds[i];
        v = json_object_get(msg, kind);
    }
    if (!v)
        return 0;
    if (jx_dump(msg, &text, NULL, NULL) < 0)
        return 1;
    {
        _cleanup_free_ char *path = path_of(v, "path");
        _cleanup_free_ char *from = path_of(v, "from");
        struct bh_watch_event event = {.size = sizeof(event),
                                       .type = str_eq(kind, "event") ? reply_text(v, "type") : kind,
                                       .path = path,
                                       .from = from,
                                       .directory = json_is_true(json_object_get(v, "directory")),
                                       .json = text};

        return path && from ? w->fn(w->arg, &event) : 1;
    }
}

int bh_file_watch(struct bh_box *box, const struct bh_watch_options *opts,
                  int (*fn)(void *arg, const struct bh_watch_event *event), void *arg,
                  struct bh_error *err)
{
    struct watch w = {.fn = fn, .arg = arg};
    _cleanup_json_ json_t *p = NULL;
    struct bh_watch_options o;
    struct client *c = NULL;
    struct err e = {0};
    int r = options_copy(&o, sizeof(o), opts, &e);

    if (r == 0) {
        p = json_object();
        params_set_path(p, box, "path", o.path ? o.path : ".", &e);
        if (o.not_recursive)
            params_set_take(p, "recursive", json_false(), &e);
        params_set_list(p, "exclude", o.excludes, &e);
        r = e.code ? -e.code : agent_begin(box, &c, &e);
    }
    if (r == 0) { /* recreated, the box may have another working directory */
        params_set_path(p, box, "path", o.path ? o.path : ".", &e);
        r = -e.code;
    }
    if (r == 0)
        r = client_stream(c, RPC_fs_watch, p, agent_deadline(o.timeout_ms), take_watch_message, &w,
                          &e);
    return ctx_fail(err, r, &e);
}

/* ---- content, with conditions, and archives ---- */

#define TAG_HEADER_BYTES (BH_ETAG_BYTES + 2)
#define DIGEST_BYTES 80
#define QUERY_BYTES (64 * 1024)

/* The header has a tag in quotes, except "*". */
static const char *quote_tag(const char *tag, char *out, size_t out_bytes)
{
    if (!tag)
        return NULL;
    (void)snprintf(out, out_bytes, str_eq(tag, "*") || *tag == '"' ? "%s" : "\"%s\"", tag);
    return out;
}

static int append_bytes(void *arg, const char *data, size_t len)
{
    return buf_add(arg, data, len, NULL);
}

int bh_read(struct bh_box *box, const char *path, size_t max_bytes, char **ret_data,
            size_t *ret_len, struct bh_error *err)
{
    _cleanup_free_ char *full = NULL;
    _cleanup_buf_ struct buf data = {0};
    struct client *c = NULL;
    struct err e = {0};
    int r = agent_begin_on_path(box, path, &c, &full, &e);

    buf_init(&data, max_bytes);
    if (r == 0)
        r = client_get_file(c, full, append_bytes, &data, 0, &e);
    if (r == -ERR_CANCELED && data.len + 64 * 1024 > max_bytes)
        r = err_field(&e, ERR_EXHAUSTED, "path", "'%s' has more than %zu bytes", path, max_bytes);
    if (r == 0)
        r = buf_add(&data, "", 0, &e);
    if (r < 0)
        return ctx_fail(err, r, &e);
    *ret_len = data.len;
    *ret_data = buf_take(&data);
    if (!*ret_data)
        *ret_data = strdup("");
    return *ret_data ? 0 : ctx_fail(err, err_oom(&e), &e);
}

int bh_write(struct bh_box *box, const char *path, const void *data, size_t len, uint32_t mode,
             struct bh_error *err)
{
    _cleanup_free_ char *full = NULL;
    struct client *c = NULL;
    struct err e = {0};
    int r = agent_begin_on_path(box, path, &c, &full, &e);

    if (r == 0)
        r = client_put_file(c, full, data, len, mode ? mode : 0644, NULL, 0, &e);
    return ctx_fail(err, r, &e);
}

int bh_file_read(struct bh_box *box, const struct bh_file_read_options *opts, char *etag,
                 struct bh_error *err)
{
    struct client_bytes b = {.etag = etag, .etag_bytes = etag ? BH_ETAG_BYTES : 0};
    char range[64], match[TAG_HEADER_BYTES];
    struct bh_file_read_options o;
    _cleanup_free_ char *path = NULL;
    struct client *c = NULL;
    struct err e = {0};
    int r = options_copy(&o, sizeof(o), opts, &e);

    if (r == 0)
        r = agent_begin_on_path(box, o.path, &c, &path, &e);
    if (r < 0)
        return ctx_fail(err, r, &e);
    if (o.length)
        (void)snprintf(range, sizeof(range), "bytes=%" PRIu64 "-%" PRIu64, o.offset,
                       o.offset + o.length - 1);
    else
        (void)snprintf(range, sizeof(range), "bytes=%" PRIu64 "-", o.offset);
    b.range = o.offset || o.length ? range : NULL;
    b.if_match = quote_tag(o.if_match, match, sizeof(match));
    b.write = o.write;
    b.arg = o.arg;
    r = client_bytes(c, "GET", path, &b, 0, &e);
    return ctx_fail(err, r, &e);
}

/* "sha-256=:...:" */
static void make_digest(const void *data, size_t len, char out[DIGEST_BYTES])
{
    struct sha256_ctx ctx;
    uint8_t sum[SHA256_DIGEST_SIZE];
    char text[B64_LEN(SHA256_DIGEST_SIZE) + 1];

    sha256_init(&ctx);
    sha256_update(&ctx, len, data);
    sha256_digest(&ctx, sizeof(sum), sum);
    b64_encode((const char *)sum, sizeof(sum), text);
    text[B64_LEN(SHA256_DIGEST_SIZE)] = '\0';
    (void)snprintf(out, DIGEST_BYTES, "sha-256=:%s:", text);
}

int bh_file_write(struct bh_box *box, const struct bh_file_write_options *opts, char *etag,
                  struct bh_error *err)
{
    struct client_bytes b = {.etag = etag, .etag_bytes = etag ? BH_ETAG_BYTES : 0};
    char match[TAG_HEADER_BYTES], none[TAG_HEADER_BYTES], digest[DIGEST_BYTES], query[64];
    struct bh_file_write_options o;
    _cleanup_free_ char *path = NULL;
    struct client *c = NULL;
    struct err e = {0};
    int r = options_copy(&o, sizeof(o), opts, &e);

    if (r == 0)
        r = agent_begin_on_path(box, o.path, &c, &path, &e);
    if (r < 0)
        return ctx_fail(err, r, &e);
    (void)snprintf(query, sizeof(query), "sync=%s", o.sync ? "true" : "false");
    if (o.mode)
        (void)snprintf(query + strlen(query), sizeof(query) - strlen(query), "&mode=%04o",
                       (unsigned)o.mode);
    b.query = query;
    b.data = o.data ? o.data : "";
    b.len = o.len;
    b.if_match = quote_tag(o.if_match, match, sizeof(match));
    b.if_none_match = quote_tag(o.if_none_match, none, sizeof(none));
    if (o.digest) {
        make_digest(b.data, b.len, digest);
        b.digest = digest;
    }
    r = client_bytes(c, "PUT", path, &b, 0, &e);
    return ctx_fail(err, r, &e);
}

/* ---- archives ---- */

static int add_excludes(struct buf *q, const char *const *list, struct err *e)
{
    int r = 0;

    for (; r == 0 && list && *list; list++) {
        r = buf_adds(q, "&exclude=", e);
        if (r == 0)
            r = client_add_encoded(q, *list, true, e);
    }
    return r;
}

int bh_archive_get(struct bh_box *box, const struct bh_archive_get_options *opts,
                   struct bh_error *err)
{
    _cleanup_buf_ struct buf query = {0};
    _cleanup_free_ char *path = NULL;
    struct bh_archive_get_options o;
    struct client *c = NULL;
    struct err e = {0};
    int r = options_copy(&o, sizeof(o), opts, &e);

    buf_init(&query, QUERY_BYTES);
    if (r == 0)
        r = agent_begin_on_path(box, o.path, &c, &path, &e);
    if (r == 0)
        r = buf_addf(&query, &e, "format=%s%s", o.format ? o.format : "tar",
                     o.reproducible ? "&reproducible=true" : "");
    if (r == 0)
        r = add_excludes(&query, o.excludes, &e);
    if (r == 0)
        r = client_get_archive(c, path, query.data, o.write, o.arg, 0, &e);
    return ctx_fail(err, r, &e);
}

static int64_t read_archive(void *arg, char *out, size_t max, struct err *e)
{
    const struct bh_archive_put_options *o = arg;
    int64_t n = o->read(o->arg, out, max);

    return n < 0 ? err_set(e, ERR_CANCELED, "the sender of the archive gave up") : n;
}

int bh_archive_put(struct bh_box *box, const struct bh_archive_put_options *opts,
                   uint64_t *ret_entries, struct bh_error *err)
{
    struct bh_archive_put_options o;
    _cleanup_free_ char *path = NULL;
    json_t *reply = NULL;
    struct client *c = NULL;
    char query[64];
    struct err e = {0};
    int r = options_copy(&o, sizeof(o), opts, &e);

    if (r == 0)
        r = agent_begin_on_path(box, o.path, &c, &path, &e);
    if (r == 0) {
        (void)snprintf(query, sizeof(query), "mode=%s%s", o.replace ? "replace" : "merge",
                       o.keep_owner ? "&keep_owner=true" : "");
        r = client_put_archive(c, path, query, read_archive, &o, 0, &reply, &e);
    }
    if (r == 0 && ret_entries)
        *ret_entries = (uint64_t)json_integer_value(json_object_get(reply, "entries"));
    json_decref(reply);
    return ctx_fail(err, r, &e);
}
