#include "api/proxy/forward.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "event/loop.h"
#include "agent.h"
#include "http/listen.h"
#include "http/relay.h"
#include "http/server.h"
#include "system/log.h"
#include "system/metrics.h"
#include "event/pool.h"
#include "event/dial.h"
#include "system/ports.h"

#define BACKLOG 128
#define ACCEPT_BATCH 16
#define PORT_BITS 65536

/* A set of port numbers. */
struct port_set {
    uint8_t bits[PORT_BITS / 8];
};

struct outlet { /* a listener at the address */
    struct forward *forward;
    uint16_t port;
    int fd; /* -1: the slot is free */
    struct loop_watch *watch;
};

struct link { /* a connection whose port is being dialed */
    struct forward *forward;
    int fd;
    struct dial *dial;
    struct link *next, *prev;
};

struct forward {
    struct agent *agent;
    struct server *server;
    struct sockaddr_storage address; /* without a port */
    socklen_t address_len;
    char *text;
    int spare_fd; /* closed for a moment to accept and refuse when descriptors run out */
    struct loop_timer *timer;
    struct outlet outlets[FORWARD_MAX_PORTS];
    struct link *links;
    unsigned n_connections; /* dialed and relayed */
    unsigned n_missing;     /* ports of `wanted` without an outlet: tried again */
    bool is_stopped;
    int complained; /* -errno of the last complaint in the log; 0: none */
    /* the worker's while is_scanning, else the loop's: */
    _Atomic bool is_scanning;
    struct port_set wanted; /* read by both */
    struct port_set found;
};

static bool has_port(const struct port_set *s, unsigned port)
{
    return s->bits[port / 8] & (1u << port % 8);
}

static void add_port(struct port_set *s, unsigned port)
{
    s->bits[port / 8] |= (uint8_t)(1u << port % 8);
}

/* ---- the address ---- */

static int parse_address(const char *text, struct sockaddr_storage *ret, socklen_t *ret_len,
                         struct err *e)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};
    const struct in6_addr *a = &v6.sin6_addr;
    bool is_one = false;

    *ret = (struct sockaddr_storage){0};
    if (inet_pton(AF_INET, text, &v4.sin_addr) == 1) {
        uint32_t n = ntohl(v4.sin_addr.s_addr);

        is_one = n >> 24 != 0 && n >> 24 != IN_LOOPBACKNET && n >> 28 < 14; /* 224.0.0.0 and up */
        memcpy(ret, &v4, sizeof(v4));
        *ret_len = sizeof(v4);
    } else if (inet_pton(AF_INET6, text, &v6.sin6_addr) == 1) {
        /* A link-local address would need its interface. */
        is_one = !IN6_IS_ADDR_UNSPECIFIED(a) && !IN6_IS_ADDR_LOOPBACK(a) &&
                 !IN6_IS_ADDR_MULTICAST(a) && !IN6_IS_ADDR_V4MAPPED(a) && !IN6_IS_ADDR_LINKLOCAL(a);
        memcpy(ret, &v6, sizeof(v6));
        *ret_len = sizeof(v6);
    }
    if (is_one)
        return 0;
    return err_field(e, ERR_INVALID, "forward-localhost",
                     "'%.64s' must be an IP address of this machine: no name, wildcard or loopback",
                     text);
}

int forward_check_address(const char *text, struct err *e)
{
    struct sockaddr_storage address;
    socklen_t len;

    return parse_address(text, &address, &len, e);
}

/* ---- connections ---- */

