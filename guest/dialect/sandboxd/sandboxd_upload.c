/*
 * sandboxd_upload: POST /upload: the part "file" of a body in parts becomes the file that it names below the workdir,
 * wholly or not at all. The body goes through a pump to a worker, which takes it apart and writes.
 */
#include <stdlib.h>
#include <string.h>

#include "api/files/files.h"
#include "common/cleanup.h"
#include "common/jsonx.h"
#include "common/str.h"
#include "dialect/sandboxd/sandboxd.h"
#include "fs/write.h"
#include "http/body.h"
#include "http/multipart.h"
#include "http/respond.h"

struct sandbox_upload {
    struct pump *pump; /* owns this */
    struct request *request;
    char *content_type;
    /* the worker's: */
    struct fs_caller *caller;
    struct multipart *multipart;
    struct fs_write *write; /* NULL: the file has not come yet */
    char *name;             /* the file's, as the client says it */
    bool is_file;           /* the part that arrives */
};

/* ---- the worker ---- */

static int part_begin(void *arg, const struct multipart_part *part, struct err *e)
{
    const struct fs_write_options o = {0};
    struct sandbox_upload *u = arg;
    const char *path;
    int r;

    u->is_file = str_eq(part->name, "file");
    if (!u->is_file)
        return 0;
    if (!part->filename || !*part->filename)
        return err_field(e, ERR_INVALID, "file", "the part 'file' has no filename");
    if (u->name)
        return err_field(e, ERR_INVALID, "file", "more than one part 'file'");
    r = sandboxd_path(part->filename, &path, e);
    if (r == 0 && !(u->name = strdup(part->filename)))
        r = err_oom(e);
    return r < 0 ? r : fs_write_begin(u->caller, path, &o, &u->write, e);
}

static int part_data(void *arg, const void *data, size_t len, struct err *e)
{
    struct sandbox_upload *u = arg;

    return u->is_file ? fs_write_data(u->write, data, len, e) : 0;
}

/* The file replaces the old one when the whole body is there: part_end() leaves it as it is. */
static int part_end(void *arg, struct err *e)
{
    (void)arg;
    (void)e;
    return 0;
}

static int upload_work_begin(void *sink, struct err *e)
{
    static const struct multipart_ops parts = {
        .begin = part_begin, .data = part_data, .end = part_end};
    struct sandbox_upload *u = sink;
    int r = files_caller_new(u->request, NULL, NULL, &u->caller, e);

    return r < 0 ? r : multipart_new(u->content_type, &parts, u, &u->multipart, e);
}

static int upload_work_write(void *sink, const void *data, size_t len, struct err *e)
{
    struct sandbox_upload *u = sink;

    return multipart_feed(u->multipart, data, len, e);
}

static int upload_work_commit(void *sink, struct err *e)
{
    struct sandbox_upload *u = sink;
    struct fs_write_result result;
    int r = multipart_finish(u->multipart, e);

    if (r < 0)
        return r;
    if (!u->write)
        return err_field(e, ERR_INVALID, "file", "the body has no part 'file'");
    return fs_write_commit(u->write, &result, e);
}

static void upload_work_close(void *sink)
{
    struct sandbox_upload *u = sink;

    u->write = fs_write_free(u->write);
    u->multipart = multipart_free(u->multipart);
    u->caller = fs_caller_unref(u->caller);
}

static void upload_free(void *sink)
{
    struct sandbox_upload *u = sink;

    request_unref(u->request);
    free(u->content_type);
    free(u->name);
    free(u);
}

static const struct pump_ops upload_sink = {.begin = upload_work_begin,
                                            .write = upload_work_write,
                                            .commit = upload_work_commit,
                                            .close = upload_work_close,
                                            .free = upload_free};

/* ---- the request ---- */

static int upload_new(struct request *q, struct err *e)
{
    const char *type = request_header(q, "Content-Type");
    struct sandbox_upload *u = calloc(1, sizeof(*u));
    struct pump *pump;
    int r;

    if (!u)
        return err_oom(e);
    u->request = request_ref(q);
    u->content_type = strdup(type ? type : "");
    if (!u->content_type) {
        upload_free(u);
        return err_oom(e);
    }
    r = upload_new_take(q, &upload_sink, u, BODY_RING_BYTES, &pump, e);
    if (r < 0)
        return r;
    u->pump = pump;
    q->state = u;
    return 0;
}

static int sandbox_upload_begin(struct request *q, struct err *e)
{
    const struct sandbox_upload *u;
    int r = q->state ? 0 : upload_new(q, e);

    if (r < 0)
        return r;
    u = q->state;
    return upload_begin(q, u->pump, e);
}

static int sandbox_upload_body(struct request *q, const char *data, size_t *len, struct err *e)
{
    const struct sandbox_upload *u = q->state;

    return upload_body(q, u->pump, data, len, e);
}

static int sandbox_upload_finish(struct request *q, struct err *e)
{
    const struct sandbox_upload *u = q->state;
    _cleanup_json_ json_t *body = NULL;
    int r = upload_finish(q, u->pump, e);

    if (r != 0)
        return r == REQUEST_PARKED ? 0 : r;
    str_make_utf8(u->name);
    body = json_pack("{s:s+}", "message", "written: ", u->name);
    return body ? respond_json(q, HTTP_OK, body, e) : err_oom(e);
}

static void sandbox_upload_done(struct request *q)
{
    struct sandbox_upload *u = q->state;

    if (u)
        pump_leave(u->pump); /* frees u */
}

const struct request_ops sandboxd_upload_ops = {.begin = sandbox_upload_begin,
                                                .body = sandbox_upload_body,
                                                .finish = sandbox_upload_finish,
                                                .done = sandbox_upload_done};
