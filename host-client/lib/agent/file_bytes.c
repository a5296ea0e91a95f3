/* bytes: a file's content and archives of the box, with conditions. */
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
#include "lib/box/box.h"
#include "lib/util/context.h"

#define TAG_HEADER_BYTES (BH_ETAG_BYTES + 2)
#define DIGEST_BYTES 80
#define QUERY_BYTES (64 * 1024)

/* Awake, with a client, and the path as the agent wants it. */
static int begin(struct bh_box *box, const char *path, struct client **ret_client, char **ret_path,
                 struct err *e)
{
    _cleanup_free_ char *workdir = box_workdir(box->dir, &box->spec);
    int r;

    if (!path || !*path)
        return err_field(e, ERR_INVALID, "path", "path must not be empty");
    r = box_wake(box, e);
    if (r == 0)
        r = box_client(box, ret_client, e);
    if (r < 0)
        return r;
    *ret_path = workdir ? path_join(workdir, path) : NULL;
    return *ret_path ? 0 : err_oom(e);
}

/* A tag as the header has it: in quotes, but for "*". */
static const char *quoted(const char *tag, char *out, size_t out_bytes)
{
    if (!tag)
        return NULL;
    (void)snprintf(out, out_bytes, str_eq(tag, "*") || *tag == '"' ? "%s" : "\"%s\"", tag);
    return out;
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
        r = begin(box, o.path, &c, &path, &e);
    if (r < 0)
        return ctx_fail(err, r, &e);
    if (o.length)
        (void)snprintf(range, sizeof(range), "bytes=%" PRIu64 "-%" PRIu64, o.offset,
                       o.offset + o.length - 1);
    else
        (void)snprintf(range, sizeof(range), "bytes=%" PRIu64 "-", o.offset);
    b.range = o.offset || o.length ? range : NULL;
    b.if_match = quoted(o.if_match, match, sizeof(match));
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
        r = begin(box, o.path, &c, &path, &e);
    if (r < 0)
        return ctx_fail(err, r, &e);
    (void)snprintf(query, sizeof(query), "sync=%s", o.sync ? "true" : "false");
    if (o.mode)
        (void)snprintf(query + strlen(query), sizeof(query) - strlen(query), "&mode=%04o",
                       (unsigned)o.mode);
    b.query = query;
    b.data = o.data ? o.data : "";
    b.len = o.len;
    b.if_match = quoted(o.if_match, match, sizeof(match));
    b.if_none_match = quoted(o.if_none_match, none, sizeof(none));
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
    static const char plain[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~/";
    int r = 0;

    for (; r == 0 && list && *list; list++) {
        r = buf_adds(q, "&exclude=", e);
        for (const char *s = *list; r == 0 && *s; s++)
            r = strchr(plain, *s) ? buf_add(q, s, 1, e)
                                  : buf_addf(q, e, "%%%02X", (unsigned)(unsigned char)*s);
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
        r = begin(box, o.path, &c, &path, &e);
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
        r = begin(box, o.path, &c, &path, &e);
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
