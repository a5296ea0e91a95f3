#include "lib/util/socket_relay.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "common/cleanup.h"
#include "common/io.h"

#define RELAY_STACK_BYTES (128 * 1024)

/* One direction. */
struct relay_way {
    int from, to;
    relay_filter filter;
    void *arg;
    struct buf in, out;     /* without a filter, `in` is not used */
    bool is_eof;            /* `from` has ended */
    bool is_filtered;       /* the filter has seen the end */
    bool is_shut;           /* `to` was shut down */
    bool keeps_to;          /* its filter tells `to` the end */
    const bool *has_answer; /* as in struct socket_relay */
    bool is_hung_up;        /* `from` has closed both directions */
};

static void relay_way_init(struct relay_way *w, int from, int to, relay_filter filter, void *arg)
{
    *w = (struct relay_way){.from = from, .to = to, .filter = filter, .arg = arg};
    buf_init(&w->in, RELAY_BYTES);
    buf_init(&w->out, 2 * RELAY_BYTES); /* a frame's head comes on top of what is framed */
}

static void relay_way_done(struct relay_way *w)
{
    buf_done(&w->in);
    buf_done(&w->out);
}

static size_t room_of(const struct relay_way *w)
{
    if (w->is_eof)
        return 0;
    if (w->out.len >= RELAY_BYTES)
        return 0;
    return w->filter ? RELAY_BYTES - w->in.len : RELAY_BYTES - w->out.len;
}

static int relay_pull(struct relay_way *w)
{
    struct buf *to = w->filter ? &w->in : &w->out;
    size_t room = room_of(w);
    ssize_t n;

    if (!room)
        return 0;
    if (buf_reserve(to, room, NULL) < 0)
        return -1;
    n = recv(w->from, to->data + to->len, room, MSG_DONTWAIT);
    if (n < 0)
        return errno == EAGAIN || errno == EINTR ? 0 : -1;
    to->len += (size_t)n;
    w->is_eof = n == 0;
    return 0;
}

static bool has_work(const struct relay_way *w)
{
    return w->in.len || w->is_eof || (w->has_answer && *w->has_answer);
}

static int relay_filter_run(struct relay_way *w)
{
    size_t before = w->in.len;
    int r;

    if (!w->filter || w->is_filtered || !has_work(w) || w->out.len >= RELAY_BYTES)
        return 0;
    r = w->filter(w->arg, &w->in, &w->out, w->is_eof);
    /* If it left bytes for want of room, they come with the next call; half a frame never becomes a whole one. */
    w->is_filtered = w->is_eof && (!w->in.len || w->in.len == before);
    if (r == 1) {
        w->is_eof = w->is_filtered = true;
        buf_clear(&w->in);
    }
    return r < 0 ? r : 0;
}

static int relay_push(struct relay_way *w)
{
    if (w->out.len) {
        ssize_t n = send(w->to, w->out.data, w->out.len, MSG_DONTWAIT | MSG_NOSIGNAL);

        if (n < 0)
            return errno == EAGAIN || errno == EINTR ? 0 : -1;
        buf_consume(&w->out, (size_t)n);
    }
    if (w->is_eof && !w->out.len && (!w->filter || w->is_filtered) && !w->is_shut) {
        w->is_shut = true;
        if (!w->keeps_to)
            (void)shutdown(w->to, SHUT_WR);
    }
    return 0;
}

/* Bytes that the filter left because `out` was full goes on once that has drained: poll() does not know of it. */
static int relay_turn(struct relay_way *w)
{
    int r = relay_pull(w);
    size_t before;

    do {
        before = w->in.len;
        if (r == 0)
            r = relay_filter_run(w);
        if (r == 0)
            r = relay_push(w);
    } while (r == 0 && w->in.len < before && w->in.len && !w->out.len);
    return r;
}

/* poll() would report a hang-up for ever: after the first time, a side with nothing to wait for is not polled. */
static void relay_watch(struct pollfd *p, const struct relay_way *out_of,
                        const struct relay_way *into)
{
    p->events = (short)((room_of(out_of) ? POLLIN : 0) | (into->out.len ? POLLOUT : 0));
    p->fd = p->events || !out_of->is_hung_up ? out_of->from : -1;
}

static void relay_note_hang_up(struct relay_way *out_of, const struct pollfd *p)
{
    out_of->is_hung_up = out_of->is_hung_up || p->revents & (POLLHUP | POLLERR);
}

/* A peer that neither reads nor closes would keep the relay of a client that is gone for ever. */
static void relay_loop(struct relay_way *right, struct relay_way *left, int stop_fd, int linger_ms)
{
    while (!right->is_shut || !left->is_shut) {
        struct pollfd p[3] = {{0}, {0}, {.fd = stop_fd, .events = POLLIN}};
        bool lingers = right->is_hung_up || left->is_hung_up;
        int n;

        relay_watch(&p[0], right, left);
        relay_watch(&p[1], left, right);
        n = poll(p, 3, lingers ? linger_ms : -1);
        if ((n < 0 && errno != EINTR) || n == 0)
            return;
        relay_note_hang_up(right, &p[0]);
        relay_note_hang_up(left, &p[1]);
        if (p[2].revents || relay_turn(right) < 0 || relay_turn(left) < 0)
            return;
        if (right->has_answer && *right->has_answer && relay_turn(right) < 0)
            return;
    }
}

void socket_relay_run(struct socket_relay *r)
{
    struct relay_way right, left;

    relay_way_init(&right, r->left, r->right, r->to_right, r->arg);
    right.has_answer = r->has_answer;
    right.keeps_to = r->keeps_right;
    relay_way_init(&left, r->right, r->left, r->to_left, r->arg);
    relay_loop(&right, &left, r->stop_fd, r->linger_ms ? r->linger_ms : RELAY_LINGER_MS);
    relay_way_done(&right);
    relay_way_done(&left);
    fd_close(TAKE_FD(r->left));
    fd_close(TAKE_FD(r->right));
    if (r->done)
        r->done(r->arg);
}

static void *relay_main(void *arg)
{
    struct socket_relay *r = arg;

    socket_relay_run(r);
    free(r);
    return NULL;
}

static int start_thread(struct socket_relay *r)
{
    pthread_attr_t attr;
    sigset_t all, before;
    pthread_t thread;
    int sys;

    (void)pthread_attr_init(&attr);
    (void)pthread_attr_setstacksize(&attr, RELAY_STACK_BYTES);
    (void)pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    sys = pthread_create(&thread, &attr, relay_main, r);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    (void)pthread_attr_destroy(&attr);
    return sys;
}

int socket_relay_start(const struct socket_relay *r, struct err *e)
{
    struct socket_relay *own = malloc(sizeof(*own));
    int sys = ENOMEM;

    if (own) {
        *own = *r;
        sys = start_thread(own);
    }
    if (sys == 0)
        return 0;
    free(own);
    fd_close(r->left);
    fd_close(r->right);
    if (r->done)
        r->done(r->arg);
    return err_sys(e, sys, "start a thread");
}
