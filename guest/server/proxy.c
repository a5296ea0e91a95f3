/*
 * proxy: /v1/proxy/{port}/...: HTTP/1.1 to a port in the box. The connection's thread and the loop
 * meet in two bounded rings, one for each direction; whoever empties or fills one wakes the other.
 * A request to upgrade (WebSocket) goes through, and after the 101 the two sockets are joined.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "common/buf.h"
#include "common/cleanup.h"
#include "common/clock.h"
#include "common/str.h"
#include "proc/loop.h"
#include "rpc/agent.h"
#include "system/dial.h"
#include "server/handlers.h"
#include "system/http1.h"
#include "server/relay.h"
#include "server/respond.h"
#include "server/ring.h"
#include "server/state.h"

#include "common/banned.h"

#define RING_BYTES (128 * 1024)
#define CHUNK_OVERHEAD 12 /* size in hex and two line ends */
#define IO_BYTES (8 * 1024)
#define EARLY_REPLY_BYTES (8 * 1024 * 1024) /* of a reply that comes before the request's end */
#define BLOCK_BYTES (16 * 1024)
#define PROXY_TIMEOUT_HEADER "Bellhop-Proxy-Timeout-Ms"
#define PROXY_ANSWER_MS (10 * 60 * 1000) /* from the end of the request to the answer's head */
#define PROXY_ANSWER_MAX_MS (24 * 3600 * 1000)

struct proxy {
    struct request *request; /* a reference */
    struct server *server;
    uint16_t port;
    int64_t patience_ms;
    bool is_upgrade;
    bool is_started;

    pthread_mutex_t lock;
    /* guarded by lock: */
    int refs;       /* the request's, the reply's, the loop's */
    bool is_posted; /* pump() is on its way */
    bool is_left;   /* the request is over */
    struct ring up; /* to the server in the box, as it goes on the wire */
    bool up_ended;
    bool wants_room;  /* the connection waits for room in up */
    struct ring down; /* the reply's body */
    bool down_ended;
    bool wants_data; /* the connection waits for the head, or something in down */
    bool has_head;
    int r; /* how it failed */
    struct err error;

    /* the loop's until has_head, then the connection's */
    struct http1_head head;
    struct buf early; /* of the reply: the head as it comes, then what follows an upgrade's */
    /* the loop's: */
    struct buf hello; /* the request's head */
    size_t hello_sent;
    struct dial *dial;
    int fd; /* taken over by the relay after an upgrade */
    struct loop_watch *watch;
    struct loop_timer *timer; /* until the head is there */
    uint32_t events;
    bool is_finished;
    uint64_t left; /* of a body with a length */
    struct http1_chunks chunks;
};

