/* proxy: the client's side of a relayed request. */
#include "http/proxy.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#include "common/cleanup.h"
#include "common/str.h"
#include "http/proxy_state.h"
#include "http/relay.h"
#include "http/respond.h"

#define RING_BYTES (128 * 1024)
#define CHUNK_OVERHEAD 12 /* size in hex and two line ends */
#define BLOCK_BYTES (16 * 1024)
#define LARGE_BLOCK_BYTES (256 * 1024) /* of a body that is larger than that */

void proxy_unref(void *arg)
{
    struct proxy *p = arg;

    if (--p->refs > 0)
        return;
    fd_close(p->fd);
    ring_done(&p->up);
    ring_done(&p->down);
    buf_done(&p->hello);
    buf_done(&p->early);
    http1_head_done(&p->head);
    (void)pthread_mutex_destroy(&p->lock);
    request_unref(p->request);
    free(p);
}

/* ---- the request's head for the server ---- */

struct copying {
    struct request *q;
    struct proxy *p;
    const struct proxy_target *target;
};

struct hop_search {
    const char *name;
    bool is_found;
};

static int look_in_connection(void *arg, const char *name, const char *value)
{
    struct hop_search *s = arg;

    s->is_found =
        s->is_found || (strcasecmp(name, "Connection") == 0 && http1_is_hop_by_hop(s->name, value));
    return 0;
}

/* There may be more than one Connection header. */
static bool is_of_this_hop(struct request *q, const char *name)
{
    struct hop_search s = {.name = name, .is_found = http1_is_hop_by_hop(name, NULL)};

    if (!s.is_found)
        (void)request_each_header(q, look_in_connection, &s);
    return s.is_found;
}

static bool is_dropped(const struct copying *c, const char *name, const char *value)
{
    static const char *const names[] = {"Host",
                                        "Expect",
                                        "Content-Length",
                                        "X-Forwarded-For",
                                        "X-Forwarded-Host",
                                        "X-Forwarded-Proto",
                                        "X-Forwarded-Prefix"};

    for (size_t i = 0; i < N_ELEMENTS(names); i++)
        if (strcasecmp(names[i], name) == 0)
            return true;
    if (c->target->drops && c->target->drops(c->target->arg, name, value))
        return true;
    return is_of_this_hop(c->q, name);
}

static int copy_header(void *arg, const char *name, const char *value)
{
    const struct copying *c = arg;

    return is_dropped(c, name, value) ? 0 : buf_addf(&c->p->hello, NULL, "%s: %s\r\n", name, value);
}

/* Appends the client's address to the X-Forwarded-For of the proxies in front of us. None for a unix socket. */
static int add_client(struct request *q, struct proxy *p, const struct proxy_target *t,
                      struct err *e)
{
    const char *before = request_header(q, "X-Forwarded-For");
    struct sockaddr_storage peer = {0};
    socklen_t len = sizeof(peer);
    char text[INET6_ADDRSTRLEN] = "";

    if (!t->is_own && getpeername(request_fd(q), (struct sockaddr *)&peer, &len) == 0 &&
        peer.ss_family == AF_INET)
        (void)inet_ntop(AF_INET, &((struct sockaddr_in *)&peer)->sin_addr, text, sizeof(text));
    else if (peer.ss_family == AF_INET6)
        (void)inet_ntop(AF_INET6, &((struct sockaddr_in6 *)&peer)->sin6_addr, text, sizeof(text));
    if (!before && !text[0])
        return 0;
    return buf_addf(&p->hello, e, "X-Forwarded-For: %s%s%s\r\n", before ? before : "",
                    before && text[0] ? ", " : "", text);
}

/* Keeps the X-Forwarded-Proto of a front that ends TLS: a server that redirects to https would loop otherwise. */
static int add_forwarded(struct request *q, struct proxy *p, const struct proxy_target *t,
                         struct err *e)
{
    const char *proto = request_header(q, "X-Forwarded-Proto");
    const char *host = request_header(q, "X-Forwarded-Host");
    int r = buf_addf(&p->hello, e, "Host: %s\r\nX-Forwarded-Proto: %s\r\n%s", t->host,
                     proto && strcasecmp(proto, "https") == 0 ? "https" : "http",
                     t->headers ? t->headers : "");

