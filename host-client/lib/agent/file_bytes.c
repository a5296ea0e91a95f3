/* file_bytes: the content of files, with conditions, and archives. */
#include <inttypes.h>
#include <nettle/sha2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/b64.h"
#include "common/buf.h"
#include "common/cleanup.h"
#include "common/path.h"
#include "common/str.h"
#include "lib/agent/call.h"
#include "lib/agent/client_internal.h"
#include "lib/util/context.h"

#define TAG_HEADER_BYTES (BH_ETAG_BYTES + 2)
#define DIGEST_BYTES 80
#define QUERY_BYTES (64 * 1024)

/* Resolves the path, wakes the box and gets its client. */
static int begin_on_path(struct bh_box *box, const char *path, struct client **ret_client,
                         char **ret_path, struct err *e)
{
    int r = agent_resolve(box, "path", path, ret_path, e);

    return r < 0 ? r : agent_begin(box, ret_client, e);
}

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
    int r = begin_on_path(box, path, &c, &full, &e);

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
    int r = begin_on_path(box, path, &c, &full, &e);

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
        r = begin_on_path(box, o.path, &c, &path, &e);
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
        r = begin_on_path(box, o.path, &c, &path, &e);
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
        r = begin_on_path(box, o.path, &c, &path, &e);
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
        r = begin_on_path(box, o.path, &c, &path, &e);
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