/* Called with the lock; gives it up. */
static void unref_and_unlock(struct proxy *p)
{
    bool is_last = --p->refs == 0;

    (void)pthread_mutex_unlock(&p->lock);
    if (!is_last)
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

/* ---- the request's head ---- */

struct copying {
    struct proxy *p;
    const char *connection;
    const char *token;
    size_t token_len;
    int r;
};

static bool is_our_token(const struct copying *c, const char *value)
{
    if (strncasecmp(value, "Bearer ", 7) == 0)
        value += 7;
    return c->token && str_secret_eq(value, strlen(value), c->token, c->token_len);
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

static enum MHD_Result copy_header(void *cls, enum MHD_ValueKind kind, const char *name,
                                   const char *value)
{
    struct copying *c = cls;

    (void)kind;
    value = value ? value : "";
    if (!is_dropped(c, name, value))
        c->r = buf_addf(&c->p->hello, NULL, "%s: %s\r\n", name, value);
    return c->r < 0 ? MHD_NO : MHD_YES;
}

/* Who asked, behind what those in front of us have said: nothing for a unix socket. */
static int add_client(struct request *q, struct proxy *p, struct err *e)
{
    const char *before = request_header(q, "X-Forwarded-For");
    struct sockaddr_storage peer = {0};
    socklen_t len = sizeof(peer);
    char text[INET6_ADDRSTRLEN] = "";

    if (getpeername(q->conn->fd, (struct sockaddr *)&peer, &len) == 0 && peer.ss_family == AF_INET)
        (void)inet_ntop(AF_INET, &((struct sockaddr_in *)&peer)->sin_addr, text, sizeof(text));
    else if (peer.ss_family == AF_INET6)
        (void)inet_ntop(AF_INET6, &((struct sockaddr_in6 *)&peer)->sin6_addr, text, sizeof(text));
    if (!before && !text[0])
        return 0;
    return buf_addf(&p->hello, e, "X-Forwarded-For: %s%s%s\r\n", before ? before : "",
                    before && text[0] ? ", " : "", text);
}

/* A front that ends TLS says so: a server that redirects to https would do so for ever. */
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
        host = request_header(q, "Host");
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

static int write_hello(struct request *q, struct proxy *p, const char *path, struct err *e)
{
    struct copying c = {.p = p,
                        .connection = request_header(q, "Connection"),
                        .token = p->server->token,
                        .token_len = p->server->o.token_len};
    int r;

    r = buf_addf(&p->hello, e, "%s %s%s HTTP/1.1\r\n", q->verb_name, *path == '/' ? "" : "/", path);
    if (r < 0)
        return r;
    (void)MHD_get_connection_values(q->mhd, MHD_HEADER_KIND, copy_header, &c);
    return c.r < 0 ? err_oom(e) : add_forwarded(q, p, e);
}

/* ---- the loop's side ---- */

static void on_io(struct loop *l, uint32_t events, void *arg);

static void wake(struct proxy *p)
{
    request_wake(p->request);
}

static void close_peer(struct proxy *p)
{
    p->dial = dial_free(p->dial);
    if (p->watch)
        p->watch = loop_watch_del(p->watch);
    fd_close(TAKE_FD(p->fd));
}

static void finish(struct proxy *p, const struct err *error);
static void on_impatience(struct loop *l, void *arg);

static int set_timer(struct proxy *p, struct err *e)
{
    return loop_timer_add(p->server->agent->loop, clock_mono_ms() + p->patience_ms, on_impatience,
                          p, &p->timer, e);
}

/* The request may still be on its way: then the server has not been asked yet. */
static void on_impatience(struct loop *l, void *arg)
{
    struct proxy *p = arg;
    struct err error = {0};
    bool is_asked;

    (void)l;
    p->timer = NULL;
    (void)pthread_mutex_lock(&p->lock);
    is_asked = p->up_ended && !p->up.len;
    (void)pthread_mutex_unlock(&p->lock);
    if (!is_asked && set_timer(p, &error) == 0)
        return;
    if (is_asked)
        (void)err_field(&error, ERR_DEADLINE, "port",
                        "port %d in the box did not answer within %lld ms", (int)p->port,
                        (long long)p->patience_ms);
    finish(p, &error);
}

/* The loop has no more to do with it. Drops its reference. */
static void finish(struct proxy *p, const struct err *error)
{
    p->is_finished = true;
    p->timer = loop_timer_del(p->timer);
    if (!p->has_head || p->head.status != MHD_HTTP_SWITCHING_PROTOCOLS || error)
        close_peer(p);
    else if (p->watch)
        p->watch = loop_watch_del(p->watch);
    (void)pthread_mutex_lock(&p->lock);
    if (error) {
        p->r = -error->code;
        p->error = *error;
    }
    p->down_ended = true;
    (void)pthread_mutex_unlock(&p->lock);
    wake(p);
    (void)pthread_mutex_lock(&p->lock);
    unref_and_unlock(p);
}

static bool is_left(struct proxy *p)
{
    bool left;

    (void)pthread_mutex_lock(&p->lock);
    left = p->is_left;
    (void)pthread_mutex_unlock(&p->lock);
    return left;
}

static uint32_t wanted_events(struct proxy *p)
{
    uint32_t events = 0;

    (void)pthread_mutex_lock(&p->lock);
    if (!p->has_head || p->down.len < p->down.cap || !p->up_ended)
        events |= EPOLLIN;
    if (p->hello_sent < p->hello.len || p->up.len)
        events |= EPOLLOUT;
    (void)pthread_mutex_unlock(&p->lock);
    return events;
}

/* Watches for what can be done now; ends when the request is over. */
static void settle(struct proxy *p)
{
    uint32_t events;

    if (p->is_finished || p->fd < 0)
        return;
    if (is_left(p)) {
        finish(p, NULL);
        return;
    }
    events = wanted_events(p);
    if (!events && p->watch) { /* a full ring: the kernel would tell of the end again and again */
        p->watch = loop_watch_del(p->watch);
    } else if (events && !p->watch) {
        p->events = events;
        if (loop_watch_add(p->server->agent->loop, p->fd, events, on_io, p, &p->watch, NULL) < 0)
            finish(p, &(struct err){.code = ERR_EXHAUSTED, .message = "out of memory"});
    } else if (events && events != p->events) {
        p->events = events;
        (void)loop_watch_set(p->watch, events, NULL);
    }
}

static void on_dialed(void *arg, int fd, const struct err *error)
{
    struct proxy *p = arg;

    p->dial = NULL;
    p->fd = fd;
    if (fd < 0)
        finish(p, error);
    else
        settle(p);
}

/* On the loop's thread: something has changed on the other side. Drops the post's reference. */
static void pump(struct loop *l, void *arg)
{
    struct proxy *p = arg;
    bool must_start;

    (void)pthread_mutex_lock(&p->lock);
    p->is_posted = false;
    must_start = !p->is_started && !p->is_left;
    if (must_start)
        p->refs++; /* the loop's own, until finish() */
    p->is_started = p->is_started || must_start;
    (void)pthread_mutex_unlock(&p->lock);
    if (must_start) {
        struct err error = {0};

        if (set_timer(p, &error) < 0 ||
            dial_new(l, NULL, p->port, on_dialed, p, &p->dial, &error) < 0)
            finish(p, &error);
    } else if (p->is_started && !p->is_finished && p->dial && is_left(p)) {
        finish(p, NULL);
    } else {
        settle(p);
    }
    (void)pthread_mutex_lock(&p->lock);
    unref_and_unlock(p);
}

/* Called with the lock, from the connection's thread. */
static void kick(struct proxy *p)
{
    if (p->is_posted)
        return;
    p->refs++;
    p->is_posted = true;
    if (loop_post(p->server->agent->loop, pump, p, NULL) == 0)
        return;
    p->refs--;
    p->is_posted = false;
    p->r = err_set(&p->error, ERR_EXHAUSTED, "out of memory");
}

/* 0: go on. 1: the socket takes no more. Negative: it failed. */
static int send_some(struct proxy *p, const char *data, size_t len, size_t *ret_sent)
{
    ssize_t n = send(p->fd, data, len, MSG_NOSIGNAL | MSG_DONTWAIT);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return 1;
    if (n < 0)
        return -1;
    *ret_sent = (size_t)n;
    return 0;
}

static int send_all(struct proxy *p)
{
    int r = 0;

    while (r == 0) {
        const char *piece;
        size_t len, n = 0;
        bool must_wake;

        if (p->hello_sent < p->hello.len) {
            r = send_some(p, p->hello.data + p->hello_sent, p->hello.len - p->hello_sent, &n);
            p->hello_sent = r < 0 ? p->hello.len : p->hello_sent + n;
            r = r < 0 ? 0 : r;
            continue;
        }
        (void)pthread_mutex_lock(&p->lock);
        len = ring_peek(&p->up, &piece);
        (void)pthread_mutex_unlock(&p->lock);
        if (!len)
            return 0;
        r = send_some(p, piece, len, &n);
        (void)pthread_mutex_lock(&p->lock);
        ring_drop(&p->up, r < 0 ? len : n); /* a server that reads no more may still answer */
        must_wake = p->wants_room && p->up.len <= p->up.cap / 2;
        p->wants_room = p->wants_room && !must_wake;
        (void)pthread_mutex_unlock(&p->lock);
        if (must_wake)
            wake(p);
        if (r < 0)
            r = 0;
    }
    return r;
}

static bool has_body(const struct proxy *p)
{
    int status = p->head.status;

    return p->request->verb != VERB_HEAD && status >= 200 && status != MHD_HTTP_NO_CONTENT &&
           status != MHD_HTTP_NOT_MODIFIED;
}

/* A piece of the reply's body. 1: it is over. */
static int take_body(struct proxy *p, char *data, size_t len, struct err *e)
{
    bool is_over = false, must_wake;
    int r;

    if (p->head.is_chunked) {
        r = http1_decode_chunks(&p->chunks, data, len, &len, e);
        if (r < 0)
            return r;
        is_over = p->chunks.is_over;
    } else if (p->head.has_length) {
        len = len < p->left ? len : (size_t)p->left;
        p->left -= len;
        is_over = !p->left;
    }
    (void)pthread_mutex_lock(&p->lock);
    (void)ring_put(&p->down, data, len); /* there is room: no more was read */
    must_wake = p->wants_data && len;
    p->wants_data = p->wants_data && !must_wake;
    (void)pthread_mutex_unlock(&p->lock);
    if (must_wake)
        wake(p);
    return is_over;
}

static void publish_head(struct proxy *p)
{
    p->timer = loop_timer_del(p->timer);
    (void)pthread_mutex_lock(&p->lock);
    p->has_head = true;
    (void)pthread_mutex_unlock(&p->lock);
    wake(p);
}

/* More of the head. 1: the reply is over, or the connection was upgraded. */
static int take_head(struct proxy *p, const char *data, size_t len, struct err *e)
{
    size_t head_len;
    int r;

    r = buf_add(&p->early, data, len, e);
    while (r == 0) {
        http1_head_done(&p->head);
        r = http1_parse_head(p->early.data, p->early.len, &p->head, &head_len, e);
        if (r < 0 || !head_len)
            return r;
        buf_consume(&p->early, head_len);
        if (p->head.status >= 200 || p->head.status == MHD_HTTP_SWITCHING_PROTOCOLS)
            break; /* the others announce more */
    }
    if (r < 0)
        return r;
    p->left = p->head.length;
    if (p->head.status == MHD_HTTP_SWITCHING_PROTOCOLS) {
        if (!p->is_upgrade)
            return err_set(e, ERR_UNAVAILABLE, "an upgrade that was not asked for");
        publish_head(p);
        return 1;
    }
    /* What came behind the head is at most one read, which the empty ring takes. */
    r = !has_body(p) || (p->head.has_length && !p->head.is_chunked && !p->head.length);
    if (!r && p->early.len)
        r = take_body(p, p->early.data, p->early.len, e);
    if (r >= 0)
        publish_head(p);
    return r;
}

/* 1: nothing more comes. */
static int on_end(struct proxy *p, struct err *e)
{
    if (!p->has_head)
        return err_set(e, ERR_UNAVAILABLE, "port %d in the box closed without an answer",
                       (int)p->port);
    if (p->head.is_chunked || p->head.has_length)
        return err_set(e, ERR_DATA_LOSS, "port %d in the box broke off", (int)p->port);
    return 1;
}

/*
 * The library sends no reply before the request has ended. A server that answers meanwhile (an
 * echo, say) would stop reading once its reply is not taken, and both would wait for ever: so more
 * of such a reply is kept than else, and past that bound it fails.
 */
static int make_room(struct proxy *p, size_t *max, struct err *e)
{
    size_t room;
    int r = 0;

    (void)pthread_mutex_lock(&p->lock);
    room = p->down.cap - p->down.len;
    if (!room && !p->up_ended) {
        r = p->down.cap < EARLY_REPLY_BYTES
                ? ring_grow(&p->down, 2 * p->down.cap, e)
                : err_set(e, ERR_EXHAUSTED,
                          "port %d in the box answered with more than %d bytes before it had read "
                          "the request",
                          (int)p->port, EARLY_REPLY_BYTES);
        room = p->down.cap - p->down.len;
    }
    (void)pthread_mutex_unlock(&p->lock);
    if (room < *max)
        *max = room;
    return r;
}

static int receive(struct proxy *p, struct err *e)
{
    char data[IO_BYTES];
    size_t max = sizeof(data);
    ssize_t n;

    if (p->has_head) {
        int r = make_room(p, &max, e);

        if (r < 0 || !max)
            return r;
    }
    n = recv(p->fd, data, max, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (n <= 0)
        return on_end(p, e);
    return p->has_head ? take_body(p, data, (size_t)n, e) : take_head(p, data, (size_t)n, e);
}

static void on_io(struct loop *l, uint32_t events, void *arg)
{
    struct proxy *p = arg;
    struct err error = {0};
    int r = 0;

    (void)l;
    if (events & EPOLLOUT)
        (void)send_all(p);
    if (events & (EPOLLIN | EPOLLERR | EPOLLHUP))
        r = receive(p, &error);
    if (r < 0)
        finish(p, &error);
    else if (r > 0)
        finish(p, NULL);
    else
        settle(p);
}

/* ---- the connection's side ---- */

/* How long the server may take for the head of its answer. */
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
    buf_init(&p->early, HTTP1_HEAD_MAX + IO_BYTES);
    q->state = p;
    p->is_upgrade = request_header_has(q, "Connection", "upgrade") && request_header(q, "Upgrade");
    if (ring_init(&p->up, RING_BYTES, e) < 0 || ring_init(&p->down, RING_BYTES, e) < 0)
        return -ERR_EXHAUSTED;
    r = write_hello(q, p, path, e);
    if (r < 0)
        return r;
    (void)pthread_mutex_lock(&p->lock);
    kick(p);
    r = p->r;
    (void)pthread_mutex_unlock(&p->lock);
    return r < 0 ? err_oom(e) : 0;
}

/* With the lock. Puts a piece as it goes on the wire; how much of it went in. */
static size_t put_piece(struct proxy *p, const char *data, size_t len, bool is_chunked)
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
            left = 0; /* answered already: the rest of the body is for nobody */
        else
            left -= put_piece(p, data + (*len - left), left, q->declared == UINT64_MAX);
        p->wants_room = left > 0;
        if (r == 0)
            kick(p);
        (void)pthread_mutex_unlock(&p->lock);
        if (r < 0) {
            q->error_status = r == -ERR_DEADLINE ? 0 : MHD_HTTP_BAD_GATEWAY;
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
            kick(p);
        (void)pthread_mutex_unlock(&p->lock);
        p->request->bytes_out += n;
        if (n)
            return (ssize_t)n;
        if (r < 0 || request_is_gone(p->request))
            return request_break_off(p->request, data);
        if (is_over)
            return MHD_CONTENT_READER_END_OF_STREAM;
        if (request_park(p->request))
            return 0;
    }
}

static void leave(void *arg)
{
    struct proxy *p = arg;

    (void)pthread_mutex_lock(&p->lock);
    unref_and_unlock(p);
}

static void on_upgrade(void *cls, struct MHD_Connection *mhd, void *con_cls, const char *extra,
                       size_t extra_len, MHD_socket sock, struct MHD_UpgradeResponseHandle *urh)
{
    struct proxy *p = cls;

    (void)mhd;
    (void)con_cls;
    relay_begin(p->server, urh, sock, TAKE_FD(p->fd), extra, extra_len, p->early.data,
                p->early.len);
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

static void copy_reply_headers(const struct proxy *p, struct MHD_Response *response)
{
    bool is_upgrade = p->head.status == MHD_HTTP_SWITCHING_PROTOCOLS;

    for (size_t i = 0; i < p->head.n_headers; i++) {
        const struct http1_header *h = &p->head.headers[i];

        if (is_upgrade && strcasecmp(h->name, "Upgrade") == 0)
            respond_add_header(response, h->name, h->value);
        else if (strcasecmp(h->name, "Content-Length") != 0 && !is_for_one_hop(&p->head, h->name))
            respond_add_header(response, h->name, h->value);
    }
}

static int reply(struct request *q, struct proxy *p, struct err *e)
{
    bool is_sized = p->head.has_length && !p->head.is_chunked;
    struct MHD_Response *response;

    if (p->head.status == MHD_HTTP_SWITCHING_PROTOCOLS) {
        response = MHD_create_response_for_upgrade(on_upgrade, p);
    } else if (!has_body(p) && !is_sized) {
        response = MHD_create_response_from_buffer(0, (void *)"", MHD_RESPMEM_PERSISTENT);
    } else {
        (void)pthread_mutex_lock(&p->lock);
        p->refs++;
        (void)pthread_mutex_unlock(&p->lock);
        response = MHD_create_response_from_callback(is_sized ? p->head.length : MHD_SIZE_UNKNOWN,
                                                     BLOCK_BYTES, read_reply, p, leave);
        if (!response)
            leave(p);
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
            kick(p);
        }
        has_head = p->has_head;
        r = p->r;
        if (r < 0)
            *e = p->error;
        (void)pthread_mutex_unlock(&p->lock);
        if (has_head)
            return reply(q, p, e);
        if (r < 0) {
            q->error_status = r == -ERR_DEADLINE ? 0 : MHD_HTTP_BAD_GATEWAY;
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
    kick(p); /* the loop lets go of what it has */
    unref_and_unlock(p);
}

const struct request_ops proxy_ops = {
    .begin = proxy_begin, .body = proxy_body, .finish = proxy_finish, .done = proxy_done};