    if (!host)
        host = request_host(q);
    if (r == 0 && t->prefix)
        r = buf_addf(&p->hello, e, "X-Forwarded-Prefix: %s\r\n", t->prefix);
    if (r == 0)
        r = add_client(q, p, t, e);
    if (r == 0 && host)
        r = buf_addf(&p->hello, e, "X-Forwarded-Host: %s\r\n", host);
    if (r == 0 && p->is_upgrade)
        return buf_addf(&p->hello, e, "Connection: Upgrade\r\nUpgrade: %s\r\n\r\n",
                        request_header(q, "Upgrade"));
    if (r == 0)
        r = buf_adds(&p->hello, "Connection: close\r\n", e);
    if (r == 0 && q->declared == UINT64_MAX)
        r = buf_adds(&p->hello, "Transfer-Encoding: chunked\r\n", e);
    else if (r == 0 && (q->declared || request_header(q, "Content-Length")))
        r = buf_addf(&p->hello, e, "Content-Length: %" PRIu64 "\r\n", q->declared);
    return r < 0 ? r : buf_adds(&p->hello, "\r\n", e);
}

static int write_hello(struct request *q, struct proxy *p, const struct proxy_target *t,
                       struct err *e)
{
    struct copying c = {.q = q, .p = p, .target = t};
    int r;

    r = buf_addf(&p->hello, e, "%s %s%s HTTP/1.1\r\n", q->verb_name, *t->path == '/' ? "" : "/",
                 t->path);
    if (r < 0)
        return r;
    r = request_each_header(q, copy_header, &c);
    return r < 0 ? err_oom(e) : add_forwarded(q, p, t, e);
}

/* ---- the request ---- */

int proxy_new_take(struct request *q, const struct proxy_target *t, struct proxy **ret,
                   struct err *e)
{
    struct proxy *p = calloc(1, sizeof(*p));
    int r;

    if (!p) {
        fd_close(t->fd);
        return err_oom(e);
    }
    *p = (struct proxy){.request = request_ref(q),
                        .server = q->server,
                        .port = t->port,
                        .reply_name = t->reply_name,
                        .drops_reply = t->drops_reply,
                        .reply_value = t->reply_value,
                        .answer_ms = t->answer_ms ? t->answer_ms : PROXY_ANSWER_MS,
                        .refs = 1,
                        .fd = t->fd};
    (void)snprintf(p->what, sizeof(p->what), "%s", t->what);
    if (p->fd >= 0) /* an agent's unix socket */
        request_widen_socket(p->fd, q->declared);
    (void)pthread_mutex_init(&p->lock, NULL);
    buf_init(&p->hello, 2 * SERVER_POOL_BYTES);
    buf_init(&p->early, HTTP1_HEAD_MAX + PROXY_IO_BYTES);
    /* A request with a body may ask for it too (curl's h2c); it is passed on without, so that its body has an end. */
    p->is_upgrade = !q->declared && request_header_has(q, "Connection", "upgrade") &&
                    request_header(q, "Upgrade");
    r = ring_init(&p->up, RING_BYTES, e);
    if (r == 0)
        r = ring_init(&p->down, RING_BYTES, e);
    if (r == 0)
        r = write_hello(q, p, t, e);
    if (r == 0)
        WITH_LOCK (&p->lock) {
            proxy_kick(p);
            r = p->r;
        }
    if (r < 0) {
        proxy_unref(p);
        return err_oom(e);
    }
    *ret = p;
    return 0;
}

/*
 * With the lock: sends a piece at once if nothing is before it, and returns the bytes sent. The loop, which sends the
 * ring's bytes, has none. A server that has stopped reading may still reply: the piece counts as sent.
 */
