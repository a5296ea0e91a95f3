#include "http/respond.h"

#include <errno.h>
#include <microhttpd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/str.h"
#include "http/route.h"
#include "http/state.h"

/* struct reply is the library's struct MHD_Response under a name of ours; it has no definition. */
static struct MHD_Response *mhd_of(struct reply *r)
{
    return (struct MHD_Response *)r;
}

static struct reply *reply_of(struct MHD_Response *response)
{
    return (struct reply *)response;
}

struct reply *reply_new_empty(void)
{
    return reply_of(MHD_create_response_from_buffer(0, (void *)"", MHD_RESPMEM_PERSISTENT));
}

struct reply *reply_new_copy(const char *data, size_t len)
{
    if (!len)
        return reply_new_empty();
    return reply_of(
        MHD_create_response_from_buffer(len, (void *)(uintptr_t)data, MHD_RESPMEM_MUST_COPY));
}

struct reply *reply_new_take(char *text, size_t len)
{
    return reply_of(MHD_create_response_from_buffer(len, text, MHD_RESPMEM_MUST_FREE));
}

struct reply *reply_new_fd(int fd, uint64_t offset, uint64_t len)
{
    return reply_of(MHD_create_response_from_fd_at_offset64(len, fd, offset));
}

struct reply *reply_new_stream(uint64_t size, size_t block_bytes,
                               ssize_t (*read)(void *arg, uint64_t pos, char *data, size_t max),
                               void *arg, void (*free_arg)(void *arg))
{
    return reply_of(MHD_create_response_from_callback(size, block_bytes, read, arg, free_arg));
}

void reply_add_header(struct reply *r, const char *name, const char *value)
{
    (void)MHD_add_response_header(mhd_of(r), name, value);
}

bool reply_has_header(struct reply *r, const char *name)
{
    return MHD_get_response_header(mhd_of(r), name);
}

void reply_add_trailer(struct reply *r, const char *name, const char *value)
{
    (void)MHD_add_response_footer(mhd_of(r), name, value);
}

struct reply *reply_free(struct reply *r)
{
    if (r)
        MHD_destroy_response(mhd_of(r));
    return NULL;
}

int respond_queue_plain(struct request *q, int status, struct reply *response, struct err *e)
{
    enum MHD_Result queued;

    if (!response)
        return err_oom(e);
    if (status == HTTP_SWITCHING_PROTOCOLS) {
        (void)pthread_mutex_lock(&q->lock);
        q->is_upgraded = true;
        (void)pthread_mutex_unlock(&q->lock);
    }
    queued = MHD_queue_response(q->mhd, (unsigned)status, mhd_of(response));
    reply_free(response);
    if (queued != MHD_YES)
        return err_set(e, ERR_INTERNAL, "the HTTP library did not take the reply");
    q->status = status;
    q->stage = STAGE_REPLIED;
    return 0;
}

int respond_queue(struct request *q, int status, struct reply *response, struct err *e)
{
    if (!response)
        return err_oom(e);
    if (!reply_has_header(response, "Cache-Control"))
        reply_add_header(response, "Cache-Control", "no-store");
    reply_add_header(response, "X-Content-Type-Options", "nosniff");
    if (q->server->o.service->add_headers)
        q->server->o.service->add_headers(q, response);
    if (q->server->stopping)
        reply_add_header(response, "Connection", "close");
    return respond_queue_plain(q, status, response, e);
}

int respond_text_take(struct request *q, int status, const char *type, char *text, size_t len,
                      struct err *e)
{
    struct reply *response = reply_new_take(text, len);

    if (!response) {
        free(text);
        return err_oom(e);
    }
    reply_add_header(response, "Content-Type", type);
    q->bytes_out += len;
    return respond_queue(q, status, response, e);
}

int respond_empty(struct request *q, int status, struct err *e)
{
    return respond_queue(q, status, reply_new_empty(), e);
}

