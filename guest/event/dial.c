#include "event/dial.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/str.h"
#include "event/loop.h"

struct dial {
    struct loop *loop;
    uint16_t port;
    dial_fn fn;
    void *arg;
    int fd;
    struct sockaddr_storage to[2];
    size_t n_to, n_tried;
    int sys; /* of the last try */
    struct loop_watch *watch;
    struct loop_timer *timer; /* the deadline, or the delivery of an immediate result */
};

static void on_dial_timer(struct loop *l, void *arg);

static void drop_socket(struct dial *d)
{
    d->watch = loop_watch_del(d->watch);
    fd_close(TAKE_FD(d->fd));
}

static void dial_finish(struct dial *d, int fd)
{
    struct err error = {0};
    dial_fn fn = d->fn;
    void *arg = d->arg;

    if (fd < 0)
        (void)err_field(&error, ERR_UNAVAILABLE, "port",
                        d->sys == ETIMEDOUT ? "port %d in the box does not answer"
                                            : "nothing listens on port %d in the box",
                        (int)d->port);
    d->watch = loop_watch_del(d->watch);
    d->fd = -1;
    dial_free(d);
    fn(arg, fd, &error);
}

static bool add_address(struct dial *d, const char *text, uint16_t port)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(port)};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)};

    if (inet_pton(AF_INET, text, &v4.sin_addr) == 1)
        memcpy(&d->to[d->n_to++], &v4, sizeof(v4));
    else if (inet_pton(AF_INET6, text, &v6.sin6_addr) == 1)
        memcpy(&d->to[d->n_to++], &v6, sizeof(v6));
    else
        return false;
    return true;
}

/* Returns 0: connected. EINPROGRESS: not yet. Else the errno. */
static int try_connect(struct dial *d)
{
    const struct sockaddr_storage *to = &d->to[d->n_tried++];
    int on = 1;

    d->fd = socket(to->ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (d->fd < 0)
        return errno;
    (void)setsockopt(d->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    return connect(d->fd, (const struct sockaddr *)to,
                   to->ss_family == AF_INET ? sizeof(struct sockaddr_in)
                                            : sizeof(struct sockaddr_in6)) < 0
               ? errno
               : 0;
}

/*
 * If nobody listens on an ephemeral port, the kernel may assign that very port to the client: the socket is
 * then connected to itself.
 */
static bool is_self_connected(int fd)
{
    struct sockaddr_storage own = {0}, peer = {0};
    socklen_t own_len = sizeof(own), peer_len = sizeof(peer);

    return getsockname(fd, (struct sockaddr *)&own, &own_len) == 0 &&
           getpeername(fd, (struct sockaddr *)&peer, &peer_len) == 0 && own_len == peer_len &&
           memcmp(&own, &peer, own_len) == 0;
}

static void on_writable(struct loop *l, uint32_t events, void *arg);

/* Tries addresses until one connects, one must be waited for, or none is left. True: done. */
static bool dial_advance(struct dial *d)
{
    for (;;) {
        d->sys = try_connect(d);
        if (d->sys == 0 && is_self_connected(d->fd))
            d->sys = ECONNREFUSED;
        if (d->sys == 0)
            return true;
        if (d->sys == EINPROGRESS &&
            loop_watch_add(d->loop, d->fd, EPOLLOUT, on_writable, d, &d->watch, NULL) == 0)
            return false;
        drop_socket(d);
        if (d->n_tried == d->n_to)
            return true;
    }
}

static void on_writable(struct loop *l, uint32_t events, void *arg)
{
    struct dial *d = arg;
    socklen_t len = sizeof(d->sys);

    (void)l;
    (void)events;
    if (getsockopt(d->fd, SOL_SOCKET, SO_ERROR, &d->sys, &len) == 0 && d->sys == 0 &&
        !is_self_connected(d->fd)) {
        dial_finish(d, d->fd);
        return;
    }
    drop_socket(d);
    if (d->n_tried == d->n_to) {
        dial_finish(d, -1);
        return;
    }
    if (dial_advance(d))
        dial_finish(d, d->fd);
}

static void on_dial_timer(struct loop *l, void *arg)
{
    struct dial *d = arg;

    (void)l;
    d->timer = NULL;
    if (d->sys == EINPROGRESS) {
        d->sys = ETIMEDOUT;
        drop_socket(d);
    }
    dial_finish(d, d->fd);
}

int dial_new(struct loop *l, const char *host, uint16_t port, dial_fn fn, void *arg,
             struct dial **ret, struct err *e)
{
    struct dial *d = calloc(1, sizeof(*d));
    int64_t at_ms = clock_mono_ms();
    int r;

    if (!d)
        return err_oom(e);
    *d = (struct dial){.loop = l, .port = port, .fn = fn, .arg = arg, .fd = -1};
    if (!add_address(d, host ? host : "127.0.0.1", port)) {
        free(d);
        return dial_check_host(host, e);
    }
    if (!host)
        (void)add_address(d, "::1", port);
    if (!dial_advance(d))
        at_ms += DIAL_TIMEOUT_MS;
    r = loop_timer_add(l, at_ms, on_dial_timer, d, &d->timer, e);
    if (r < 0) {
        dial_free(d);
        return r;
    }
    *ret = d;
    return 0;
}

int dial_check_host(const char *host, struct err *e)
{
    struct dial none = {0};

    if (add_address(&none, host, 0))
        return 0;
    return err_field(e, ERR_INVALID, "host", "'%.64s' is not an IP address", host);
}

struct dial *dial_free(struct dial *d)
{
    if (!d)
        return NULL;
    drop_socket(d);
    loop_timer_del(d->timer);
    free(d);
    return NULL;
}

int dial_parse_port(const char *text, uint16_t *ret, const char **ret_end, struct err *e)
{
    size_t len = strspn(text, "0123456789");
    char digits[8] = "";
    uint64_t port = 0;

    if (len && len < sizeof(digits) && (!text[len] || strchr("/?", text[len])))
        memcpy(digits, text, len);
    if (str_parse_u64(digits, 1, 65535, &port, NULL) < 0)
        return err_field(e, ERR_INVALID, "port", "a port from 1 to 65535 is needed in the path");
    *ret = (uint16_t)port;
    *ret_end = text + len;
    return 0;
}
