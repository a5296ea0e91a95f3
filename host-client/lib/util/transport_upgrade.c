/* transport_upgrade: connections that leave HTTP after a request, also below TLS. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/io.h"
#include "common/str.h"
#include "lib/util/socket.h"
#include "lib/util/transport_internal.h"

#define UPGRADE_HEAD_BYTES (16 * 1024)
#define UPGRADE_REASON_CHARS 300
#define TUNNEL_STACK_BYTES (256 * 1024) /* the TLS library's frames */
#define TUNNEL_BYTES (32 * 1024)

/* Waits for the socket below a handle, which may want the other direction because of TLS. */
static int upgrade_wait(struct http *h, int fd, bool for_write, const struct http_request *req,
                        struct err *e)
{
    int r = socket_wait(fd, for_write, http_cancel_fd(h), req->deadline_mono_ms, e);

    return r < 0 ? err_wrap(e, r, "'%s'", http_place(req)) : 0;
}

static int upgrade_send(struct http *h, int fd, const struct http_request *req, const char *data,
                        size_t len, struct err *e)
{
    while (len) {
        size_t n = 0;
        int r = http_raw_send(h, data, len, &n, e);

        if (r < 0)
            return err_wrap(e, r, "'%s'", http_place(req));
        if (!n)
            r = upgrade_wait(h, fd, true, req, e);
        if (r < 0)
            return r;
        data += n;
        len -= n;
    }
    return 0;
}

/* One byte: bytes after the head belong to the new protocol. */
static int upgrade_recv(struct http *h, int fd, const struct http_request *req, char *ret,
                        struct err *e)
{
    for (;;) {
        size_t n = 0;
        int r = http_raw_recv(h, ret, 1, &n);

        if (r < 0)
            return err_set(e, ERR_UNAVAILABLE, "'%s' closed the connection", http_place(req));
        if (r > 0)
            return 0;
        r = upgrade_wait(h, fd, false, req, e);
        if (r < 0)
            return r;
    }
}

static int upgrade_request(const struct http_request *req, struct buf *out, struct err *e)
{
    const char *host = strstr(req->url, "://") + 3;
    const char *path = host + strcspn(host, "/");
    int r = buf_addf(out, e, "%s %s HTTP/1.1\r\nHost: %.*s\r\nContent-Length: %zu\r\n", req->method,
                     *path ? path : "/", (int)(path - host), host, req->body_len);

    for (size_t i = 0; r == 0 && req->headers && req->headers[i]; i++)
        r = buf_addf(out, e, "%s\r\n", req->headers[i]);
    if (r == 0)
        r = buf_adds(out, "Connection: Upgrade\r\n\r\n", e);
    if (r == 0 && req->body_len)
        r = buf_add(out, req->body, req->body_len, e);
    return r;
}

/* The body of a refusal, as much as comes with its length. */
static void upgrade_read_refusal(struct http *h, int fd, const struct http_request *req,
                                 struct buf *head)
{
    const char *p = strcasestr(head->data, "\r\ncontent-length: ");
    unsigned n = 0;
    char c;

    if (!p || sscanf(p + strlen("\r\ncontent-length: "), "%9u", &n) != 1)
        n = 0;
    buf_clear(head);
    while (n-- && head->len < head->max && upgrade_recv(h, fd, req, &c, NULL) == 0)
        (void)buf_add(head, &c, 1, NULL);
}

static int upgrade_read_head(struct http *h, int fd, const struct http_request *req, struct err *e)
{
    _cleanup_free_ char *text = NULL;
    _cleanup_buf_ struct buf head;
    unsigned status = 0;
    int r = 0;

    buf_init(&head, UPGRADE_HEAD_BYTES);
    while (r == 0 && (head.len < 4 || memcmp(head.data + head.len - 4, "\r\n\r\n", 4) != 0)) {
        char c = '\0';

        r = upgrade_recv(h, fd, req, &c, e);
        if (r == 0)
            r = buf_add(&head, &c, 1, e);
    }
    if (r < 0)
        return r;
    if (sscanf(head.data, "HTTP/1.1 %3u", &status) != 1)
        return err_set(e, ERR_DATA_LOSS, "'%s' does not answer with HTTP", http_place(req));
    if (req->ret_status)
        *req->ret_status = (int)status;
    if (status == 101)
        return 0;
    upgrade_read_refusal(h, fd, req, &head);
    text = str_clamp(head.len ? head.data : "", UPGRADE_REASON_CHARS);
    return err_set(e,
                   status == 404                    ? ERR_NOT_FOUND
                   : status == 401 || status == 403 ? ERR_DENIED
                                                    : ERR_UNAVAILABLE,
                   "'%s' refused the upgrade with the status %u: %.1200s", http_place(req), status,
                   text ? text : "");
}

/* ---- TLS below a socket pair ---- */

/* Owned by its thread. curl's side is not a descriptor that somebody else could read. */
struct tls_tunnel {
    struct http *http;
    int socket, fd; /* below TLS; our end of the pair */
    /* A TLS library wants the same bytes at the same place again if it could not send them: they stay until sent. */
    char up[TUNNEL_BYTES];
    size_t up_at, up_len;
    struct buf down;
    bool up_eof, down_eof;
    bool
        has_more; /* TLS may have bytes that it has taken from the socket: poll() does not see them */
};

static int tls_pull(struct tls_tunnel *t)
{
    char data[8192];

    t->has_more = false;
    while (!t->down_eof) {
        size_t n = 0;
        int r;

        if (t->down.len >= TUNNEL_BYTES) {
            t->has_more = true;
            return 0;
        }
        r = http_raw_recv(t->http, data, sizeof(data), &n);
        if (r == 0)
            return 0;
        t->down_eof = r < 0;
        if (r > 0 && buf_add(&t->down, data, n, NULL) < 0)
            return -1;
    }
    return 0;
}