static size_t send_body_piece(struct proxy *p, const char *data, size_t len)
{
    ssize_t n;

    if (!p->is_hello_sent || p->up.len || p->fd < 0)
        return 0;
    n = send(p->fd, data, len, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0)
        return errno == EAGAIN || errno == EINTR ? 0 : len;
    return (size_t)n;
}

/* With the lock. Puts a piece into the ring, as on the wire; returns the bytes taken. */
static size_t put_body_piece(struct proxy *p, const char *data, size_t len, bool is_chunked)
{
    size_t room = p->up.cap - p->up.len;
    char size[CHUNK_OVERHEAD];
    int n;

    if (!is_chunked) {
        size_t sent = send_body_piece(p, data, len);

        return sent + (sent < len ? ring_put(&p->up, data + sent, len - sent) : 0);
    }
    if (room <= CHUNK_OVERHEAD)
        return 0;
    if (len > room - CHUNK_OVERHEAD)
        len = room - CHUNK_OVERHEAD;
    n = snprintf(size, sizeof(size), "%x\r\n", (unsigned)len);
    (void)ring_put(&p->up, size, (size_t)n);
    (void)ring_put(&p->up, data, len);
    (void)ring_put(&p->up, "\r\n", 2);
    return len;
}

int proxy_body(struct proxy *p, const char *data, size_t *len, struct err *e)
{
    struct request *q = p->request;
    size_t left = *len;

    for (;;) {
        int r;

        (void)pthread_mutex_lock(&p->lock);
        r = p->r;
        if (r < 0)
            *e = p->error;
        else if (p->down_ended)
            left = 0; /* the server has replied already: drop the rest of the body */
        else
            left -= put_body_piece(p, data + (*len - left), left, q->declared == UINT64_MAX);
        p->wants_room = left > 0;
        if (r == 0 && p->up.len)
            proxy_kick(p);
        (void)pthread_mutex_unlock(&p->lock);
        if (r < 0) {
            q->error_status = r == -ERR_DEADLINE ? 0 : HTTP_BAD_GATEWAY;
            return r;
        }
        if (!left || request_park(q)) {
            *len = left;
            return 0;
        }
        if (request_is_gone(q))
            return err_set(e, ERR_CANCELED, "the client has gone");
    }
}

/*
 * With the lock, once the socket is handed over: reads from it. 1: *ret_n bytes of payload. 0: there is nothing yet; or
 * the body is complete, and down_ended is set.
 */
static int read_socket(struct proxy *p, char *data, size_t max, size_t *ret_n)
{
    for (;;) {
        ssize_t n = recv(p->fd, data, max, MSG_DONTWAIT);
        size_t len = (size_t)n;
        int r;

        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return 0;
        if (n > 0)
            r = proxy_decode_body(p, data, &len, &p->error);
        else
            r = proxy_end_body(p, &p->error);
        if (r < 0)
            return p->r = r;
        p->down_ended = r > 0;
        if (n > 0 && len) {
            *ret_n = len;
            return 1;
        }
        if (p->down_ended)
            return 0;
    }
}

static ssize_t read_reply(void *arg, uint64_t pos, char *data, size_t max)
{
    struct proxy *p = arg;

    (void)pos;
    for (;;) {
        bool is_over;
        size_t n;
        int r;

        (void)pthread_mutex_lock(&p->lock);
        n = ring_get(&p->down, data, max);
        if (!n && p->is_handed && !p->down_ended && p->r == 0)
            (void)read_socket(p, data, max, &n);
        is_over = p->down_ended;
        r = p->r;
        p->wants_data = !n && !is_over;
        /* For room in the ring, or for an event of the socket. */
        if (r == 0 && !is_over && (p->is_handed ? !n : n))
            proxy_kick(p);
        (void)pthread_mutex_unlock(&p->lock);
        p->request->bytes_out += n;
        if (n)
            return (ssize_t)n;
        if (r < 0 || request_is_gone(p->request))
            return request_break_off(p->request, data);
        if (is_over)
            return REPLY_END;
        if (request_park(p->request))
            return 0;
    }
}

