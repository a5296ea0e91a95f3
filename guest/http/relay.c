#include "http/relay.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "event/loop.h"
#include "event/ring.h"
#include "http/server.h"
#include "http/request.h"
#include "http/state.h"

#define CLOSE_MS 2000 /* for a WebSocket's client to read its close frame, and to answer */

enum { CLIENT, PEER };

/* Where the frames of a WebSocket end (RFC 6455, 5.2), of bytes that come in pieces. */
struct frames {
    bool is_on;
    unsigned char head[10];
    unsigned n_head;
    uint64_t left; /* of the frame's payload */
};

/* One socket, and the bytes that wait to be written to it. */
struct side {
    struct relay *relay;
    int fd;
    struct loop_watch *watch;
    uint32_t events;
    struct ring out; /* it has memory only while it holds bytes */
    bool is_read;    /* the socket is at its end */
    bool is_shut;    /* the sending side is shut down */
    bool is_hung_up; /* EPOLLHUP was reported; epoll would report it for ever */
};

struct relay {
    struct server *server;
    struct request *request; /* whose connection was upgraded; it outlives the relay */
    struct MHD_UpgradeResponseHandle *urh; /* NULL: the client's socket is ours */
    void (*on_end)(void *arg);             /* or NULL */
    void *on_end_arg;
    struct side sides[2];
    char *early[2]; /* bytes that came before the start, by the side that gets them */
    size_t early_len[2];
    bool is_broken;  /* a socket failed: drop the rest */
    bool is_closing; /* the client has got a close frame: its bytes are dropped, and it ends */
    struct loop_timer *timer; /* of that */
    struct frames frames;     /* to the client */
    struct relay *next, *prev;
};

static struct side *other_side(struct side *s)
{
    return &s->relay->sides[s == &s->relay->sides[CLIENT] ? PEER : CLIENT];
}

/* ---- the frames of a WebSocket ---- */

static unsigned frame_head_bytes(const unsigned char *head)
{
    unsigned size = head[1];

    return size == 127 ? 10 : size == 126 ? 4 : 2;
}

/* Takes the head once it is complete. Nothing may follow a close frame, and a server masks nothing: else it is off. */
static void take_frame_head(struct frames *f)
{
    unsigned opcode = f->head[0] & 15u;

    f->is_on = f->head[1] < 128 && opcode != 8 && opcode <= 10 && (opcode <= 2 || opcode >= 9);
    f->left = f->n_head == 2 ? f->head[1] : 0;
    for (unsigned i = 2; i < f->n_head; i++)
        f->left = f->left << 8 | f->head[i];
    f->n_head = 0;
}

static void frames_pass(struct frames *f, const char *data, size_t len)
{
    while (len && f->is_on) {
        if (f->left) {
            size_t n = len < f->left ? len : (size_t)f->left;

            data += n;
            len -= n;
            f->left -= n;
            continue;
        }
        f->head[f->n_head++] = (unsigned char)*data++;
        len--;
        if (f->n_head >= 2 && f->n_head == frame_head_bytes(f->head))
            take_frame_head(f);
    }
}

static bool is_between_frames(const struct frames *f)
{
    return f->is_on && !f->n_head && !f->left;
}

/* ---- one side ---- */

static void relay_free(struct relay *r)
{
    loop_timer_del(r->timer);
    for (int i = 0; i < 2; i++) {
        if (r->sides[i].watch)
            loop_watch_del(r->sides[i].watch);
        ring_done(&r->sides[i].out);
        free(r->early[i]);
    }
    fd_close(r->sides[PEER].fd);
    if (r->urh)
        (void)MHD_upgrade_action(r->urh, MHD_UPGRADE_ACTION_CLOSE); /* closes the client's socket */
    else
        fd_close(r->sides[CLIENT].fd);
    if (r->on_end)
        r->on_end(r->on_end_arg);
    free(r);
}

static void relay_end(struct relay *r)
{
    struct server *s = r->server;

    if (r->next)
        r->next->prev = r->prev;
    if (r->prev)
        r->prev->next = r->next;
    else
        s->relays = r->next;
    s->n_relays -= r->urh != NULL;
    relay_free(r);
}

/* Queues as much as the buffer of s takes. False: no memory. */
static bool side_queue(struct side *s, const char *data, size_t len)
{
    if (!s->out.data && ring_init(&s->out, RELAY_BUFFER_BYTES, NULL) < 0)
        return false;
    if (s == &s->relay->sides[CLIENT])
        frames_pass(&s->relay->frames, data, len);
    return ring_put(&s->out, data, len) == len;
}

static void count_relayed(const struct side *to, uint64_t n)
{
    const struct server_options *o = &to->relay->server->o;
    bool is_out = to == &to->relay->sides[CLIENT];

    if (o->service->relayed)
        o->service->relayed(o->owner, is_out ? 0 : n, is_out ? n : 0);
}

