/*
 * proxy: /v1/proxy/{port}/...: HTTP/1.1 to a port in the box, the client's side. A request to upgrade (WebSocket)
 * is forwarded, and after the 101 the two sockets are joined.
 */
#include "api/proxy/proxy.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#include "agent.h"
#include "api/dialect.h"
#include "common/cleanup.h"
#include "common/str.h"
#include "http/relay.h"
#include "http/respond.h"
#include "system/auth.h"

#define RING_BYTES (128 * 1024)
#define CHUNK_OVERHEAD 12 /* size in hex and two line ends */
#define BLOCK_BYTES (16 * 1024)
#define PROXY_ANSWER_MS (10 * 60 * 1000) /* from the end of the request to the head of the reply */
#define PROXY_ANSWER_MAX_MS (24 * 3600 * 1000)

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

/* ---- the request's head for the server in the box ---- */

struct copying {
    struct proxy *p;
    const char *connection;
};

static bool is_our_token(const struct copying *c, const char *value)
{
    if (strncasecmp(value, "Bearer ", 7) == 0)
        value += 7;
    return auth_matches(request_agent(c->p->request)->auth, value);
}

static bool is_dropped(const struct copying *c, const char *name, const char *value)
{
    static const char *const names[] = {"Host",
                                        "Expect",
                                        "Content-Length",
                                        "X-Forwarded-For",
                                        "X-Forwarded-Host",
                                        "X-Forwarded-Proto",
                                        "X-Forwarded-Prefix",
                                        PROXY_TIMEOUT_HEADER};

    for (size_t i = 0; i < N_ELEMENTS(names); i++)
        if (strcasecmp(names[i], name) == 0)
            return true;
    if (strcasecmp(name, "Authorization") == 0 || strcasecmp(name, "X-Access-Token") == 0)
        return is_our_token(c, value);
    return http1_is_hop_by_hop(name, c->connection);
}

static int copy_header(void *arg, const char *name, const char *value)
{
    const struct copying *c = arg;

    return is_dropped(c, name, value) ? 0 : buf_addf(&c->p->hello, NULL, "%s: %s\r\n", name, value);
}

/* Appends the client's address to the X-Forwarded-For of the proxies in front of us. None for a unix socket. */
static int add_client(struct request *q, struct proxy *p, struct err *e)
{
    const char *before = request_header(q, "X-Forwarded-For");
    struct sockaddr_storage peer = {0};
    socklen_t len = sizeof(peer);
    char text[INET6_ADDRSTRLEN] = "";

    if (getpeername(request_fd(q), (struct sockaddr *)&peer, &len) == 0 &&
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
static int add_forwarded(struct request *q, struct proxy *p, struct err *e)
{
    const char *proto = request_header(q, "X-Forwarded-Proto");
    const char *host = request_header(q, "X-Forwarded-Host");
    int r = buf_addf(&p->hello, e,
                     "Host: localhost:%d\r\nX-Forwarded-Proto: %s\r\n"
                     "X-Forwarded-Prefix: /v1/proxy/%d\r\n",
                     (int)p->port, proto && strcasecmp(proto, "https") == 0 ? "https" : "http",
                     (int)p->port);

    if (!host)
        host = request_host(q);
    if (r == 0)
        r = add_client(q, p, e);
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

/* Fills p->hello. path: the raw target after the port, with the query. */
static int proxy_write_hello(struct request *q, struct proxy *p, const char *path, struct err *e)
{
    struct copying c = {.p = p, .connection = request_header(q, "Connection")};
    int r;

    r = buf_addf(&p->hello, e, "%s %s%s HTTP/1.1\r\n", q->verb_name, *path == '/' ? "" : "/", path);
    if (r < 0)
        return r;
    r = request_each_header(q, copy_header, &c);
    return r < 0 ? err_oom(e) : add_forwarded(q, p, e);
}

/* ---- the request ---- */

/* The deadline of the reply's head. */
static int read_patience(struct request *q, uint64_t *ret_ms, struct err *e)
{
    const char *value = request_header(q, PROXY_TIMEOUT_HEADER);
    int r = value ? str_parse_u64(value, 1, PROXY_ANSWER_MAX_MS, ret_ms, e) : 0;

    return r < 0 ? err_at(e, r, PROXY_TIMEOUT_HEADER) : 0;
}

static int proxy_begin(struct request *q, struct err *e)
{
    uint64_t patience_ms = PROXY_ANSWER_MS;
    struct proxy *p;
    const char *path;
    uint16_t port;
    int r;

    r = dial_parse_port(q->raw_rest, &port, &path, e);
    if (r == 0)
        r = server_check_port(q->server, port, e);
    if (r == 0)
        r = read_patience(q, &patience_ms, e);
    if (r < 0)
        return r;
    p = calloc(1, sizeof(*p));
    if (!p)
        return err_oom(e);
    *p = (struct proxy){.request = request_ref(q),
                        .server = q->server,
                        .port = port,
                        .patience_ms = (int64_t)patience_ms,
                        .refs = 1,
                        .fd = -1};
    (void)pthread_mutex_init(&p->lock, NULL);
    buf_init(&p->hello, 2 * SERVER_POOL_BYTES);
    buf_init(&p->early, HTTP1_HEAD_MAX + PROXY_IO_BYTES);
    q->state = p;
    p->is_upgrade = request_header_has(q, "Connection", "upgrade") && request_header(q, "Upgrade");
    if (ring_init(&p->up, RING_BYTES, e) < 0 || ring_init(&p->down, RING_BYTES, e) < 0)
        return -ERR_EXHAUSTED;
    r = proxy_write_hello(q, p, path, e);
    if (r < 0)
        return r;
    (void)pthread_mutex_lock(&p->lock);
    proxy_kick(p);
    r = p->r;
    (void)pthread_mutex_unlock(&p->lock);
    return r < 0 ? err_oom(e) : 0;
}

/* With the lock. Puts a piece into the ring, as on the wire; returns the bytes taken. */
static size_t put_body_piece(struct proxy *p, const char *data, size_t len, bool is_chunked)
{
    size_t room = p->up.cap - p->up.len;
    char size[CHUNK_OVERHEAD];
    int n;

    if (!is_chunked)
        return ring_put(&p->up, data, len);
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

static int proxy_body(struct request *q, const char *data, size_t *len, struct err *e)
{
    struct proxy *p = q->state;
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
        if (r == 0)
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
        is_over = p->down_ended;
        r = p->r;
        p->wants_data = !n && !is_over;
        if (n && !is_over)
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
        (void)pthread_mutex_unlock(&p->lock);
        response = reply_new_stream(is_sized ? p->head.length : REPLY_SIZE_UNKNOWN, BLOCK_BYTES,
                                    read_reply, p, proxy_unref);
        if (!response)
            proxy_unref(p);
    }
    if (!response)
        return err_oom(e);
    copy_reply_headers(p, response);
    return respond_queue_plain(q, p->head.status, response, e);
}

static int proxy_finish(struct request *q, struct err *e)
{
    struct proxy *p = q->state;

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

static void proxy_done(struct request *q)
{
    struct proxy *p = q->state;

    if (!p)
        return;
    (void)pthread_mutex_lock(&p->lock);
    p->is_left = true;
    proxy_kick(p); /* the loop releases its part */
    (void)pthread_mutex_unlock(&p->lock);
    proxy_unref(p);
}

const struct request_ops proxy_ops = {
    .begin = proxy_begin, .body = proxy_body, .finish = proxy_finish, .done = proxy_done};