static int take_proxy_peer(void *arg, const char **ret_late, size_t *ret_late_len)
{
    struct proxy *p = arg;

    *ret_late = p->early.data;
    *ret_late_len = p->early.len;
    return TAKE_FD(p->fd);
}

/* There may be more than one Connection header. */
static bool is_for_one_hop(const struct http1_head *head, const char *name)
{
    bool is = http1_is_hop_by_hop(name, NULL);

    for (size_t i = 0; i < head->n_headers && !is; i++)
        if (strcasecmp(head->headers[i].name, "Connection") == 0)
            is = http1_is_hop_by_hop(name, head->headers[i].value);
    return is;
}

static void copy_reply_headers(const struct proxy *p, struct reply *response)
{
    bool is_upgrade = p->head.status == HTTP_SWITCHING_PROTOCOLS;

    for (size_t i = 0; i < p->head.n_headers; i++) {
        const struct http1_header *h = &p->head.headers[i];

        if (p->drops_reply && p->drops_reply(h->name))
            continue;
        if (is_upgrade && strcasecmp(h->name, "Upgrade") == 0)
            reply_add_header(response, h->name, h->value);
        else if (strcasecmp(h->name, "Content-Length") != 0 && !is_for_one_hop(&p->head, h->name))
            reply_add_header(response, h->name, h->value);
    }
}

static int send_reply(struct request *q, struct proxy *p, struct err *e)
{
    bool is_sized = p->head.has_length && !p->head.is_chunked;
    struct reply *response;

    if (p->head.status == HTTP_SWITCHING_PROTOCOLS) {
        response = relay_new_reply(q, take_proxy_peer, p);
    } else if (!proxy_has_body(p) && !is_sized) {
        response = reply_new_empty();
    } else {
        (void)pthread_mutex_lock(&p->lock);
        p->refs++;
        p->wants_hand = true;
        proxy_kick(p);
        (void)pthread_mutex_unlock(&p->lock);
        request_expect_sent(q, is_sized ? p->head.length : 0);
        response = reply_new_stream(
            is_sized ? p->head.length : REPLY_SIZE_UNKNOWN,
            is_sized && p->head.length > LARGE_BLOCK_BYTES ? LARGE_BLOCK_BYTES : BLOCK_BYTES,
            read_reply, p, proxy_unref);
        if (!response)
            proxy_unref(p);
    }
    if (!response)
        return err_oom(e);
    copy_reply_headers(p, response);
    if (p->reply_name)
        reply_add_header(response, p->reply_name, p->reply_value);
    return respond_queue_plain(q, p->head.status, response, e);
}

int proxy_finish(struct proxy *p, struct err *e)
{
    struct request *q = p->request;

    for (;;) {
        bool has_head;
        int r;

        (void)pthread_mutex_lock(&p->lock);
        if (!p->up_ended) {
            p->up_ended = q->declared != UINT64_MAX || p->down_ended ||
                          (p->up.cap - p->up.len >= 5 && ring_put(&p->up, "0\r\n\r\n", 5) == 5);
            p->wants_room = !p->up_ended;
            proxy_kick(p);
        }
        has_head = p->has_head;
        r = p->r;
        if (r < 0)
            *e = p->error;
        (void)pthread_mutex_unlock(&p->lock);
        if (has_head)
            return send_reply(q, p, e);
        if (r < 0) {
            q->error_status = r == -ERR_DEADLINE ? 0 : HTTP_BAD_GATEWAY;
            return r;
        }
        if (request_park(q))
            return 0;
        if (request_is_gone(q))
            return err_set(e, ERR_CANCELED, "the client has gone");
    }
}

struct proxy *proxy_leave(struct proxy *p)
{
    if (!p)
        return NULL;
    (void)pthread_mutex_lock(&p->lock);
    p->is_left = true;
    proxy_kick(p); /* the loop releases its part */
    (void)pthread_mutex_unlock(&p->lock);
    proxy_unref(p);
    return NULL;
}