/* The library passes a half-close on to nobody, and does not close such a connection later. */
static bool is_tls_client(const struct side *s)
{
    const struct relay *r = s->relay;

    return s == &r->sides[CLIENT] && r->urh && r->request->conn->tls;
}

static void side_flush(struct side *s)
{
    const char *piece;
    size_t len;

    while (s->out.data && (len = ring_peek(&s->out, &piece))) {
        ssize_t n = send(s->fd, piece, len, MSG_NOSIGNAL | MSG_DONTWAIT);

        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (n < 0) {
            s->relay->is_broken = true;
            return;
        }
        ring_drop(&s->out, (size_t)n);
        count_relayed(s, (uint64_t)n);
    }
    ring_done(&s->out);
    if (other_side(s)->is_read && !s->is_shut) {
        s->is_shut = true;
        if (is_tls_client(s))
            s->relay->is_broken = true; /* all is sent */
        else
            (void)shutdown(s->fd, SHUT_WR);
    }
}

static size_t side_room(const struct side *s)
{
    return s->out.data ? s->out.cap - s->out.len : RELAY_BUFFER_BYTES;
}

/* Reads once, at most what the other side's buffer takes. */
static void side_receive(struct side *s)
{
    char data[8192];
    size_t max = side_room(other_side(s));
    ssize_t n = recv(s->fd, data, max < sizeof(data) ? max : sizeof(data), MSG_DONTWAIT);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n < 0)
        s->relay->is_broken = true;
    if (n <= 0 || (!s->relay->is_closing && !side_queue(other_side(s), data, (size_t)n)))
        s->is_read = true;
    side_flush(other_side(s));
}

static void on_event(struct loop *l, uint32_t events, void *arg);

/* Sets the events that s waits for. With none, errors are still watched, but reported only once. */
static int side_update(struct side *s)
{
    uint32_t events = (!s->is_read && side_room(other_side(s)) ? (uint32_t)EPOLLIN : 0u) |
                      (s->out.data && s->out.len ? (uint32_t)EPOLLOUT : 0u);

    if (s->fd < 0)
        return 0;
    if (!events && s->is_hung_up) {
        if (s->watch)
            s->watch = loop_watch_del(s->watch);
        return 0;
    }
    if (s->watch)
        return events == s->events ? 0 : loop_watch_set(s->watch, s->events = events, NULL);
    s->events = events;
    return loop_watch_add(s->relay->server->o.loop, s->fd, events, on_event, s, &s->watch, NULL);
}

/* It is over when no byte can move in either direction. */
static bool is_over(const struct relay *r)
{
    bool is_moving = false;

    for (int i = 0; i < 2; i++)
        is_moving = is_moving || !r->sides[i].is_read || r->sides[!i].out.data;
    return r->is_broken || !is_moving;
}

static void relay_settle(struct relay *r)
{
    if (is_over(r) || side_update(&r->sides[CLIENT]) < 0 || side_update(&r->sides[PEER]) < 0)
        relay_end(r);
}

static void on_event(struct loop *l, uint32_t events, void *arg)
{
    struct side *s = arg;

    (void)l;
    s->relay->is_broken = s->relay->is_broken || events & EPOLLERR;
    s->is_hung_up = s->is_hung_up || events & EPOLLHUP;
    if (events & EPOLLOUT)
        side_flush(s);
    if (!s->is_read && events & (EPOLLIN | EPOLLHUP) && side_room(other_side(s)))
        side_receive(s);
    relay_settle(s->relay);
}

static void on_close_deadline(struct loop *l, void *arg)
{
    struct relay *r = arg;

    (void)l;
    r->timer = NULL;
    if (is_tls_client(
            &r->sides[CLIENT])) /* by itself, the library does not always see that we close */
        (void)shutdown(r->request->conn->fd, SHUT_RDWR);
    relay_end(r);
}

/*
 * Ends a WebSocket whose sender's access has ended, if the client can be told: the next bytes for it begin a frame. Its
 * answer, and what it still sends, is read and dropped: the kernel would reset a connection that is closed with unread
 * bytes, and the close frame with it.
 */
static bool relay_close_websocket(struct relay *r)
{
    static const char close_frame[] = "\x88\x12\x03\xf0"
                                      "access has ended"; /* 1008 */
    struct side *client = &r->sides[CLIENT], *peer = &r->sides[PEER];

    if (r->is_closing || client->is_read || client->is_shut || !is_between_frames(&r->frames) ||
        !side_queue(client, close_frame, sizeof(close_frame) - 1) ||
        loop_timer_add(r->server->o.loop, clock_mono_ms() + CLOSE_MS, on_close_deadline, r,
                       &r->timer, NULL) < 0)
        return false;
    r->is_closing = true;
    if (peer->watch)
        peer->watch = loop_watch_del(peer->watch);
    fd_close(TAKE_FD(peer->fd));
    ring_done(&peer->out);
    peer->is_read = true;
    client->is_shut = is_tls_client(client);
    side_flush(client);
    relay_settle(r);
    return true;
}

