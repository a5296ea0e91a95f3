/*
 * proxy_loop: the server's side of a relayed request: it connects to the server, sends the bytes that
 * the connection has put into one ring, and puts the reply into the other.
 */
#include <errno.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "http/proxy_state.h"
#include "http/respond.h"

#define EARLY_REPLY_BYTES \
    (8 * 1024 * 1024) /* of a reply that arrives before the end of the request */

#define INTERIM_MAX 100 /* replies 1xx before the final one */

static void on_io(struct loop *l, uint32_t events, void *arg);

static void wake_client(struct proxy *p)
{
    request_wake(p->request);
}

static void close_peer(struct proxy *p)
{
    p->dial = dial_free(p->dial);
    if (p->watch)
        p->watch = loop_watch_del(p->watch);
    WITH_LOCK (&p->lock) {
        fd_close(TAKE_FD(p->fd));
    }
}

static void finish_proxy(struct proxy *p, const struct err *error);
static void on_head_deadline(struct loop *l, void *arg);

static int set_head_deadline(struct proxy *p, struct err *e)
{
    return loop_timer_add(server_loop(p->server), clock_mono_ms() + p->answer_ms, on_head_deadline,
                          p, &p->timer, e);
}

/* While the request is still being sent, the deadline does not apply: it is set again. */
static void on_head_deadline(struct loop *l, void *arg)
{
    struct proxy *p = arg;
    struct err error = {0};
    bool is_asked;

    (void)l;
    p->timer = NULL;
    (void)pthread_mutex_lock(&p->lock);
    is_asked = p->up_ended && !p->up.len;
    (void)pthread_mutex_unlock(&p->lock);
    if (!is_asked && set_head_deadline(p, &error) == 0)
        return;
    if (is_asked)
        (void)err_field(&error, ERR_DEADLINE, p->port ? "port" : "",
                        "%s did not answer within %lld ms", p->what, (long long)p->answer_ms);
    finish_proxy(p, &error);
}

/* Ends the loop's side. Drops its reference. */
static void finish_proxy(struct proxy *p, const struct err *error)
{
    p->is_finished = true;
    p->timer = loop_timer_del(p->timer);
    if (!p->has_head || p->head.status != HTTP_SWITCHING_PROTOCOLS || error)
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
    wake_client(p);
    proxy_unref(p);
}

static bool is_left(struct proxy *p)
{
    _cleanup_unlock_ pthread_mutex_t *locked = mutex_lock(&p->lock);

    return p->is_left;
}

static uint32_t wanted_events(struct proxy *p)
{
    _cleanup_unlock_ pthread_mutex_t *locked = mutex_lock(&p->lock);
    uint32_t events = 0;

    if (p->is_handed)
        return p->wants_data ? (uint32_t)EPOLLIN : 0;
    if (!p->has_head || p->down.len < p->down.cap || !p->up_ended)
        events |= EPOLLIN;
    if (p->hello_sent < p->hello.len || p->up.len)
        events |= EPOLLOUT;
    return events;
}

/* Hands the socket over to the connection, which reads the body from now on: the request is sent. */
static void maybe_hand_over(struct proxy *p)
{
    _cleanup_unlock_ pthread_mutex_t *locked = mutex_lock(&p->lock);

    p->is_handed = p->is_handed || (p->wants_hand && p->hello_sent == p->hello.len && !p->up.len);
}

/* Watches for the events that can be handled now; finishes if the request is over. */
static void update_watch(struct proxy *p)
{
    uint32_t events;

    if (p->is_finished || p->fd < 0)
        return;
    if (is_left(p)) {
        finish_proxy(p, NULL);
        return;
    }
    maybe_hand_over(p);
    events = wanted_events(p);
    if (!events &&
        p->watch) { /* the rings are full: the kernel would report a hang-up over and over */
        p->watch = loop_watch_del(p->watch);
    } else if (events && !p->watch) {
        p->events = events;
        if (loop_watch_add(server_loop(p->server), p->fd, events, on_io, p, &p->watch, NULL) < 0)
            finish_proxy(p, &(struct err){.code = ERR_EXHAUSTED, .message = "out of memory"});
    } else if (events && events != p->events) {
        p->events = events;
        (void)loop_watch_set(p->watch, events, NULL);
    }
}