/* As the service writes it; ret->text is the caller's. status 0: the code's own. */
static int respond_write_error(const struct request *q, const struct err *error, int status,
                               struct error_reply *ret, struct err *e)
{
    *ret = (struct error_reply){.status = status ? status : err_http_status(error->code)};
    return q->server->o.service->write_error(q, error, ret, e);
}

static int respond_error(struct request *q, const struct err *error, int status, struct err *e)
{
    struct error_reply reply;
    struct reply *response;
    char allow[64];
    int r;

    r = respond_write_error(q, error, status, &reply, e);
    if (r < 0)
        return r;
    response = reply_new_take(reply.text, reply.len);
    if (!response) {
        free(reply.text);
        return err_oom(e);
    }
    reply_add_header(response, "Content-Type", reply.type);
    if (reply.status == HTTP_UNAUTHORIZED && reply.challenge)
        reply_add_header(response, "WWW-Authenticate", reply.challenge);
    if (reply.status == HTTP_METHOD_NOT_ALLOWED) {
        route_allow(q->route_verbs, allow, sizeof(allow));
        reply_add_header(response, "Allow", allow);
    }
    for (unsigned i = 0; i < q->n_reply_headers; i++)
        reply_add_header(response, q->reply_headers[i].name, q->reply_headers[i].value);
    if (reply.status == HTTP_BAD_GATEWAY)
        reply_add_header(response, "Retry-After", "1"); /* a server may be about to start */
    q->bytes_out += reply.len;
    return respond_queue(q, reply.status, response, e);
}

int respond_bytes_status(const struct err *error)
{
    if (error->code == ERR_ABORTED &&
        (str_eq(error->field, "if_match") || str_eq(error->field, "if_none_match")))
        return HTTP_PRECONDITION_FAILED;
    if (error->code == ERR_DATA_LOSS && str_eq(error->field, "digest"))
        return HTTP_BAD_REQUEST;
    if (error->code != ERR_EXHAUSTED)
        return 0;
    if (error->sys == EFBIG)
        return HTTP_CONTENT_TOO_LARGE;
    return error->sys == ENOSPC || error->sys == EDQUOT ? HTTP_INSUFFICIENT_STORAGE : 0;
}

/* ---- while a body still arrives --------------------------------------------------------------- */

#define REFUSAL_BYTES 16384

/* In one piece: a refusal is small, and the socket's buffer is empty. */
static void send_refusal(struct request *q, const char *data, size_t len)
{
    const struct conn *c = q->conn;

    if (!c->tls) {
        (void)send(c->fd, data, len, MSG_NOSIGNAL | MSG_DONTWAIT);
        (void)shutdown(c->fd, SHUT_WR);
    } else if (q->server->o.tls_finish) {
        q->server->o.tls_finish(c->tls, data, len);
    }
}

/* The reply, past the library. On the connection's own thread if it has TLS. */
static void write_refusal(struct request *q, const struct err *error, int status)
{
    _cleanup_free_ char *text = NULL;
    _cleanup_buf_ struct buf out = {0};
    struct error_reply reply;
    bool has_challenge;
    int r;

    if (respond_write_error(q, error, status, &reply, NULL) < 0)
        return;
    text = reply.text;
    has_challenge = reply.status == HTTP_UNAUTHORIZED && reply.challenge;
    buf_init(&out, REFUSAL_BYTES);
    r = buf_addf(&out, NULL,
                 "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\n"
                 "Cache-Control: no-store\r\nConnection: close\r\n%s%s%s",
                 reply.status, MHD_get_reason_phrase_for((unsigned)reply.status), reply.type,
                 reply.len, has_challenge ? "WWW-Authenticate: " : "",
                 has_challenge ? reply.challenge : "", has_challenge ? "\r\n" : "");
    for (unsigned i = 0; i < q->n_reply_headers && r == 0; i++)
        r = buf_addf(&out, NULL, "%s: %s\r\n", q->reply_headers[i].name, q->reply_headers[i].value);
    if (r == 0)
        r = buf_adds(&out, "\r\n", NULL);
    if (r == 0)
        r = buf_add(&out, text, reply.len, NULL);
    if (r < 0)
        return;
    send_refusal(q, out.data, out.len);
    q->status = reply.status;
    q->bytes_out += out.len;
}

