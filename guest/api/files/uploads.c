/*
 * uploads: /v1/uploads/{id}: the offset of a resumable upload (HEAD), its next piece (PATCH), its
 * cancellation (DELETE). file_put.c begins one.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "common/cleanup.h"
#include "api/files/file_sink.h"
#include "api/files/files.h"
#include "api/dialect.h"
#include "http/respond.h"

static struct reply *new_empty(void)
{
    return reply_new_empty();
}

static void add_number(struct reply *response, const char *name, uint64_t value)
{
    char text[32];

    (void)snprintf(text, sizeof(text), "%" PRIu64, value);
    reply_add_header(response, name, text);
}

/* ---- HEAD, GET, DELETE ----------------------------------------------------------------------- */

struct look {
    struct ask ask;
    bool is_cancel;
    /* of the upload: */
    enum resume_state state;
    uint64_t offset;
    bool has_length;
    uint64_t length;
    int64_t age_ms;
    char etag[FS_ETAG_BYTES];
    struct err error;
};

static int look_begin(struct request *q, struct err *e)
{
    static const char *const known[] = {NULL};
    struct look *l = calloc(1, sizeof(*l));

    if (!l)
        return err_oom(e);
    l->is_cancel = q->verb == VERB_DELETE;
    q->state = l;
    q->free_state = free;
    return files_check_query(q, known, e);
}

static void look_job(struct request *q)
{
    struct resumes *t = request_agent(q)->resumes;
    struct look *l = q->state;
    struct resume *u = NULL;

    l->ask.r = resume_hold(t, q, q->rest, &u, &l->ask.error);
    if (l->ask.r == 0) {
        l->state = u->state;
        l->offset = u->offset;
        l->has_length = u->has_length;
        l->length = u->length;
        l->age_ms = u->age_ms;
        (void)snprintf(l->etag, sizeof(l->etag), "%s", u->result.etag);
        if (u->state == RESUME_FAILED)
            l->error = u->error;
        if (l->is_cancel)
            resume_drop(u);
        resume_release(t, u);
    }
    request_answer(q, &l->ask);
}

static int look_reply(struct request *q, const struct look *l, struct err *e)
{
    struct reply *response;
    char etag[FS_ETAG_BYTES + 4];

    if (l->state == RESUME_FAILED && !l->is_cancel) {
        q->error_status = HTTP_GONE;
        *e = l->error;
        return err_wrap(e, -l->error.code, "the upload has failed");
    }
    response = new_empty();
    if (!response)
        return err_oom(e);
    if (!l->is_cancel) {
        reply_add_header(response, "Upload-Complete", l->state == RESUME_DONE ? "?1" : "?0");
        add_number(response, "Upload-Offset", l->offset);
        if (l->has_length)
            add_number(response, "Upload-Length", l->length);
        file_sink_add_limit(response, l->age_ms);
        /* For a client that missed the reply. Not ETag: that would be this resource's own. */
        (void)snprintf(etag, sizeof(etag), "\"%s\"", l->etag);
        if (l->etag[0])
            reply_add_header(response, "Bellhop-File-ETag", etag);
    }
    return respond_queue(q, HTTP_NO_CONTENT, response, e);
}

static int look_finish(struct request *q, struct err *e)
{
    struct look *l = q->state;
    int r = request_ask(q, &l->ask, look_job, e);

    if (r == REQUEST_PARKED)
        return 0;
    return r < 0 ? r : look_reply(q, l, e);
}

const struct request_ops upload_look_ops = {.begin = look_begin, .finish = look_finish};

/* ---- PATCH ----------------------------------------------------------------------------------- */

struct append {
    struct pump *upload;
    struct file_sink *sink; /* the upload's */
};

static int uploads_get_options(struct request *q, struct file_sink *s, struct err *e)
{
    static const char *const known[] = {NULL};
    const char *type = request_header(q, "Content-Type");
    bool is_there;
    int r;

    if (!type || strncasecmp(type, UPLOADS_TYPE, strlen(UPLOADS_TYPE)) != 0) {
        q->error_status = HTTP_UNSUPPORTED_MEDIA_TYPE;
        return err_field(e, ERR_INVALID, "Content-Type", "must be " UPLOADS_TYPE);
    }
    if (!file_sink_number(q, "Upload-Offset", &s->offset))
        return err_field(e, ERR_INVALID, "Upload-Offset", "must be a number of bytes");
    if ((r = files_check_query(q, known, e)) < 0 || (r = file_sink_headers(s, q, e)) < 0 ||
        (r = file_sink_upload_headers(s, q, &is_there, e)) < 0)
        return r;
    if (!is_there)
        return err_field(e, ERR_INVALID, "Upload-Complete", "must be ?0 or ?1");
    s->is_resumable = true;
    s->id = strdup(q->rest);
    return s->id ? 0 : err_oom(e);
}

static int new_append(struct request *q, struct err *e)
{
    struct append *a = calloc(1, sizeof(*a));
    struct file_sink *s;
    int r;

    if (!a)
        return err_oom(e);
    q->state = a;
    s = file_sink_new(q, e);
    if (!s)
        return -ERR_EXHAUSTED;
    r = uploads_get_options(q, s, e);
    if (r < 0) {
        file_sink_free(s);
        return r;
    }
    r = upload_new_take(q, file_sink_ops(s), s, BODY_RING_BYTES, &a->upload, e);
    if (r == 0)
        a->sink = s;
    return r;
}

static int append_begin(struct request *q, struct err *e)
{
    struct append *a = q->state;

    if (!a) {
        int r = new_append(q, e);

        if (r < 0)
            return r;
        a = q->state;
    }
    return file_sink_explain(a->sink, q, upload_begin(q, a->upload, e), e);
}

static int append_body(struct request *q, const char *data, size_t *len, struct err *e)
{
    struct append *a = q->state;

    return file_sink_explain(a->sink, q, upload_body(q, a->upload, data, len, e), e);
}

static int append_finish(struct request *q, struct err *e)
{
    struct append *a = q->state;
    struct reply *response;
    int r;

    r = file_sink_explain(a->sink, q, upload_finish(q, a->upload, e), e);
    if (r == REQUEST_PARKED)
        return 0;
    if (r < 0)
        return r;
    if (!a->sink->is_incomplete)
        return file_sink_reply(a->sink, q, e);
    response = new_empty();
    if (!response)
        return err_oom(e);
    reply_add_header(response, "Upload-Complete", "?0");
    add_number(response, "Upload-Offset", a->sink->upload_offset);
    file_sink_add_limit(response, a->sink->upload_age_ms);
    return respond_queue(q, HTTP_NO_CONTENT, response, e);
}

static void append_done(struct request *q)
{
    struct append *a = q->state;

    if (a)
        pump_leave(a->upload); /* frees the sink */
    free(a);
}

const struct request_ops upload_append_ops = {
    .begin = append_begin, .body = append_body, .finish = append_finish, .done = append_done};
