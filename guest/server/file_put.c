/* file_put: a file's new content, all of it or nothing, on a condition if asked. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "common/b64.h"
#include "common/cleanup.h"
#include "common/jsonx.h"
#include "fs/write.h"
#include "server/files.h"
#include "server/respond.h"
#include "server/upload.h"

#include "common/banned.h"

#define SHA256_BYTES 32
#define SHA256_B64_BYTES 44

/* The sink: read by the request's thread only when no job runs. */
struct file_put {
    struct request *request; /* borrowed: the upload has a reference */
    struct upload *upload;   /* the request's thread's */
    char *path;
    char *user;
    char *cwd;
    struct fs_write_options options;
    char *if_match;
    char *if_none_match;
    uint8_t sha256[SHA256_BYTES];
    struct fs_caller *caller;
    struct fs_write *write;
    struct fs_write_result result;
    char current[FS_ETAG_BYTES]; /* the tag that is there, after a condition failed */
};

static int put_open(void *sink, struct err *e)
{
    struct file_put *p = sink;
    int r;

    r = files_caller_new(p->request, p->user, p->cwd, &p->caller, e);
    if (r < 0)
        return r;
    if (p->if_match || p->if_none_match) {
        r = fs_check_condition(p->caller, p->path, &p->options.condition, p->current, e);
        if (r < 0)
            return r;
    }
    return fs_write_begin(p->caller, p->path, &p->options, &p->write, e);
}

static int put_write(void *sink, const void *data, size_t len, struct err *e)
{
    struct file_put *p = sink;

    return fs_write_data(p->write, data, len, e);
}

static int put_commit(void *sink, struct err *e)
{
    struct file_put *p = sink;
    int r;

    r = fs_write_commit(p->write, &p->result, e);
    if (r < 0)
        (void)snprintf(p->current, sizeof(p->current), "%s", fs_write_current(p->write));
    return r;
}

static void put_close(void *sink)
{
    struct file_put *p = sink;

    p->write = fs_write_free(p->write);
    p->caller = fs_caller_unref(p->caller);
}

static void put_free(void *sink)
{
    struct file_put *p = sink;

    free(p->path);
    free(p->user);
    free(p->cwd);
    free(p->if_match);
    free(p->if_none_match);
    free(p);
}

static const struct sink_ops put_sink = {.begin = put_open,
                                         .write = put_write,
                                         .commit = put_commit,
                                         .close = put_close,
                                         .free = put_free};

static int get_mode(struct request *q, struct fs_write_options *o, struct err *e)
{
    _cleanup_free_ char *text = NULL;
    unsigned mode = 0;
    int r;

    r = request_query(q, "mode", &text, e);
    if (r < 0 || !text)
        return r;
    for (const char *c = text; *c; c++) {
        if (*c < '0' || *c > '7' || mode > 0777)
            return err_field(e, ERR_INVALID, "mode", "parameter 'mode' must be octal, as in 0644");
        mode = mode * 8 + (unsigned)(*c - '0');
    }
    o->set_mode = true;
    o->mode = (mode_t)mode;
    return *text ? 0 : err_field(e, ERR_INVALID, "mode", "parameter 'mode' must not be empty");
}

/* "sha-256=:BASE64:" (Repr-Digest) or "SHA-256=BASE64" (Digest). */
static int get_digest(struct request *q, struct file_put *p, struct err *e)
{
    const char *header = request_header(q, "Repr-Digest");
    const char *value = header ? header : request_header(q, "Digest");
    uint8_t sha256[SHA256_BYTES + 3];
    size_t len = 0;

    if (!value)
        return 0;
    if (strncasecmp(value, "sha-256=", 8) != 0)
        return err_field(e, ERR_INVALID, "digest", "a digest must be sha-256");
    value += 8;
    value += *value == ':';
    if (strlen(value) < SHA256_B64_BYTES ||
        b64_decode(value, SHA256_B64_BYTES, sha256, &len, NULL) < 0 || len != SHA256_BYTES)
        return err_field(e, ERR_INVALID, "digest", "a sha-256 digest has 32 bytes in base64");
    memcpy(p->sha256, sha256, SHA256_BYTES);
    p->options.sha256 = p->sha256;
    return 0;
}

static int dup_header(struct request *q, const char *name, char **ret, struct err *e)
{
    const char *value = request_header(q, name);

    if (!value)
        return 0;
    *ret = strdup(value);
    return *ret ? 0 : err_oom(e);
}

