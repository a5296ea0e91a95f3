#include "http/refuse.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "http/respond.h"
#include "http/state.h"

#define HEAD_BYTES 2048

/* The whole reply in one piece: it is small and the socket's buffer is empty. */
static void write_reply(struct request *q, int fd, const struct err *error, int status)
{
    struct error_reply reply;
    _cleanup_free_ char *text = NULL;
    bool has_challenge;
    char head[HEAD_BYTES];
    int n;

    if (respond_write_error(q, error, status, &reply, NULL) < 0)
        return;
    text = reply.text;
    has_challenge = reply.status == HTTP_UNAUTHORIZED && reply.challenge;
    n = snprintf(head, sizeof(head),
                 "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\n"
                 "Cache-Control: no-store\r\nConnection: close\r\n%s%s%s",
                 reply.status, respond_reason(reply.status), reply.type, reply.len,
                 has_challenge ? "WWW-Authenticate: " : "", has_challenge ? reply.challenge : "",
                 has_challenge ? "\r\n" : "");
    for (unsigned i = 0; i < q->n_reply_headers && n < HEAD_BYTES - 2; i++)
        n += snprintf(head + n, sizeof(head) - (size_t)n, "%s: %s\r\n", q->reply_headers[i].name,
                      q->reply_headers[i].value);
    if (n >= HEAD_BYTES - 2)
        return;
    n += snprintf(head + n, sizeof(head) - (size_t)n, "\r\n");
    if (send(fd, head, (size_t)n, MSG_NOSIGNAL | MSG_DONTWAIT | MSG_MORE) == n)
        (void)send(fd, text, reply.len, MSG_NOSIGNAL | MSG_DONTWAIT);
    (void)shutdown(fd, SHUT_WR);
    q->status = reply.status;
    q->bytes_out += (size_t)n + reply.len;
}

static void begin_discard(struct request *q)
{
    write_reply(q, q->conn->fd, &q->refusal, q->refusal_status);
    q->stage = STAGE_DISCARD;
    (void)pthread_mutex_lock(&q->lock);
    q->discard_until_ms = clock_mono_ms() + REQUEST_DISCARD_MS;
    q->body_ms = 0;
    (void)pthread_mutex_unlock(&q->lock);
}

static void keep_refusal(struct request *q, const struct err *error, int status)
{
    q->refusal = *error;
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
        status = 413;
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
    return respond_error(q, &q->refusal, q->refusal_status, NULL) < 0 ? MHD_NO : MHD_YES;
}

void refuse_stalled(struct request *q, int fd, int64_t now_ms)
{
    struct err error = {0};

    (void)err_set(&error, ERR_DEADLINE, "nothing of the body arrived for %d s",
                  (int)((now_ms - q->body_ms) / 1000));
    write_reply(q, fd, &error, HTTP_REQUEST_TIMEOUT);
    (void)shutdown(fd, SHUT_RDWR);
    q->body_ms = 0;
}
