/* archive_put: a tree that arrives as an archive; all of it is put in place, or nothing. */
#include <stdlib.h>

#include "archive/extract.h"
#include "common/cleanup.h"
#include "common/jsonx.h"
#include "common/str.h"
#include "agent.h"
#include "api/files/files.h"
#include "api/dialect.h"
#include "http/respond.h"
#include "http/body.h"

struct archive_put {
    struct request *request; /* a reference */
    struct pump *upload;     /* owns this */
    char *path;
    char *user;
    char *cwd;
    struct archive_extract_options options;
    struct fs_caller *caller;
    struct archive_extract *extract;
    struct archive_extract_result result;
};

static int put_open(void *sink, struct err *e)
{
    struct archive_put *p = sink;
    int r;

    r = files_caller_new(p->request, p->user, p->cwd, &p->caller, e);
    if (r < 0)
        return r;
    return archive_extract_begin(p->caller, p->path, &p->options, &p->extract, e);
}

static int put_read(void *sink, struct pump *in, struct err *e)
{
    struct archive_put *p = sink;

    return archive_extract_read(p->extract, in, request_agent(p->request)->pool, e);
}

static int put_commit(void *sink, struct err *e)
{
    struct archive_put *p = sink;

    return archive_extract_commit(p->extract, &p->result, e);
}

static void put_close(void *sink)
{
    struct archive_put *p = sink;

    p->extract = archive_extract_free(p->extract);
    p->caller = fs_caller_unref(p->caller);
}

static void put_free(void *sink)
{
    struct archive_put *p = sink;

    request_unref(p->request);
    free(p->path);
    free(p->user);
    free(p->cwd);
    free(p);
}

static const struct pump_ops put_sink = {
    .begin = put_open, .run = put_read, .commit = put_commit, .close = put_close, .free = put_free};

static int put_get_mode(struct request *q, enum archive_mode *ret, struct err *e)
{
    _cleanup_free_ char *text = NULL;
    int r;

    r = request_query(q, "mode", &text, e);
    if (r < 0)
        return r;
    if (!text || str_eq(text, "merge"))
        *ret = ARCHIVE_MERGE;
    else if (str_eq(text, "replace"))
        *ret = ARCHIVE_REPLACE;
    else
        return err_field(e, ERR_INVALID, "mode", "parameter 'mode' must be merge or replace");
    return 0;
}

static int put_get_options(struct request *q, struct archive_put *p, struct err *e)
{
    static const char *const known[] = {"path",      "user",     "cwd",        "mode",
                                        "sync",      "parents",  "keep_owner", "owner_names",
                                        "any_ratio", "removals", NULL};
    bool parents = true;
    int r;

    if ((r = files_check_query(q, known, e)) < 0 ||
        (r = request_query(q, "path", &p->path, e)) < 0 ||
        (r = request_query(q, "user", &p->user, e)) < 0 ||
        (r = request_query(q, "cwd", &p->cwd, e)) < 0 ||
        (r = put_get_mode(q, &p->options.mode, e)) < 0 ||
        (r = request_query_bool(q, "sync", &p->options.sync, e)) < 0 ||
        (r = request_query_bool(q, "keep_owner", &p->options.keep_owner, e)) < 0 ||
        (r = request_query_bool(q, "owner_names", &p->options.owner_names, e)) < 0 ||
        (r = request_query_bool(q, "removals", &p->options.removals, e)) < 0 ||
        (r = request_query_bool(q, "any_ratio", &p->options.any_ratio, e)) < 0 ||
        (r = request_query_bool(q, "parents", &parents, e)) < 0)
        return r;
    p->options.no_parents = !parents;
    if (p->options.owner_names)
        p->options.keep_owner = true;
    if (!p->path || !*p->path)
        return err_field(e, ERR_INVALID, "path", "parameter 'path' is required");
    return 0;
}

static int new_put(struct request *q, struct err *e)
{
    struct archive_put *p = calloc(1, sizeof(*p));
    struct pump *upload;
    int r;

    if (!p)
        return err_oom(e);
    p->request = request_ref(q);
    r = put_get_options(q, p, e);
    if (r < 0) {
        put_free(p);
        return r;
    }
    r = upload_new_take(q, &put_sink, p, ARCHIVE_PUMP_BYTES, &upload, e);
    if (r < 0)
        return r;
    p->upload = upload;
    q->state = p;
    return 0;
}

static int put_begin(struct request *q, struct err *e)
{
    struct archive_put *p;
    int r = q->state ? 0 : new_put(q, e);

    if (r < 0)
        return r;
    p = q->state;
    return upload_begin(q, p->upload, e);
}

static int put_body(struct request *q, const char *data, size_t *len, struct err *e)
{
    struct archive_put *p = q->state;

    return upload_body(q, p->upload, data, len, e);
}

static int put_finish(struct request *q, struct err *e)
{
    struct archive_put *p = q->state;
    _cleanup_json_ json_t *v = NULL;
    int r;

    r = upload_finish(q, p->upload, e);
    if (r == REQUEST_PARKED)
        return 0;
    if (r < 0)
        return r;
    v = json_pack("{s:o, s:s, s:I, s:I, s:I, s:I, s:I}", "path", jx_new_path(p->path), "format",
                  p->result.format ? p->result.format : "", "entries",
                  (json_int_t)p->result.entries, "bytes", (json_int_t)p->result.bytes,
                  "packed_bytes", (json_int_t)p->result.packed_bytes, "removed",
                  (json_int_t)p->result.removed, "lost_xattrs", (json_int_t)p->result.lost_xattrs);
    return v ? respond_json(q, HTTP_OK, v, e) : err_oom(e);
}

static void put_done(struct request *q)
{
    struct archive_put *p = q->state;

    if (p)
        pump_leave(p->upload); /* frees p */
}

const struct request_ops archive_put_ops = {
    .begin = put_begin, .body = put_body, .finish = put_finish, .done = put_done};