static int tls_push(struct tls_tunnel *t)
{
    while (t->up_len) {
        size_t n = 0;

        if (http_raw_send(t->http, t->up + t->up_at, t->up_len, &n, NULL) < 0)
            return -1;
        if (!n)
            return 0;
        t->up_at += n;
        t->up_len -= n;
    }
    return 0;
}

static int tls_local(struct tls_tunnel *t)
{
    ssize_t n;

    if (!t->up_eof && !t->up_len) {
        n = recv(t->fd, t->up, sizeof(t->up), MSG_DONTWAIT);
        if (n < 0 && errno != EAGAIN && errno != EINTR)
            return -1;
        t->up_eof = n == 0;
        t->up_at = 0;
        t->up_len = n > 0 ? (size_t)n : 0;
    }
    if (t->down.len) {
        n = send(t->fd, t->down.data, t->down.len, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0 && errno != EAGAIN && errno != EINTR)
            return -1;
        if (n > 0)
            buf_consume(&t->down, (size_t)n);
    }
    return 0;
}

/* Waits for what the next round can use: a side whose buffer is full is not asked. -1: our caller closed its end. */
static int tls_wait(struct tls_tunnel *t)
{
    struct pollfd p[2] = {{.fd = t->socket}, {.fd = t->fd}};

    if (!t->down_eof && t->down.len < TUNNEL_BYTES)
        p[0].events |= POLLIN;
    if (t->up_len)
        p[0].events |= POLLOUT;
    if (!t->up_eof && !t->up_len)
        p[1].events |= POLLIN;
    if (t->down.len)
        p[1].events |= POLLOUT;
    /* An end of the connection that is not asked for would be told again and again. */
    if (!p[0].events)
        p[0].fd = -1;
    if (!p[1].events && t->up_len)
        p[1].fd = -1;
    (void)poll(p, 2, t->has_more && t->down.len < TUNNEL_BYTES ? 0 : -1);
    return t->up_eof && !t->up_len && (p[1].revents & POLLHUP) ? -1 : 0;
}

/* A half-close reaches the peer as the end of its input, without TLS's own word for it: curl has no call for that. */
static void tls_loop(struct tls_tunnel *t)
{
    bool is_shut = false;

    while (!t->down_eof || t->down.len) {
        if (tls_pull(t) < 0 || tls_local(t) < 0 || tls_push(t) < 0)
            return;
        if (t->up_eof && !t->up_len && !is_shut) {
            is_shut = true;
            (void)shutdown(t->socket, SHUT_WR);
        }
        if ((!t->down_eof || t->down.len) && tls_wait(t) < 0)
            return;
    }
}

static void *tls_main(void *arg)
{
    struct tls_tunnel *t = arg;

    tls_loop(t);
    fd_close(t->fd);
    (void)http_free(t->http);
    buf_done(&t->down);
    free(t);
    return NULL;
}

/* Takes over the handle. */
static int tls_start_take(struct http *own, int socket, int *ret_fd, struct err *e)
{
    struct tls_tunnel *t = calloc(1, sizeof(*t));
    pthread_attr_t attr;
    pthread_t thread;
    int pair[2];
    int r = t ? socket_pair(pair, e) : err_oom(e);

    if (r < 0) {
        free(t);
        return r;
    }
    t->http = own;
    t->socket = socket;
    t->fd = pair[1];
    buf_init(&t->down, 2 * TUNNEL_BYTES);
    (void)pthread_attr_init(&attr);
    (void)pthread_attr_setstacksize(&attr, TUNNEL_STACK_BYTES);
    (void)pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    r = pthread_create(&thread, &attr, tls_main, t);
    (void)pthread_attr_destroy(&attr);
    if (r != 0) {
        fd_close(pair[0]);
        fd_close(pair[1]);
        free(t);
        return err_sys(e, r, "start a thread");
    }
    *ret_fd = pair[0];
    return 0;
}

static int upgrade_finish(struct http *own, int socket, bool is_tls, int *ret_fd, struct err *e)
{
    int fd, r;

    if (is_tls)
        return tls_start_take(own, socket, ret_fd, e);
    fd = fcntl(socket, F_DUPFD_CLOEXEC, 3);
    if (fd < 0)
        return err_sys(e, errno, "dup");
    r = io_set_nonblock(fd, false, e);
    if (r < 0) {
        fd_close(fd);
        return r;
    }
    *ret_fd = fd;
    return 0;
}

int http_upgrade(struct http *h, const struct http_request *req, int *ret_fd, struct err *e)
{
    bool is_tls = strncasecmp(req->url, "https://", strlen("https://")) == 0;
    _cleanup_buf_ struct buf out;
    struct http *own = NULL;
    int socket = -1, fd = -1;
    int r = http_connect(h, req, &own, &socket, e);

    buf_init(&out, UPGRADE_HEAD_BYTES + req->body_len);
    if (r < 0)
        return r;
    r = upgrade_request(req, &out, e);
    if (r == 0)
        r = upgrade_send(own, socket, req, out.data, out.len, e);
    if (r == 0)
        r = upgrade_read_head(own, socket, req, e);
    if (r == 0)
        r = upgrade_finish(own, socket, is_tls, &fd, e);
    if (r < 0 || !is_tls)
        (void)http_free(own);
    if (r == 0)
        *ret_fd = fd;
    return r;
}
