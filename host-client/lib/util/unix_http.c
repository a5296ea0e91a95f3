#include "lib/util/unix_http.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/http1.h"
#include "common/str.h"
#include "lib/util/socket.h"

#define UNIX_HTTP_HEAD_BYTES 8192 /* of a request */
#define UNIX_HTTP_READ_BYTES 16384
#define UNIX_HTTP_MAX_INTERIM 16

struct unix_http {
    char *path;
    int cancel_fd;
    int (*check_peer)(void *arg, int fd, struct err *e);
    void *check_arg;
    int fd;          /* -1: not connected */
    struct buf in;   /* read, and not used yet */
    bool is_kept;    /* the connection had an answer before this one */
    bool has_answer; /* a byte of this answer came */
    bool is_unconnected;
};

int unix_http_new(const struct unix_http_options *o, struct unix_http **ret, struct err *e)
{
    struct unix_http *h = calloc(1, sizeof(*h));

    if (!h || !(h->path = strdup(o->path))) {
        free(h);
        return err_oom(e);
    }
    h->cancel_fd = o->cancel_fd;
    h->check_peer = o->check_peer;
    h->check_arg = o->check_arg;
    h->fd = -1;
    buf_init(&h->in, HTTP1_HEAD_MAX + UNIX_HTTP_READ_BYTES);
    *ret = h;
    return 0;
}

static void unix_http_disconnect(struct unix_http *h)
{
    fd_close(TAKE_FD(h->fd));
    buf_clear(&h->in);
    h->is_kept = false;
}

struct unix_http *unix_http_free(struct unix_http *h)
{
    if (!h)
        return NULL;
    unix_http_disconnect(h);
    buf_done(&h->in);
    free(h->path);
    free(h);
    return NULL;
}

bool unix_http_is_unconnected(const struct unix_http *h)
{
    return h->is_unconnected;
}

/* ---- the connection ---- */