static void on_proxy_dialed(void *arg, int fd, const struct err *error)
{
    struct proxy *p = arg;

    p->dial = NULL;
    p->fd = fd;
    if (fd < 0)
        finish_proxy(p, error);
    else
        update_watch(p);
}

/* On the loop's thread: the client's side has changed something. Drops the post's reference. */
static void pump_proxy(struct loop *l, void *arg)
{
    struct proxy *p = arg;
    bool must_start;

    (void)pthread_mutex_lock(&p->lock);
    p->is_posted = false;
    must_start = !p->is_started && !p->is_left;
    if (must_start)
        p->refs++; /* the loop's own, until finish_proxy() */
    p->is_started = p->is_started || must_start;
    (void)pthread_mutex_unlock(&p->lock);
    if (must_start) {
        struct err error = {0};

        if (set_head_deadline(p, &error) < 0 ||
            (p->fd < 0 && dial_new(l, NULL, p->port, on_proxy_dialed, p, &p->dial, &error) < 0))
            finish_proxy(p, &error);
        else
            update_watch(p);
    } else if (p->is_started && !p->is_finished && p->dial && is_left(p)) {
        finish_proxy(p, NULL);
    } else if (p->is_started) { /* if its client left before, the loop has no reference to drop */
        update_watch(p);
    }
    proxy_unref(p);
}

void proxy_kick(struct proxy *p)
{
    if (p->is_posted)
        return;
    p->refs++;
    p->is_posted = true;
    if (loop_post(server_loop(p->server), pump_proxy, p, NULL) == 0)
        return;
    p->refs--;
    p->is_posted = false;
    p->r = err_set(&p->error, ERR_EXHAUSTED, "out of memory");
}

/* 0: continue. 1: the socket would block. Negative: it failed. */
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
            WITH_LOCK (&p->lock) {
                p->is_hello_sent = p->hello_sent == p->hello.len;
            }
            continue;
        }
        (void)pthread_mutex_lock(&p->lock);
        len = ring_peek(&p->up, &piece);
        (void)pthread_mutex_unlock(&p->lock);
        if (!len)
            return 0;
        r = send_some(p, piece, len, &n);
        (void)pthread_mutex_lock(&p->lock);
        ring_drop(&p->up, r < 0 ? len : n); /* a server that stopped reading may still reply */
        must_wake = p->wants_room && p->up.len <= p->up.cap / 2;
        p->wants_room = p->wants_room && !must_wake;
        (void)pthread_mutex_unlock(&p->lock);
        if (must_wake)
            wake_client(p);
        if (r < 0)
            r = 0;
    }
    return r;
}

bool proxy_has_body(const struct proxy *p)
{
    int status = p->head.status;

    return p->request->verb != VERB_HEAD && status >= 200 && status != HTTP_NO_CONTENT &&
           status != HTTP_NOT_MODIFIED;
}

int proxy_decode_body(struct proxy *p, char *data, size_t *len, struct err *e)
{
    if (p->head.is_chunked) {
        int r = http1_decode_chunks(&p->chunks, data, *len, len, e);

        return r < 0 ? r : p->chunks.is_over;
    }
    if (!p->head.has_length)
        return 0;
    *len = *len < p->left ? *len : (size_t)p->left;
    p->left -= *len;
    return !p->left;
}

/* Puts a piece of the reply's body into the ring. 1: the body is complete. */
static int take_reply_body(struct proxy *p, char *data, size_t len, struct err *e)
{
    bool must_wake;
    int r = proxy_decode_body(p, data, &len, e);

    if (r < 0)
        return r;
    (void)pthread_mutex_lock(&p->lock);
    (void)ring_put(&p->down, data, len); /* it fits: no more than the room was read */
    must_wake = p->wants_data && len;
    p->wants_data = p->wants_data && !must_wake;
    (void)pthread_mutex_unlock(&p->lock);
    if (must_wake)
        wake_client(p);
    return r;
}

