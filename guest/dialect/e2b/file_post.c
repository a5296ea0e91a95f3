/*
 * file_post: POST /files: one file as the body, or several in parts; either may be compressed. The
 * body goes through a pump to a worker, which takes it apart and writes.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "common/cleanup.h"
#include "dialect/e2b/file_paths.h"
#include "dialect/e2b/put.h"
#include "dialect/e2b/file_query.h"
#include "dialect/e2b/rest_routes.h"
#include "http/gzip.h"
#include "http/multipart.h"
#include "http/respond.h"
#include "api/dialect.h"
#include "http/body.h"

#define META_HEADER "X-Metadata-"
#define TYPE_RAW "application/octet-stream"
#define TYPE_PARTS "multipart/"

struct file_post {
    struct pump *upload; /* owns this */
    struct agent *agent;
    struct file_query query;
    struct meta meta;
    char *content_type; /* or NULL */
    bool is_raw;
    bool is_gzip;
    uint64_t announced;
    /* the worker's: */
    struct puts *puts;
    struct multipart *multipart;
    struct gunzip *gunzip;
    bool takes_part; /* the part that arrives is a file */
    bool has_raw;    /* the file of a raw body is open, and emptied */
};

static void post_free(void *sink)
{
    struct file_post *p = sink;

    file_query_done(&p->query);
    meta_done(&p->meta);
    free(p->content_type);
    free(p);
}

/* ---- the worker ------------------------------------------------------------------------------ */

static int on_part_begin(void *arg, const struct multipart_part *part, struct err *e)
{
    struct file_post *p = arg;
    const char *path = p->query.path ? p->query.path : part->filename;

    p->takes_part = part->name && strcmp(part->name, "file") == 0;
    if (!p->takes_part)
        return 0;
    if (!path)
        return err_set(e, ERR_INVALID,
                       "error getting multipart custom part file name: filename not found in "
                       "Content-Disposition header");
    return puts_begin(p->puts, path, e);
}

static int on_part_data(void *arg, const void *data, size_t len, struct err *e)
{
    struct file_post *p = arg;

    return p->takes_part ? puts_data(p->puts, data, len, e) : 0;
}

static int on_part_end(void *arg, struct err *e)
{
    struct file_post *p = arg;

    return p->takes_part ? puts_end(p->puts, &p->meta, e) : 0;
}

static const struct multipart_ops part_ops = {
    .begin = on_part_begin, .data = on_part_data, .end = on_part_end};

static int begin_raw(struct file_post *p, struct err *e)
{
    int r = p->has_raw ? 0 : puts_begin(p->puts, p->query.path, e);

    p->has_raw = p->has_raw || r == 0;
    return r;
}

static int on_plain(void *arg, const void *data, size_t len, struct err *e)
{
    struct file_post *p = arg;

    if (p->is_raw) {
        int r = begin_raw(p, e);

        return r < 0 ? r : puts_data(p->puts, data, len, e);
    }
    return multipart_feed(p->multipart, data, len, e);
}

static int begin_body(struct file_post *p, struct err *e)
{
    int r;

    if (p->is_raw && !p->query.path)
        return err_set(e, ERR_INVALID, "path query parameter is required for raw body upload");
    /* A compressed one only once some of it has come out: what is no gzip must not empty a file. */
    if (p->is_raw)
        return p->is_gzip ? 0 : begin_raw(p, e);
    if (!p->content_type || strncasecmp(p->content_type, TYPE_PARTS, strlen(TYPE_PARTS)) != 0)
        return err_set(e, ERR_INVALID,
                       "unsupported content type: %.200s, expected multipart/form-data or "
                       "application/octet-stream",
                       p->content_type ? p->content_type : "");
    r = multipart_new(p->content_type, &part_ops, p, &p->multipart, e);
    return r < 0 ? err_wrap(e, r, "error parsing multipart form") : 0;
}

static int post_begin_work(void *sink, struct err *e)
{
    struct file_post *p = sink;
    int r = puts_new(p->agent, p->query.username, p->announced, &p->puts, e);

    if (r == 0)
        r = meta_check(&p->meta, e);
    if (r == 0 && p->is_gzip)
        r = gunzip_new(on_plain, p, &p->gunzip, e);
    return r < 0 ? r : begin_body(p, e);
}

static int post_write(void *sink, const void *data, size_t len, struct err *e)
{
    struct file_post *p = sink;

    return p->gunzip ? gunzip_feed(p->gunzip, data, len, e) : on_plain(p, data, len, e);
}