/* A server that ends closes the connections that it keeps: seen before anything is sent, that is no error. */
static bool is_still_open(const struct unix_http *h)
{
    char byte;

    return h->fd >= 0 && recv(h->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && errno == EAGAIN;
}

static int unix_http_connect(struct unix_http *h, int64_t deadline_mono_ms, struct err *e)
{
    int left = clock_until_ms(deadline_mono_ms);
    int r;

    if (is_still_open(h))
        return 0;
    unix_http_disconnect(h);
    h->is_unconnected = true;
    r = socket_connect(h->path, left >= 0 && left < SOCKET_CONNECT_MS ? left : SOCKET_CONNECT_MS,
                       &h->fd, e);
    if (r == 0 && h->check_peer)
        r = h->check_peer(h->check_arg, h->fd, e);
    h->is_unconnected = r < 0;
    if (r < 0)
        unix_http_disconnect(h);
    return r;
}

/* A server that answers before it has read everything has closed its end: then the answer is what counts. */
static int send_bytes(struct unix_http *h, const char *data, size_t len, int64_t deadline_mono_ms,
                      struct err *e)
{
    while (len) {
        ssize_t n = send(h->fd, data, len, MSG_NOSIGNAL | MSG_DONTWAIT);

        if (n >= 0) {
            data += n;
            len -= (size_t)n;
        } else if (errno == EAGAIN) {
            int r = socket_wait(h->fd, true, h->cancel_fd, deadline_mono_ms, e);

            if (r < 0)
                return r;
        } else if (errno == EPIPE || errno == ECONNRESET) {
            return 0;
        } else if (errno != EINTR) {
            return err_sys(e, errno, "send to '%s'", h->path);
        }
    }
    return 0;
}

static int send_all(struct unix_http *h, const struct unix_http_request *q, struct err *e)
{
    struct buf head _cleanup_buf_ = {0};
    int r;

    buf_init(&head, UNIX_HTTP_HEAD_BYTES);
    r = buf_addf(&head, e, "%s %s HTTP/1.1\r\nHost: bellhop\r\n", q->method, q->target);
    for (const char *const *l = q->headers; r == 0 && l && *l; l++)
        r = buf_addf(&head, e, "%s\r\n", *l);
    if (r == 0 && q->body)
        r = buf_addf(&head, e, "Content-Length: %zu\r\n", q->body_len);
    if (r == 0)
        r = buf_adds(&head, "\r\n", e);
    if (r == 0)
        r = send_bytes(h, head.data, head.len, q->deadline_mono_ms, e);
    if (head.data)
        explicit_bzero(head.data, head.len); /* it may have a token */
    return r < 0 || !q->body ? r : send_bytes(h, q->body, q->body_len, q->deadline_mono_ms, e);
}

/* Appends to h->in; *ret_len 0: the end. */
static int read_some(struct unix_http *h, int64_t deadline_mono_ms, size_t *ret_len, struct err *e)
{
    char data[UNIX_HTTP_READ_BYTES / 2];

    for (;;) {
        ssize_t n = recv(h->fd, data, sizeof(data), MSG_DONTWAIT);
        int r;

        if (n >= 0) {
            h->has_answer |= n > 0;
            *ret_len = (size_t)n;
            return n ? buf_add(&h->in, data, (size_t)n, e) : 0;
        }
        if (errno == EINTR)
            continue;
        if (errno == ECONNRESET) {
            *ret_len = 0;
            return 0;
        }
        if (errno != EAGAIN)
            return err_sys(e, errno, "receive from '%s'", h->path);
        r = socket_wait(h->fd, false, h->cancel_fd, deadline_mono_ms, e);
        if (r == -ERR_DEADLINE)
            return err_set(e, ERR_DEADLINE, "no answer in time from '%s'", h->path);
        if (r < 0)
            return r;
    }
}

static int fail_cut(const struct unix_http *h, struct err *e)
{
    return h->has_answer ? err_set(e, ERR_DATA_LOSS, "the answer of '%s' broke off", h->path)
                         : err_set(e, ERR_UNAVAILABLE,
                                   "'%s' closed the connection without an answer", h->path);
}

/* ---- the answer ---- */

/* The head of the answer, after interim ones. */
static int read_head(struct unix_http *h, int64_t deadline_mono_ms, struct http1_head *ret,
                     struct err *e)
{
    for (int n_interim = 0; n_interim <= UNIX_HTTP_MAX_INTERIM;) {
        size_t head_len = 0, n = 0;
        int r = http1_parse_head(h->in.data ? h->in.data : "", h->in.len, ret, &head_len, e);

        if (r < 0)
            return r;
        buf_consume(&h->in, head_len);
        if (head_len && ret->status / 100 != 1)
            return 0;
        if (head_len) {
            http1_head_done(ret);
            n_interim++;
            continue;
        }
        r = read_some(h, deadline_mono_ms, &n, e);
        if (r < 0 || !n)
            return r < 0 ? r : fail_cut(h, e);
    }
    return err_set(e, ERR_UNAVAILABLE, "'%s' sends interim answers without end", h->path);
}

static int take_bytes(struct buf *body, const char *data, size_t len, struct err *e)
{
    if (body->len + len > body->max)
        return err_set(e, ERR_EXHAUSTED, "the answer is larger than %zu bytes", body->max);
    return buf_add(body, data, len, e);
}

static int read_chunked(struct unix_http *h, int64_t deadline_mono_ms, struct buf *body,
                        struct err *e)
{
    struct http1_chunks chunks = {0};

    for (;;) {
        size_t n = 0;
        int r = http1_decode_chunks(&chunks, h->in.data, h->in.len, &n, e);

        if (r == 0 && n)
            r = take_bytes(body, h->in.data, n, e);
        buf_clear(&h->in);
        if (r < 0 || chunks.is_over)
            return r;
        r = read_some(h, deadline_mono_ms, &n, e);
        if (r < 0 || !n)
            return r < 0 ? r : fail_cut(h, e);
    }
}

/* Of a known length, or up to the end of the connection. */
static int read_plain(struct unix_http *h, int64_t deadline_mono_ms, const struct http1_head *head,
                      struct buf *body, struct err *e)
{
    uint64_t left = head->has_length ? head->length : UINT64_MAX;

    if (head->has_length && left > body->max)
        return err_set(e, ERR_EXHAUSTED, "the answer is larger than %zu bytes", body->max);
    for (;;) {
        size_t n = left < h->in.len ? (size_t)left : h->in.len;
        int r = n ? take_bytes(body, h->in.data, n, e) : 0;

        buf_consume(&h->in, n);
        left -= n;
        if (r < 0 || !left)
            return r;
        r = read_some(h, deadline_mono_ms, &n, e);
        if (r < 0)
            return r;
        if (!n)
            return head->has_length ? fail_cut(h, e) : 0;
    }
}

static const char *header_of(const struct http1_head *head, const char *name)
{
    for (size_t i = 0; name && i < head->n_headers; i++)
        if (strcasecmp(head->headers[i].name, name) == 0)
            return head->headers[i].value;
    return NULL;
}

static int read_body(struct unix_http *h, const struct unix_http_request *q,
                     const struct http1_head *head, struct unix_http_answer *ret, struct err *e)
{
    bool is_empty = head->status == 204 || head->status == 304 || str_eq(q->method, "HEAD");
    int64_t until = q->deadline_mono_ms;
    int r;

    if (head->is_chunked && head->has_length) /* two ends: a parser on the way may take the other */
        return err_set(e, ERR_UNAVAILABLE, "the answer of '%s' has two lengths", h->path);
    r = is_empty           ? 0
        : head->is_chunked ? read_chunked(h, until, &ret->body, e)
                           : read_plain(h, until, head, &ret->body, e);
    if (r < 0)
        return r;
    /* Bytes after the end belong to no request; the decoder of chunks drops them. */
    if (h->in.len || http1_is_hop_by_hop("close", header_of(head, "Connection")) ||
        !(is_empty || head->has_length))
        unix_http_disconnect(h);
    else
        h->is_kept = true;
    return 0;
}

static int receive_answer(struct unix_http *h, const struct unix_http_request *q,
                          struct unix_http_answer *ret, struct err *e)
{
    struct http1_head head = {0};
    const char *seen;
    int r = read_head(h, q->deadline_mono_ms, &head, e);

    if (r == 0)
        r = read_body(h, q, &head, ret, e);
    if (r == 0 && (seen = header_of(&head, ret->see)) && !(ret->seen = strdup(seen)))
        r = err_oom(e);
    ret->status = head.status;
    http1_head_done(&head);
    return r;
}

static int ask_once(struct unix_http *h, const struct unix_http_request *q,
                    struct unix_http_answer *ret, bool *ret_was_kept, struct err *e)
{
    int r = unix_http_connect(h, q->deadline_mono_ms, e);

    *ret_was_kept = h->is_kept;
    h->has_answer = false;
    if (r == 0)
        r = send_all(h, q, e);
    if (r == 0)
        r = receive_answer(h, q, ret, e);
    if (r < 0)
        unix_http_disconnect(h);
    return r;
}

int unix_http_do(struct unix_http *h, const struct unix_http_request *q,
                 struct unix_http_answer *ret, struct err *e)
{
    bool was_kept = false;
    int r = ask_once(h, q, ret, &was_kept, e);

    /* Closed just as the request left. Only a request that changes nothing may be sent twice. */
    if (r == -ERR_UNAVAILABLE && was_kept && !h->has_answer && str_eq(q->method, "GET"))
        r = ask_once(h, q, ret, &was_kept, e);
    return r;
}