static int get_options(struct request *q, struct file_put *p, struct err *e)
{
    static const char *const known[] = {"user", "cwd", "mode", "sync", "parents", "in_place", NULL};
    bool parents = true;
    int r;

    if (!*q->rest)
        return err_field(e, ERR_INVALID, "path", "a path is needed: /v1/files/{path}");
    if ((r = files_check_query(q, known, e)) < 0 ||
        (r = request_query(q, "user", &p->user, e)) < 0 ||
        (r = request_query(q, "cwd", &p->cwd, e)) < 0 || (r = get_mode(q, &p->options, e)) < 0 ||
        (r = request_query_bool(q, "sync", &p->options.sync, e)) < 0 ||
        (r = request_query_bool(q, "in_place", &p->options.in_place, e)) < 0 ||
        (r = request_query_bool(q, "parents", &parents, e)) < 0 || (r = get_digest(q, p, e)) < 0 ||
        (r = dup_header(q, "If-Match", &p->if_match, e)) < 0 ||
        (r = dup_header(q, "If-None-Match", &p->if_none_match, e)) < 0)
        return r;
    if (request_header(q, "Content-Range"))
        return err_field(e, ERR_UNIMPLEMENTED, "Content-Range", "a PUT is of the whole file");
    p->path = strdup(q->rest);
    p->options.no_parents = !parents;
    p->options.expected = q->declared == UINT64_MAX ? 0 : q->declared;
    p->options.condition =
        (struct fs_condition){.if_match = p->if_match, .if_none_match = p->if_none_match};
    return p->path ? 0 : err_oom(e);
}

static int new_put(struct request *q, struct err *e)
{
    struct file_put *p = calloc(1, sizeof(*p));
    struct upload *upload;
    int r;

    if (!p)
        return err_oom(e);
    p->request = q;
    r = get_options(q, p, e);
    if (r < 0) {
        put_free(p);
        return r;
    }
    r = upload_new_take(q, &put_sink, p, &upload, e);
    if (r < 0)
        return r;
    p->upload = upload;
    q->state = p;
    return 0;
}

/* A condition that failed tells the tag there is. */
static int with_current(struct request *q, int r)
{
    struct file_put *p = q->state;

    if (r < 0 && p->current[0] && !q->etag_now && asprintf(&q->etag_now, "\"%s\"", p->current) < 0)
        q->etag_now = NULL;
    return r;
}

static int put_begin(struct request *q, struct err *e)
{
    struct file_put *p = q->state;

    if (!p) {
        int r = new_put(q, e);

        if (r < 0)
            return r;
        p = q->state;
    }
    return with_current(q, upload_begin(p->upload, e));
}

static int put_body(struct request *q, const char *data, size_t *len, struct err *e)
{
    struct file_put *p = q->state;

    return upload_body(p->upload, data, len, e);
}

static int put_reply(struct request *q, const struct file_put *p, struct err *e)
{
    _cleanup_json_ json_t *v =
        json_pack("{s:o, s:I, s:s, s:b, s:b}", "path", jx_new_path(p->path), "bytes",
                  (json_int_t)p->result.bytes, "etag", p->result.etag, "created",
                  (int)p->result.created, "in_place", (int)p->result.in_place);
    struct MHD_Response *response;
    char etag[FS_ETAG_BYTES + 4];
    char *text;
    size_t len;
    int r;

    if (!v)
        return err_oom(e);
    r = jx_dump(v, &text, &len, e);
    if (r < 0)
        return r;
    response = MHD_create_response_from_buffer(len, text, MHD_RESPMEM_MUST_FREE);
    if (!response) {
        free(text);
        return err_oom(e);
    }
    (void)snprintf(etag, sizeof(etag), "\"%s\"", p->result.etag);
    respond_add_header(response, "ETag", etag);
    respond_add_header(response, "Content-Type", "application/json");
    q->bytes_out += len;
    return respond_queue(q, p->result.created ? MHD_HTTP_CREATED : MHD_HTTP_OK, response, e);
}

static int put_finish(struct request *q, struct err *e)
{
    struct file_put *p = q->state;
    int r;

    r = with_current(q, upload_finish(p->upload, e));
    if (r == REQUEST_PARKED)
        return 0;
    return r < 0 ? r : put_reply(q, p, e);
}

static void put_done(struct request *q)
{
    struct file_put *p = q->state;

    if (p)
        upload_leave(p->upload); /* frees p in the end */
}

const struct request_ops file_put_ops = {
    .begin = put_begin, .body = put_body, .finish = put_finish, .done = put_done};