static int post_commit(void *sink, struct err *e)
{
    struct file_post *p = sink;
    int r = p->gunzip ? gunzip_finish(p->gunzip, e) : 0;

    if (r == 0 && p->is_raw)
        r = begin_raw(p, e);
    if (r < 0)
        return r;
    if (p->is_raw)
        return puts_end(p->puts, &p->meta, e);
    r = multipart_finish(p->multipart, e);
    return r < 0 ? err_wrap(e, r, "error reading form") : 0;
}

/* An incomplete file stays as far as it came, as with envd. */
static void post_close(void *sink)
{
    struct file_post *p = sink;

    p->multipart = multipart_free(p->multipart);
    p->gunzip = gunzip_free(p->gunzip);
    puts_close(p->puts);
}

static void post_free_all(void *sink)
{
    struct file_post *p = sink;

    puts_free(p->puts);
    post_free(p);
}

static const struct pump_ops post_sink = {.begin = post_begin_work,
                                          .write = post_write,
                                          .commit = post_commit,
                                          .close = post_close,
                                          .free = post_free_all,
                                          .keeps = true};

/* ---- the request ----------------------------------------------------------------------------- */

struct collecting {
    struct meta *meta;
    struct err *e;
};

static int add_meta(void *arg, const char *name, const char *value)
{
    const struct collecting *c = arg;
    size_t n = strlen(META_HEADER);

    return strncasecmp(name, META_HEADER, n) == 0 && name[n]
               ? meta_add(c->meta, name + n, value, c->e)
               : 0;
}

static int read_coding(struct request *q, struct file_post *p, struct err *e)
{
    const char *header = request_header(q, "Content-Encoding");
    size_t n;

    if (!header || !*header)
        return 0;
    n = strcspn(header, "; \t");
    p->is_gzip = n == 4 && strncasecmp(header, "gzip", n) == 0;
    if (p->is_gzip || (n == 8 && strncasecmp(header, "identity", n) == 0))
        return 0;
    return err_set(e, ERR_INVALID,
                   "error decompressing request body: unsupported Content-Encoding: %.64s, "
                   "supported: [gzip]",
                   header);
}

static int read_headers(struct request *q, struct file_post *p, struct err *e)
{
    const char *type = request_header(q, "Content-Type");
    struct collecting c = {.meta = &p->meta, .e = e};
    size_t n = type ? strcspn(type, "; \t") : 0;
    int r = file_query_read(q, "write", &p->query, e);

    if (r == 0)
        r = read_coding(q, p, e);
    if (r < 0)
        return r;
    p->is_raw = n == strlen(TYPE_RAW) && strncasecmp(type, TYPE_RAW, n) == 0;
    if (type && !(p->content_type = strdup(type)))
        return err_oom(e);
    p->announced = q->declared == UINT64_MAX ? 0 : q->declared;
    return request_each_header(q, add_meta, &c);
}

static int new_post(struct request *q, struct err *e)
{
    struct file_post *p = calloc(1, sizeof(*p));
    struct pump *upload;
    int r;

    if (!p)
        return err_oom(e);
    p->agent = request_agent(q);
    r = read_headers(q, p, e);
    if (r < 0) {
        post_free(p);
        return r;
    }
    r = upload_new_take(q, &post_sink, p, BODY_RING_BYTES, &upload, e);
    if (r < 0)
        return r;
    p->upload = upload;
    q->state = p;
    return 0;
}

static int post_begin(struct request *q, struct err *e)
{
    struct file_post *p;
    int r = q->state ? 0 : new_post(q, e);

    if (r < 0)
        return r;
    p = q->state;
    return upload_begin(q, p->upload, e);
}

static int post_body(struct request *q, const char *data, size_t *len, struct err *e)
{
    struct file_post *p = q->state;

    return upload_body(q, p->upload, data, len, e);
}

static int post_finish(struct request *q, struct err *e)
{
    struct file_post *p = q->state;
    int r = upload_finish(q, p->upload, e);

    if (r == REQUEST_PARKED)
        return 0;
    return r < 0 ? r : respond_json(q, HTTP_OK, puts_entries(p->puts), e);
}

static void post_done(struct request *q)
{
    struct file_post *p = q->state;

    if (p)
        pump_leave(p->upload); /* frees p */
}

const struct request_ops e2b_file_post_ops = {
    .begin = post_begin, .body = post_body, .finish = post_finish, .done = post_done};