static const struct err *kept_refusal(const struct request *q)
{
    static const struct err no_memory = {.code = ERR_EXHAUSTED, .message = "out of memory"};

    return q->refusal ? q->refusal : &no_memory;
}

static void begin_discard(struct request *q)
{
    write_refusal(q, kept_refusal(q), q->refusal_status);
    q->stage = STAGE_DISCARD;
    (void)pthread_mutex_lock(&q->lock);
    q->discard_until_ms = clock_mono_ms() + REQUEST_DISCARD_MS;
    q->body_ms = 0;
    (void)pthread_mutex_unlock(&q->lock);
}

/* An error is larger than the rest of a request, and few are refused. */
static void keep_refusal(struct request *q, const struct err *error, int status)
{
    q->refusal = q->refusal ? q->refusal : malloc(sizeof(*q->refusal));
    if (q->refusal)
        *q->refusal = *error;
    q->refusal_status = status ? status : err_http_status(error->code);
}

/* 0: the status of the error's code. */
static int status_of(const struct request *q, const struct err *error)
{
    if (q->error_status)
        return q->error_status;
    return q->route && !q->method ? respond_bytes_status(error) : 0;
}

enum MHD_Result refuse_now(struct request *q, const struct err *error)
{
    int status = status_of(q, error);

    return respond_error(q, error, status, NULL) < 0 ? MHD_NO : MHD_YES;
}

enum MHD_Result refuse_headers(struct request *q, const struct err *error, int status)
{
    keep_refusal(q, error, status ? status : status_of(q, error));
    if (q->expects_continue)
        return respond_error(q, error, q->refusal_status, NULL) < 0 ? MHD_NO : MHD_YES;
    q->stage = STAGE_DRAIN;
    if (q->declared != UINT64_MAX && q->declared > REQUEST_DRAIN_BYTES)
        begin_discard(q);
    return MHD_YES;
}

enum MHD_Result refuse_midway(struct request *q, const struct err *error, size_t *len)
{
    int status = status_of(q, error);
    uint64_t left = q->declared == UINT64_MAX ? 0 : q->declared - q->bytes_in;

    if (!status && error->code == ERR_EXHAUSTED && q->bytes_in + *len > q->route->max_body_bytes)
        status = HTTP_CONTENT_TOO_LARGE;
    keep_refusal(q, error, status);
    q->stage = STAGE_DRAIN;
    if (left > REQUEST_DRAIN_BYTES || q->route->flags & ROUTE_SLOW_BODY)
        begin_discard(q); /* the end of the body may be far away */
    return refuse_body(q, len);
}

enum MHD_Result refuse_body(struct request *q, size_t *len)
{
    q->discarded += *len;
    *len = 0;
    if (q->stage == STAGE_DRAIN && q->discarded > REQUEST_DRAIN_BYTES)
        begin_discard(q);
    return q->discarded > REQUEST_DISCARD_BYTES ? MHD_NO : MHD_YES;
}

enum MHD_Result refuse_end(struct request *q)
{
    if (q->stage == STAGE_DISCARD)
        return MHD_NO; /* the reply was sent: close */
    return respond_error(q, kept_refusal(q), q->refusal_status, NULL) < 0 ? MHD_NO : MHD_YES;
}

void refuse_stalled(struct request *q, int64_t now_ms)
{
    struct err error = {0};

    (void)err_set(&error, ERR_DEADLINE, "nothing of the body arrived for %d s",
                  (int)((now_ms - q->body_ms) / 1000));
    if (!q->conn->tls) /* this is another thread than the connection's */
        write_refusal(q, &error, HTTP_REQUEST_TIMEOUT);
    (void)shutdown(q->conn->fd, SHUT_RDWR);
    q->body_ms = 0;
}
