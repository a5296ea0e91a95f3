/*
 * file_put: a file's new content, all of it or nothing, on a condition if asked: the whole (PUT),
 * a part (PATCH, PUT with Content-Range), or the first piece of an upload that can be resumed
 * (PUT or POST with Upload-Complete).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "common/cleanup.h"
#include "common/str.h"
#include "common/wire/wire.h"
#include "api/files/file_sink.h"
#include "api/files/files.h"
#include "api/dialect.h"
#include "http/range.h"
#include "http/respond.h"
#include "http/state.h"

struct file_put {
    struct pump *upload;
    struct file_sink *sink; /* the upload's */
    bool is_announced;      /* 104 was sent */
};

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

static int get_query(struct request *q, struct file_sink *s, struct err *e)
{
    /* An upload that can be resumed is a whole file; a PATCH is a part of one. */
#define COMMON_PARAMETERS "path", "user", "cwd", "mode", "sync", "parents", "in_place"
    static const char *const put[] = {COMMON_PARAMETERS, "fresh", "append", NULL};
    static const char *const post[] = {COMMON_PARAMETERS, "fresh", NULL};
    static const char *const patch[] = {COMMON_PARAMETERS, "append", NULL};
    const char *const *known = q->verb == VERB_PUT ? put : q->verb == VERB_POST ? post : patch;
    struct fs_write_options *o = &s->options;
    bool parents = true;
    int r;

    if ((r = files_check_file_query(q, known, e)) < 0 ||
        (r = request_query(q, "user", &s->user, e)) < 0 ||
        (r = request_query(q, "cwd", &s->cwd, e)) < 0 || (r = get_mode(q, o, e)) < 0 ||
        (r = request_query_bool(q, "sync", &o->sync, e)) < 0 ||
        (r = request_query_bool(q, "in_place", &o->in_place, e)) < 0 ||
        (r = request_query_bool(q, "fresh", &o->fresh, e)) < 0 ||
        (r = request_query_bool(q, "append", &o->part.at_end, e)) < 0 ||
        (r = request_query_bool(q, "parents", &parents, e)) < 0)
        return r;
    o->no_parents = !parents;
    if (o->fresh && o->in_place)
        return err_field(e, ERR_INVALID, "fresh", "a file that is written in place stays the same");
    return 0;
}

/* The range of the file that the body replaces. */
static int get_part(struct request *q, struct file_sink *s, struct err *e)
{
    const char *header = request_header(q, "Content-Range");
    struct fs_part *part = &s->options.part;
    struct range_place place;
    int r;

    part->is_part = header || part->at_end;
    if (q->verb == VERB_PATCH && !part->is_part)
        return err_field(e, ERR_INVALID, "Content-Range",
                         "a PATCH needs the place: Content-Range, or append=true");
    if (header && part->at_end)
        return err_field(e, ERR_INVALID, "append", "the place is given twice");
    if (part->is_part && s->options.fresh)
        return err_field(e, ERR_INVALID, "fresh", "a part leaves the rest of the file as it is");
    if (!header)
        return 0;
    if (q->verb == VERB_PUT && s->options.sha256)
        return err_field(e, ERR_INVALID, "Repr-Digest",
                         "a partial PUT can be checked by Content-Digest only");
    r = range_parse_place(header, &place, e);
    if (r < 0)
        return r;
    if (q->declared != UINT64_MAX && q->declared != place.range.len)
        return err_field(e, ERR_INVALID, "Content-Range", "the body has another length");
    s->options.max_bytes = place.range.len;
    part->offset = place.range.first;
    part->has_size = place.has_size;
    part->size = place.size;
    return 0;
}

static int get_upload(struct request *q, struct file_sink *s, struct err *e)
{
    uint64_t version = 0;
    bool is_there;
    int r = file_sink_upload_headers(s, q, &is_there, e);

    if (r < 0)
        return r;
    if (!is_there && q->verb == VERB_POST)
        return err_field(e, ERR_INVALID, "Upload-Complete",
                         "a POST begins an upload that can be resumed, and says so; a PUT does not "
                         "need to");
    if (!is_there)
        return 0;
    if (s->options.part.is_part)
        return err_field(e, ERR_UNIMPLEMENTED, "Upload-Complete",
                         "an upload that can be resumed is of a whole file");
    (void)file_sink_number(q, "Upload-Draft-Interop-Version", &version);
    /* A client that sends everything in one request and does not understand a 104 can't resume. */
    s->is_resumable = s->is_incomplete || version == RESUME_INTEROP_VERSION;
    if (s->has_length)
        s->options.expected = s->length;
    if (request_header(q, WIRE_HEADER_UPLOAD_AGE) &&
        (!file_sink_number(q, WIRE_HEADER_UPLOAD_AGE, &s->max_age_s) || !s->max_age_s ||
         s->max_age_s > RESUME_AGE_S))
        return err_field(e, ERR_INVALID, WIRE_HEADER_UPLOAD_AGE, "must be 1 to %d seconds",
                         RESUME_AGE_S);
    return 0;
}

