#include "monitor/port_forward.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/buf.h"
#include "common/cleanup.h"
#include "common/io.h"
#include "lib/util/socket.h"
#include "lib/agent/client.h"
#include "monitor/monitor.h"

#define BUFFER_BYTES (32 * 1024) /* one direction of one connection: 256 of them make 16 MiB */
#define PIECE_BYTES 8192         /* one read; on the stack */

struct listener {
    int fd;
    bool wants_box; /* of a paused box: a client waits in the backlog */
    uint16_t port, host_port;
};

/* One direction of a connection. */
struct half {
    struct buf data;
    bool is_eof;  /* the source has ended */
    bool is_shut; /* the sink was shut down */
};

struct connection {
    int client; /* the client of the forwarded port */
    int agent;  /* the guest agent */
    struct half up, down;
    bool is_shaking; /* the tunnel's response head is incomplete; `down` holds it */
    bool is_dead;
    bool wants_box;             /* of a paused box: the client waits for it */
    size_t client_at, agent_at; /* indexes in the polled array */
};

struct forwards {
    char *socket;
    char *token;
    int (*check_peer)(void *arg, int fd, struct err *e);
    void *check_arg;
    struct listener listeners[MONITOR_MAX_FORWARDS];
    size_t n_listeners;
    struct connection *connections[MONITOR_MAX_CONNECTIONS];
    size_t n_connections;
};

int forwards_new(const struct client_options *agent, struct forwards **ret, struct err *e)
{
    struct forwards *f = calloc(1, sizeof(*f));

    if (!f)
        return err_oom(e);
    f->socket = strdup(agent->socket);
    f->token = strdup(agent->token);
    f->check_peer = agent->check_peer;
    f->check_arg = agent->check_arg;
    if (!f->socket || !f->token) {
        (void)forwards_free(f);
        return err_oom(e);
    }
    *ret = f;
    return 0;
}

static struct connection *connection_free(struct connection *c)
{
    if (!c)
        return NULL;
    fd_close(c->client);
    fd_close(c->agent);
    buf_done(&c->up.data);
    buf_done(&c->down.data);
    free(c);
    return NULL;
}

struct forwards *forwards_free(struct forwards *f)
{
    if (!f)
        return NULL;
    for (size_t i = 0; i < f->n_listeners; i++)
        fd_close(f->listeners[i].fd);
    for (size_t i = 0; i < f->n_connections; i++)
        (void)connection_free(f->connections[i]);
    free(f->socket);
    free(f->token);
    free(f);
    return NULL;
}

int forwards_add(struct forwards *f, uint16_t port, uint16_t host_port, uint16_t *ret_host_port,
                 struct err *e)
{
    struct listener l = {.fd = -1, .port = port};
    int r;

    for (size_t i = 0; i < f->n_listeners; i++)
        if (f->listeners[i].port == port) {
            *ret_host_port = f->listeners[i].host_port;
            return 0;
        }
    if (f->n_listeners == MONITOR_MAX_FORWARDS)
        return err_field(e, ERR_EXHAUSTED, "port", "the box has %d forwarded ports already",
                         MONITOR_MAX_FORWARDS);
    r = socket_listen_tcp(host_port, &l.fd, &l.host_port, e);
    if (r < 0)
        return r;
    f->listeners[f->n_listeners++] = l;
    *ret_host_port = l.host_port;
    return 0;
}

unsigned forwards_n_connections(const struct forwards *f)
{
    return (unsigned)f->n_connections;
}

/* ---- one connection ---- */

static int connect_agent(struct forwards *f, struct connection *c, uint16_t port)
{
    int r = socket_connect(f->socket, 0, &c->agent, NULL); /* the loop never blocks */

    if (r == 0 && f->check_peer)
        r = f->check_peer(f->check_arg, c->agent, NULL);
    if (r == 0)
        r = io_set_nonblock(c->agent, true, NULL);
    if (r < 0 || port == 0)
        return r;
    c->is_shaking = true;
    return tunnel_request(port, f->token, &c->up.data, NULL);
}