/* Closes with a reset: after a normal close the client would take the reply for complete. */
static void refuse_client(int fd)
{
    struct linger at_once = {.l_onoff = 1};

    (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
    fd_close(fd);
}

static void on_relay_end(void *arg)
{
    struct forward *f = arg;

    f->n_connections--;
}

/* Returns the link's descriptor, which becomes the caller's. */
static int link_free(struct link *l)
{
    int fd = l->fd;

    if (l->next)
        l->next->prev = l->prev;
    if (l->prev)
        l->prev->next = l->next;
    else
        l->forward->links = l->next;
    free(l);
    return fd;
}

static void on_link_dialed(void *arg, int peer_fd, const struct err *error)
{
    struct link *l = arg;
    struct forward *f = l->forward;
    int fd = link_free(l);

    (void)error;
    if (peer_fd >= 0) {
        relay_join(f->server, fd, peer_fd, on_relay_end, f);
        return;
    }
    refuse_client(fd);
    f->n_connections--;
}

static void connect_through(struct outlet *o, int fd)
{
    struct forward *f = o->forward;
    struct link *l = f->n_connections < FORWARD_MAX_CONNECTIONS ? calloc(1, sizeof(*l)) : NULL;

    if (!l) {
        metrics_connection_refused();
        refuse_client(fd);
        return;
    }
    *l = (struct link){.forward = f, .fd = fd, .next = f->links};
    if (l->next)
        l->next->prev = l;
    f->links = l;
    f->n_connections++;
    listener_tune_tcp(fd);
    /* Dials both loopbacks: the listener may have moved since the last scan. */
    if (dial_new(f->agent->loop, NULL, o->port, on_link_dialed, l, &l->dial, NULL) < 0)
        on_link_dialed(l, -1, NULL);
}

/* Refuses a client when descriptors run out: otherwise the loop would spin and the client hang. */
static bool refuse_with_spare(struct outlet *o)
{
    struct forward *f = o->forward;
    int fd;

    if (f->spare_fd < 0)
        return false;
    fd_close(f->spare_fd);
    fd = accept4(o->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0) {
        metrics_connection_refused();
        refuse_client(fd);
    }
    f->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    return fd >= 0;
}

static void on_acceptable(struct loop *loop, uint32_t events, void *arg)
{
    struct outlet *o = arg;

    (void)loop;
    (void)events;
    for (int i = 0; i < ACCEPT_BATCH; i++) {
        int fd = accept4(o->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

        if (fd < 0 && (errno == EMFILE || errno == ENFILE) && refuse_with_spare(o))
            continue;
        if (fd < 0)
            return;
        if (o->forward->spare_fd < 0) /* another thread took the number */
            o->forward->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
        connect_through(o, fd);
    }
}

/* ---- listeners ---- */

static void outlet_close(struct outlet *o)
{
    if (o->watch)
        o->watch = loop_watch_del(o->watch);
    fd_close(TAKE_FD(o->fd));
}

/* -errno. */
static int bind_port(const struct forward *f, uint16_t port, int *ret_fd)
{
    struct sockaddr_storage address = f->address;
    _cleanup_close_ int fd =
        socket(address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    int on = 1;

    if (fd < 0)
        return -errno;
    if (address.ss_family == AF_INET)
        ((struct sockaddr_in *)(void *)&address)->sin_port = htons(port);
    else
        ((struct sockaddr_in6 *)(void *)&address)->sin6_port = htons(port);
    /* Connections of an earlier listener may be in TIME_WAIT. */
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (bind(fd, (struct sockaddr *)&address, f->address_len) < 0 || listen(fd, BACKLOG) < 0)
        return -errno;
    *ret_fd = TAKE_FD(fd);
    return 0;
}

static int outlet_open(struct outlet *o, uint16_t port)
{
    struct forward *f = o->forward;
    int r = bind_port(f, port, &o->fd);

    if (r < 0)
        return r;
    o->port = port;
    if (loop_watch_add(f->agent->loop, o->fd, EPOLLIN, on_acceptable, o, &o->watch, NULL) < 0) {
        outlet_close(o);
        return -ENOMEM;
    }
    return 0;
}

static struct outlet *find_outlet(struct forward *f, unsigned port)
{
    for (size_t i = 0; i < FORWARD_MAX_PORTS; i++)
        if (port ? f->outlets[i].fd >= 0 && f->outlets[i].port == port : f->outlets[i].fd < 0)
            return &f->outlets[i];
    return NULL;
}

/* Logs a failure once, not every second. */
static void log_once(struct forward *f, int r)
{
    if (r == f->complained)
        return;
    f->complained = r;
    if (r == -EADDRNOTAVAIL)
        log_error("--forward-localhost: %s is no address of this machine yet", f->text);
    if (r == -ENOSPC)
        log_error("--forward-localhost: more than %d ports listen on localhost", FORWARD_MAX_PORTS);
}

/*
 * A listener that can't be opened is retried at each scan: another program may have the port at this address (and is
 * reached there without us) or at all addresses, the agent may lack the right, or the address may not exist yet.
 */
static void open_missing(struct forward *f)
{
    int stop = 0;

    f->n_missing = 0;
    for (unsigned port = 1; port < PORT_BITS && !stop; port++) {
        struct outlet *o;
        int r;

        if (!has_port(&f->wanted, port) || find_outlet(f, port))
            continue;
        o = find_outlet(f, 0);
        r = o ? outlet_open(o, (uint16_t)port) : -ENOSPC;
        f->n_missing += r < 0;
        stop = r == -ENOSPC || r == -EADDRNOTAVAIL ? r : 0; /* the other ports would fail too */
    }
    log_once(f, stop);
}

static void close_gone(struct forward *f)
{
    for (size_t i = 0; i < FORWARD_MAX_PORTS; i++)
        if (f->outlets[i].fd >= 0 && !has_port(&f->wanted, f->outlets[i].port))
            outlet_close(&f->outlets[i]);
}

/* ---- the scan ---- */

static bool is_wanted(const struct forward *f, const struct port *p)
{
    return !p->is_agent && p->is_loopback && p->is_reachable &&
           server_check_port(f->server, p->number, NULL) == 0;
}

static void on_scan_done(struct loop *loop, void *arg)
{
    struct forward *f = arg;

    (void)loop;
    if (!f->is_stopped) {
        f->wanted = f->found;
        close_gone(f);
        open_missing(f);
    }
    f->is_scanning = false;
}

/* On a worker. Wakes the loop only if something has changed. */
static void scan_listeners(void *arg)
{
    struct forward *f = arg;
    struct ports ports = {0};
    bool has_changed;

    f->found = (struct port_set){0};
    if (ports_read(0, &ports, NULL) < 0 || ports.n_listening > ports.n)
        f->found = f->wanted; /* the list is incomplete: keep the ports that we have */
    for (size_t i = 0; i < ports.n; i++)
        if (is_wanted(f, &ports.list[i]))
            add_port(&f->found, ports.list[i].number);
    ports_done(&ports);
    has_changed = memcmp(&f->found, &f->wanted, sizeof(f->found)) != 0;
    if (!has_changed || loop_post_sure(f->agent->loop, on_scan_done, f, NULL) < 0)
        f->is_scanning = false;
}

static void on_tick(struct loop *loop, void *arg)
{
    struct forward *f = arg;

    f->timer = NULL;
    if (!f->is_scanning) {
        if (f->n_missing)
            open_missing(f);
        f->is_scanning = true;
        if (pool_run(f->agent->pool, scan_listeners, f, NULL) < 0)
            f->is_scanning = false;
    }
    if (loop_timer_add(loop, clock_mono_ms() + FORWARD_SCAN_MS, on_tick, f, &f->timer, NULL) < 0)
        log_error("--forward-localhost: out of memory: what listens is not looked at any more");
}

/* ---- life ---- */

int forward_new(struct agent *a, const char *address, struct forward **ret, struct err *e)
{
    struct forward *f = calloc(1, sizeof(*f));
    int r;

    if (!f)
        return err_oom(e);
    f->agent = a;
    f->server = a->server;
    f->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    for (size_t i = 0; i < FORWARD_MAX_PORTS; i++)
        f->outlets[i] = (struct outlet){.forward = f, .fd = -1};
    r = parse_address(address, &f->address, &f->address_len, e);
    if (r == 0) {
        f->text = strdup(address);
        r = f->text ? 0 : err_oom(e);
    }
    if (r < 0) {
        forward_free(f);
        return r;
    }
    *ret = f;
    return 0;
}

int forward_start(struct forward *f, struct err *e)
{
    return loop_timer_add(f->agent->loop, clock_mono_ms(), on_tick, f, &f->timer, e);
}

void forward_quiesce(struct forward *f)
{
    if (!f)
        return;
    f->is_stopped = true;
    f->timer = loop_timer_del(f->timer);
    for (size_t i = 0; i < FORWARD_MAX_PORTS; i++)
        if (f->outlets[i].fd >= 0)
            outlet_close(&f->outlets[i]);
}

struct forward *forward_free(struct forward *f)
{
    if (!f)
        return NULL;
    forward_quiesce(f);
    while (f->links) {
        dial_free(f->links->dial);
        fd_close(link_free(f->links));
    }
    fd_close(f->spare_fd);
    free(f->text);
    free(f);
    return NULL;
}