static void relay_start(struct loop *l, void *arg)
{
    struct relay *r = arg;
    struct server *s = r->server;
    bool ok = (!r->urh || s->n_relays < RELAY_MAX) && !s->stopping &&
              !(r->request && request_is_cut(r->request));

    (void)l;
    r->next = s->relays;
    if (r->next)
        r->next->prev = r;
    s->relays = r;
    s->n_relays += r->urh != NULL;
    for (int i = 0; i < 2 && ok; i++) {
        ok = !r->early_len[i] || side_queue(&r->sides[i], r->early[i], r->early_len[i]);
        free(r->early[i]);
        r->early[i] = NULL;
        if (ok)
            side_flush(&r->sides[i]);
    }
    if (ok)
        relay_settle(r);
    else
        relay_end(r);
}

static bool relay_keep_early(struct relay *r, int side, const char *data, size_t len)
{
    if (!len)
        return true;
    if (len > RELAY_BUFFER_BYTES)
        return false;
    r->early[side] = malloc(len);
    if (!r->early[side])
        return false;
    memcpy(r->early[side], data, len);
    r->early_len[side] = len;
    return true;
}

static bool is_websocket(struct request *q)
{
    const char *protocol = request_header(q, "Upgrade");

    return protocol && strcasecmp(protocol, "websocket") == 0;
}

/*
 * Joins an upgraded connection's socket (through urh, closed at the end) with peer_fd, which is taken in any case.
 * `early`: bytes that the client sent already; `late`: the peer's. On failure the connection is closed.
 */
static void relay_begin(struct request *q, struct MHD_UpgradeResponseHandle *urh, int client_fd,
                        int peer_fd, const char *early, size_t early_len, const char *late,
                        size_t late_len)
{
    struct server *s = q->server;
    struct relay *r = calloc(1, sizeof(*r));

    if (!r) {
        fd_close(peer_fd);
        (void)MHD_upgrade_action(urh, MHD_UPGRADE_ACTION_CLOSE);
        return;
    }
    *r = (struct relay){.server = s, .request = q, .urh = urh, .frames.is_on = is_websocket(q)};
    r->sides[CLIENT] = (struct side){.relay = r, .fd = client_fd};
    r->sides[PEER] = (struct side){.relay = r, .fd = peer_fd};
    if (!relay_keep_early(r, PEER, early, early_len) ||
        !relay_keep_early(r, CLIENT, late, late_len) ||
        loop_post(s->o.loop, relay_start, r, NULL) < 0)
        relay_free(r);
}

static void on_upgrade(void *cls, struct MHD_Connection *mhd, void *con_cls, const char *extra,
                       size_t extra_len, MHD_socket sock, struct MHD_UpgradeResponseHandle *urh)
{
    struct request *q = cls;
    const char *late = NULL;
    size_t late_len = 0;
    int fd = q->take_peer(q->take_peer_arg, &late, &late_len);

    (void)mhd;
    (void)con_cls;
    relay_begin(q, urh, sock, fd, extra, extra_len, late, late_len);
}

struct reply *
relay_new_reply(struct request *q,
                int (*take_peer)(void *arg, const char **ret_late, size_t *ret_late_len), void *arg)
{
    /* q outlives the upgrade: a request is completed only when its connection is closed. */
    q->take_peer = take_peer;
    q->take_peer_arg = arg;
    return (struct reply *)MHD_create_response_for_upgrade(on_upgrade, q);
}

void relay_join(struct server *s, int client_fd, int peer_fd, void (*on_end)(void *arg), void *arg)
{
    struct relay *r = calloc(1, sizeof(*r));

    if (!r) {
        fd_close(client_fd);
        fd_close(peer_fd);
        on_end(arg);
        return;
    }
    *r = (struct relay){.server = s, .on_end = on_end, .on_end_arg = arg};
    r->sides[CLIENT] = (struct side){.relay = r, .fd = client_fd};
    r->sides[PEER] = (struct side){.relay = r, .fd = peer_fd};
    relay_start(s->o.loop, r);
}

static void end_relay_of(struct loop *l, void *arg)
{
    struct request *q = arg;
    struct relay *r = q->server->relays;

    (void)l;
    while (r && r->request != q)
        r = r->next;
    /* Without one it has ended, or has not begun: relay_start() looks at request_is_cut(). */
    if (r && !(request_is_revoked(q) && relay_close_websocket(r)))
        relay_end(r);
    request_unref(q);
}

void relay_cut(struct request *q)
{
    if (loop_post(q->server->o.loop, end_relay_of, request_ref(q), NULL) < 0)
        request_unref(q);
}

void relay_end_all(struct server *s)
{
    while (s->relays)
        relay_end(s->relays);
}