static void accept_one(struct forwards *f, const struct listener *l)
{
    int fd = accept4(l->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    struct connection *c;

    if (fd < 0)
        return;
    c = f->n_connections < MONITOR_MAX_CONNECTIONS ? calloc(1, sizeof(*c)) : NULL;
    if (!c) {
        fd_close(fd);
        return;
    }
    c->client = fd;
    c->agent = -1;
    buf_init(&c->up.data, BUFFER_BYTES);
    buf_init(&c->down.data, BUFFER_BYTES);
    if (connect_agent(f, c, l->port) < 0) {
        (void)connection_free(c);
        return;
    }
    f->connections[f->n_connections++] = c;
}

/* Reads available bytes into the buffer; false: the connection is broken. */
static bool half_pull(int fd, struct half *h)
{
    char data[PIECE_BYTES];
    size_t room = BUFFER_BYTES - h->data.len;
    ssize_t n;

    if (room == 0 || h->is_eof)
        return true;
    if (room > sizeof(data))
        room = sizeof(data);
    n = recv(fd, data, room, MSG_DONTWAIT);
    if (n < 0)
        return errno == EAGAIN || errno == EINTR;
    if (n == 0)
        h->is_eof = true;
    return n == 0 || buf_add(&h->data, data, (size_t)n, NULL) == 0;
}

static bool half_push(int fd, struct half *h)
{
    if (h->data.len) {
        ssize_t n = send(fd, h->data.data, h->data.len, MSG_DONTWAIT | MSG_NOSIGNAL);

        if (n < 0)
            return errno == EAGAIN || errno == EINTR;
        buf_consume(&h->data, (size_t)n);
    }
    if (h->data.len == 0 && h->is_eof && !h->is_shut) {
        h->is_shut = true;
        (void)shutdown(fd, SHUT_WR);
    }
    return true;
}

/* Removes the head of the agent's response: it is not for the client. */
static bool finish_handshake(struct connection *c)
{
    size_t head = tunnel_head_bytes(&c->down.data);

    if (!head)
        return !c->down.is_eof && c->down.data.len < TUNNEL_HEAD_BYTES;
    if (tunnel_check(&c->down.data, NULL) < 0)
        return false;
    buf_consume(&c->down.data, head);
    c->is_shaking = false;
    return true;
}

static void act_on(struct connection *c, short client, short agent)
{
    bool ok = true;

    if (agent & (POLLIN | POLLHUP | POLLERR))
        ok = half_pull(c->agent, &c->down);
    if (ok && c->is_shaking)
        ok = finish_handshake(c);
    if (ok && client & (POLLIN | POLLHUP | POLLERR) && !c->is_shaking)
        ok = half_pull(c->client, &c->up);
    if (ok)
        ok = half_push(c->agent, &c->up);
    if (ok && !c->is_shaking)
        ok = half_push(c->client, &c->down);
    c->is_dead = !ok || (c->up.is_shut && c->down.is_shut);
}

/* ---- the loop's side ---- */

/* While the tunnel opens, the client's bytes wait in the kernel. */
static short client_events(const struct connection *c)
{
    bool reads = !c->is_shaking && !c->up.is_eof && c->up.data.len < BUFFER_BYTES;

    return (short)((reads ? POLLIN : 0) | (!c->is_shaking && c->down.data.len ? POLLOUT : 0));
}

static short agent_events(const struct connection *c)
{
    bool reads = !c->down.is_eof && c->down.data.len < BUFFER_BYTES;

    return (short)((reads ? POLLIN : 0) | (c->up.data.len ? POLLOUT : 0));
}

/* A side with no wanted events is not polled: poll() would report its hang-up for ever. */
static struct pollfd poll_for(int fd, short events)
{
    return (struct pollfd){.fd = events ? fd : -1, .events = events};
}

/* A paused box reads nothing: its client's bytes stay in the kernel. */
static short paused_events(const struct connection *c)
{
    return (short)(c->up.is_eof || c->wants_box ? 0 : POLLIN);
}

size_t forwards_poll(struct forwards *f, bool is_paused, struct pollfd *out, size_t max)
{
    size_t n = 0;

    for (size_t i = 0; i < f->n_listeners && n < max; i++)
        out[n++] =
            poll_for(f->listeners[i].fd, is_paused && f->listeners[i].wants_box ? 0 : POLLIN);
    for (size_t i = 0; i < f->n_connections && n + 2 <= max; i++) {
        struct connection *c = f->connections[i];

        c->client_at = n;
        out[n++] = poll_for(c->client, is_paused ? paused_events(c) : client_events(c));
        c->agent_at = n;
        out[n++] = poll_for(c->agent, is_paused ? 0 : agent_events(c));
    }
    return n;
}

/* ---- of a paused box ---- */

/* Looks at what the client has sent, and leaves it in the kernel. */
static void look_at_client(struct connection *c, short revents)
{
    char byte;
    ssize_t n;

    if (c->is_shaking || c->up.data.len)
        c->wants_box = true;
    if (c->wants_box || !revents)
        return;
    n = recv(c->client, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    if (n > 0)
        c->wants_box = true;
    else if (n == 0)
        c->up.is_eof = true; /* the box hears of it when it runs */
    else if (errno != EAGAIN && errno != EINTR)
        c->is_dead = true;
}

bool forwards_want_box(const struct forwards *f)
{
    for (size_t i = 0; i < f->n_listeners; i++)
        if (f->listeners[i].wants_box)
            return true;
    for (size_t i = 0; i < f->n_connections; i++)
        if (f->connections[i]->wants_box)
            return true;
    return false;
}

void forwards_refuse(struct forwards *f)
{
    size_t kept = 0;

    for (size_t i = 0; i < f->n_listeners; i++) {
        struct listener *l = &f->listeners[i];
        int fd;

        while (l->wants_box && (fd = accept4(l->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0)
            fd_close(fd);
        l->wants_box = false;
    }
    for (size_t i = 0; i < f->n_connections; i++) {
        struct connection *c = f->connections[i];

        if (c->wants_box)
            (void)connection_free(c);
        else
            f->connections[kept++] = c;
    }
    f->n_connections = kept;
}

/* ---- after the poll ---- */

static void act_on_polled(struct connection *c, bool is_paused, short client, short agent)
{
    if (is_paused) {
        look_at_client(c, client);
        return;
    }
    c->wants_box = false;
    if (client || agent)
        act_on(c, client, agent);
}

void forwards_act(struct forwards *f, bool is_paused, const struct pollfd *polled, size_t n)
{
    size_t n_before = f->n_connections;
    size_t kept = 0;

    for (size_t i = 0; i < n_before; i++) {
        struct connection *c = f->connections[i];

        if (c->agent_at < n)
            act_on_polled(c, is_paused, polled[c->client_at].revents, polled[c->agent_at].revents);
        if (c->is_dead)
            (void)connection_free(c);
        else
            f->connections[kept++] = c;
    }
    f->n_connections = kept;
    for (size_t i = 0; i < f->n_listeners && i < n; i++) {
        struct listener *l = &f->listeners[i];

        if (!is_paused && polled[i].revents)
            accept_one(f, l);
        l->wants_box = is_paused && (polled[i].revents || l->wants_box);
    }
}