static void publish_head(struct proxy *p)
{
    p->timer = loop_timer_del(p->timer);
    (void)pthread_mutex_lock(&p->lock);
    p->has_head = true;
    (void)pthread_mutex_unlock(&p->lock);
    wake_client(p);
}

/* Takes more of the head. 1: the reply is complete, or the connection was upgraded. */
static int take_reply_head(struct proxy *p, const char *data, size_t len, struct err *e)
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
        if (p->head.status >= 200 || p->head.status == HTTP_SWITCHING_PROTOCOLS)
            break; /* interim replies: the final one follows */
        if (++p->n_interim > INTERIM_MAX)
            return err_set(e, ERR_UNAVAILABLE, "%s sent more than %d interim replies", p->what,
                           INTERIM_MAX);
    }
    if (r < 0)
        return r;
    p->left = p->head.length;
    if (p->head.status == HTTP_SWITCHING_PROTOCOLS) {
        if (!p->is_upgrade)
            return err_set(e, ERR_UNAVAILABLE, "an upgrade that was not asked for");
        publish_head(p);
        return 1;
    }
    /* The bytes after the head are at most one read, which fits into the empty ring. */
    r = !proxy_has_body(p) || (p->head.has_length && !p->head.is_chunked && !p->head.length);
    if (!r && p->early.len)
        r = take_reply_body(p, p->early.data, p->early.len, e);
    if (r >= 0)
        publish_head(p);
    return r;
}

int proxy_end_body(struct proxy *p, struct err *e)
{
    if (!p->has_head)
        return err_set(e, ERR_UNAVAILABLE, "%s closed without an answer", p->what);
    if (p->head.is_chunked || p->head.has_length)
        return err_set(e, ERR_DATA_LOSS, "%s broke off", p->what);
    return 1;
}

/*
 * The library sends no reply before the request has ended. A server that replies meanwhile (an echo, say) stops
 * reading once nobody takes its reply: a deadlock. So the ring grows for such a reply, up to
 * EARLY_REPLY_BYTES; past that bound the request fails.
 */
static int make_room(struct proxy *p, size_t *max, struct err *e)
{
    _cleanup_unlock_ pthread_mutex_t *locked = mutex_lock(&p->lock);
    size_t room;
    int r = 0;

    room = p->down.cap - p->down.len;
    if (!room && !p->up_ended) {
        r = p->down.cap < EARLY_REPLY_BYTES
                ? ring_grow(&p->down, 2 * p->down.cap, e)
                : err_set(e, ERR_EXHAUSTED,
                          "%s answered with more than %d bytes before it had read the request",
                          p->what, EARLY_REPLY_BYTES);
        room = p->down.cap - p->down.len;
    }
    if (room < *max)
        *max = room;
    return r;
}

static int receive_some(struct proxy *p, struct err *e)
{
    char data[PROXY_IO_BYTES];
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
        return proxy_end_body(p, e);
    return p->has_head ? take_reply_body(p, data, (size_t)n, e)
                       : take_reply_head(p, data, (size_t)n, e);
}

/* Whether the connection reads the socket itself; if it waits for an event, this is it. */
static bool wake_reader(struct proxy *p)
{
    bool is_handed, must_wake;

    WITH_LOCK (&p->lock) {
        is_handed = p->is_handed;
        must_wake = is_handed && p->wants_data;
        p->wants_data = p->wants_data && !must_wake;
    }
    if (must_wake)
        wake_client(p);
    return is_handed;
}

static void on_io(struct loop *l, uint32_t events, void *arg)
{
    struct proxy *p = arg;
    struct err error = {0};
    int r = 0;

    (void)l;
    if (wake_reader(p)) {
        update_watch(p);
        return;
    }
    if (events & EPOLLOUT)
        (void)send_all(p);
    if (events & (EPOLLIN | EPOLLERR | EPOLLHUP))
        r = receive_some(p, &error);
    if (r < 0)
        finish_proxy(p, &error);
    else if (r > 0)
        finish_proxy(p, NULL);
    else
        update_watch(p);
}