static int put_get_options(struct request *q, struct file_sink *s, struct err *e)
{
    int r;

    if ((r = get_query(q, s, e)) < 0 || (r = files_take_path(q, s->cwd, e)) < 0 ||
        (r = file_sink_headers(s, q, e)) < 0 || (r = get_part(q, s, e)) < 0)
        return r;
    s->options.expected = q->declared == UINT64_MAX ? 0 : q->declared;
    r = get_upload(q, s, e);
    if (r < 0)
        return r;
    s->path = strdup(q->rest);
    return s->path ? 0 : err_oom(e);
}

static int new_put(struct request *q, struct err *e)
{
    struct file_put *p = calloc(1, sizeof(*p));
    int r;

    if (!p)
        return err_oom(e);
    q->state = p;
    p->sink = file_sink_new(q, e);
    if (!p->sink)
        return -ERR_EXHAUSTED;
    r = put_get_options(q, p->sink, e);
    if (r == 0) {
        struct file_sink *s = p->sink;

        r = upload_new_take(q, file_sink_ops(s), s, BODY_RING_BYTES, &p->upload, e);
        if (r < 0)
            p->sink = NULL;
    } else {
        p->sink = file_sink_free(p->sink);
    }
    return r;
}

/*
 * "104 Upload Resumption Supported", so that the client knows where to go on. The library knows no
 * such replies; nothing else is in the socket's buffer now that could get between.
 */
static void put_announce(struct request *q, struct file_put *p)
{
    struct file_sink *s = p->sink;
    uint64_t version = 0;
    char text[256];
    int n;

    p->is_announced = true;
    (void)file_sink_number(q, "Upload-Draft-Interop-Version", &version);
    if (!s->resume || version != RESUME_INTEROP_VERSION || !q->is_http11)
        return;
    n = snprintf(text, sizeof(text),
                 "HTTP/1.1 104 Upload Resumption Supported\r\nUpload-Draft-Interop-Version: %d\r\n"
                 "Location: " UPLOADS_PREFIX "%s\r\nUpload-Limit: max-age=%lld\r\n\r\n",
                 RESUME_INTEROP_VERSION, s->resume->id, (long long)s->resume->age_ms / 1000);
    if (send(q->conn->fd, text, (size_t)n, MSG_NOSIGNAL | MSG_DONTWAIT) == n)
        s->resume->is_known = true;
}

static int put_begin(struct request *q, struct err *e)
{
    struct file_put *p = q->state;
    int r;

    if (!p) {
        r = new_put(q, e);
        if (r < 0)
            return r;
        p = q->state;
    }
    r = file_sink_explain(p->sink, q, upload_begin(q, p->upload, e), e);
    if (r == 0 && !p->is_announced)
        put_announce(q, p);
    return r;
}

static int put_body(struct request *q, const char *data, size_t *len, struct err *e)
{
    struct file_put *p = q->state;

    return file_sink_explain(p->sink, q, upload_body(q, p->upload, data, len, e), e);
}

/* The first piece of several is there. */
static int reply_begun(struct request *q, const struct file_sink *s, struct err *e)
{
    char offset[32], location[64];
    struct reply *response;
    char *text;
    int n;

    (void)snprintf(location, sizeof(location), UPLOADS_PREFIX "%s", s->upload_id);
    (void)snprintf(offset, sizeof(offset), "%llu", (unsigned long long)s->upload_offset);
    n = asprintf(&text, "{\"upload\":\"%s\",\"offset\":%s}", location, offset);
    if (n < 0)
        return err_oom(e);
    response = reply_new_take(text, (size_t)n);
    if (!response) {
        free(text);
        return err_oom(e);
    }
    reply_add_header(response, "Content-Type", "application/json");
    reply_add_header(response, "Location", location);
    reply_add_header(response, "Upload-Complete", "?0");
    reply_add_header(response, "Upload-Offset", offset);
    file_sink_add_limit(response, s->upload_age_ms);
    q->bytes_out += (uint64_t)n;
    return respond_queue(q, HTTP_CREATED, response, e);
}

static int put_finish(struct request *q, struct err *e)
{
    struct file_put *p = q->state;
    int r;

    r = file_sink_explain(p->sink, q, upload_finish(q, p->upload, e), e);
    if (r == REQUEST_PARKED)
        return 0;
    if (r < 0)
        return r;
    return p->sink->is_incomplete ? reply_begun(q, p->sink, e) : file_sink_reply(p->sink, q, e);
}

static void put_done(struct request *q)
{
    struct file_put *p = q->state;

    if (p)
        pump_leave(p->upload); /* frees the sink */
    free(p);
}

const struct request_ops file_put_ops = {
    .begin = put_begin, .body = put_body, .finish = put_finish, .done = put_done};
