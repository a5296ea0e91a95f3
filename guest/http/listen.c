#include "http/listen.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "common/cleanup.h"
#include "common/path.h"
#include "common/str.h"
#include "event/loop.h"
#include "http/server.h"
#include "http/state.h"
#include "common/io.h"

#define BACKLOG 1024
#define ACCEPT_BATCH 64 /* then the loop serves other watches */
#define TCP_IDLE_S 30   /* of silence, then the kernel probes the peer */
#define FIRST_BYTES_S 5 /* a connection for TLS is accepted with its first bytes, or after this */

struct listener {
    struct server *server;
    int fd;
    int spare_fd; /* closed for a moment when the limit of descriptors is reached */
    struct loop_watch *watch;
    char *address; /* TCP: with the real port */
    char *path;
    dev_t dev; /* of the socket's file, so that only our own is removed */
    ino_t ino;
};

static const char busy_reply[] =
    "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\n"
    "Content-Length: 71\r\nConnection: close\r\nRetry-After: 1\r\n\r\n"
    "{\"code\":\"resource_exhausted\",\"message\":\"too many connections are open\"}";

static const char plain_reply[] =
    "HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\n"
    "Content-Length: 71\r\nConnection: close\r\n\r\n"
    "{\"code\":\"invalid_argument\",\"message\":\"this port speaks TLS: use https\"}";

/* Plain HTTP begins with a method, TLS with the byte 22. With TCP_DEFER_ACCEPT the first bytes are there. */
static bool is_plain_http(int fd)
{
    char first;

    return recv(fd, &first, 1, MSG_PEEK | MSG_DONTWAIT) == 1 && first >= 'A' && first <= 'Z';
}

static void refuse_plain_http(int fd)
{
    char dropped[4096];

    (void)send(fd, plain_reply, sizeof(plain_reply) - 1, MSG_NOSIGNAL | MSG_DONTWAIT);
    (void)shutdown(fd, SHUT_WR);
    (void)recv(fd, dropped, sizeof(dropped), MSG_DONTWAIT); /* unread bytes would be a reset */
    fd_close(fd);
}

static void refuse_connection(struct server *s, int fd)
{
    if (s->o.service->connection_refused)
        s->o.service->connection_refused(s->o.owner);
    (void)send(fd, busy_reply, sizeof(busy_reply) - 1, MSG_NOSIGNAL | MSG_DONTWAIT);
    (void)shutdown(fd, SHUT_WR);
    fd_close(fd);
}

/* No descriptor is left: close the spare one, accept, refuse and close. Else the client would hang, and
 * the loop would spin. */
static int refuse_with_spare(struct listener *l)
{
    int fd;

    if (l->spare_fd < 0)
        return -1;
    fd_close(l->spare_fd);
    fd = accept4(l->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0)
        refuse_connection(l->server, fd);
    l->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    return fd >= 0 ? 0 : -1;
}

void listener_tune_tcp(int fd)
{
    int on = 1, idle = TCP_IDLE_S, interval = 10, count = 3;

    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof(interval));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof(count));
}

static void on_acceptable(struct loop *loop, uint32_t events, void *arg)
{
    struct listener *l = arg;
    struct server *s = l->server;

    (void)loop;
    (void)events;
    for (int i = 0; i < ACCEPT_BATCH; i++) {
        bool is_tls = s->tls && !l->path;
        struct sockaddr_storage from = {0};
        socklen_t len = sizeof(from);
        int fd = accept4(l->fd, (struct sockaddr *)&from, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);

        if (fd < 0 && (errno == EMFILE || errno == ENFILE) && refuse_with_spare(l) == 0)
            continue;
        if (fd < 0)
            return;
        if (l->spare_fd < 0) /* another thread took it first */
            l->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
        if (s->stopping || server_n_conns(s) >= s->o.max_connections + SERVER_RESERVE) {
            refuse_connection(s, fd);
            continue;
        }
        if (is_tls && is_plain_http(fd)) {
            refuse_plain_http(fd);
            continue;
        }
        if (!l->path)
            listener_tune_tcp(fd);
        (void)MHD_add_connection(is_tls ? s->tls->daemon : s->daemon, fd, (struct sockaddr *)&from,
                                 len);
    }
}

/* "[::1]:80", "1.2.3.4:80", ":80", "localhost:80" -> host (NULL: any) and port. */
static int split_address(const char *addr, char **ret_host, const char **ret_port, struct err *e)
{
    const char *colon = strrchr(addr, ':');
    size_t len = colon ? (size_t)(colon - addr) : 0;
    uint64_t port;
    int r;

    if (!colon)
        return err_field(e, ERR_INVALID, "listen", "'%.100s' is not ADDR:PORT", addr);
    r = str_parse_u64(colon + 1, 0, 65535, &port, e);
    if (r < 0)
        return err_at(e, err_wrap(e, r, "the port of '%.100s'", addr), "listen");
    if (len >= 2 && addr[0] == '[' && addr[len - 1] == ']') {
        addr++;
        len -= 2;
    } else if (memchr(addr, ':', len)) {
        return err_field(e, ERR_INVALID, "listen",
                         "'%.100s': an IPv6 address stands in brackets: [::1]:8080", addr);
    }
    *ret_host = len ? strndup(addr, len) : strdup("");
    *ret_port = colon + 1;
    return *ret_host ? 0 : err_oom(e);
}

static int bind_tcp(const struct addrinfo *ai, int *ret_fd)
{
    _cleanup_close_ int fd =
        socket(ai->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, ai->ai_protocol);
    int on = 1;

    if (fd < 0)
        return -errno;
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (ai->ai_family == AF_INET6)
        (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on));
    if (bind(fd, ai->ai_addr, ai->ai_addrlen) < 0)
        return -errno;
    *ret_fd = TAKE_FD(fd);
    return 0;
}

static int name_address(int fd, char **ret, struct err *e)
{
    struct sockaddr_storage a = {0};
    socklen_t len = sizeof(a);
    char host[INET6_ADDRSTRLEN] = "";
    bool is_v6;
    int n;

    if (getsockname(fd, (struct sockaddr *)&a, &len) < 0)
        return err_sys(e, errno, "getsockname");
    is_v6 = a.ss_family == AF_INET6;
    if (is_v6)
        (void)inet_ntop(AF_INET6, &((struct sockaddr_in6 *)&a)->sin6_addr, host, sizeof(host));
    else
        (void)inet_ntop(AF_INET, &((struct sockaddr_in *)&a)->sin_addr, host, sizeof(host));
    n = asprintf(ret, is_v6 ? "[%s]:%d" : "%s:%d", host,
                 (int)ntohs(is_v6 ? ((struct sockaddr_in6 *)&a)->sin6_port
                                  : ((struct sockaddr_in *)&a)->sin_port));
    return n < 0 ? err_oom(e) : 0;
}

/* Takes fd in any case. */
static int listener_new(struct server *s, int fd, struct listener **ret, struct err *e)
{
    struct listener *l;

    if (listen(fd, BACKLOG) < 0) {
        int sys = errno;

        fd_close(fd);
        return err_sys(e, sys, "listen");
    }
    l = calloc(1, sizeof(*l));
    if (!l) {
        fd_close(fd);
        return err_oom(e);
    }
    *l = (struct listener){
        .server = s, .fd = fd, .spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC)};
    *ret = l;
    return 0;
}

int listener_new_tcp(struct server *s, const char *addr, struct listener **ret, struct err *e)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
    struct addrinfo *found = NULL;
    struct listener *l = NULL;
    _cleanup_free_ char *host = NULL;
    const char *port;
    int fd = -1;
    int sys = EADDRNOTAVAIL;
    int r;

    r = split_address(addr, &host, &port, e);
    if (r < 0)
        return r;
    if (!host || !*host)
        hints.ai_family = AF_INET;
    r = getaddrinfo(host && *host ? host : NULL, port, &hints, &found);
    if (r != 0)
        return err_field(e, ERR_INVALID, "listen", "'%.100s': %s", addr, gai_strerror(r));
    for (struct addrinfo *ai = found; ai && fd < 0; ai = ai->ai_next)
        sys = -bind_tcp(ai, &fd);
    freeaddrinfo(found);
    if (fd < 0)
        return err_at(e, err_sys(e, sys, "listen on '%s'", addr), "listen");
    r = listener_new(s, fd, &l, e);
    if (r < 0)
        return r;
    r = name_address(fd, &l->address, e);
    if (r < 0) {
        listener_free(l);
        return r;
    }
    *ret = l;
    return 0;
}

int listener_new_unix(struct server *s, const char *path, struct listener **ret, struct err *e)
{
    struct listener *l = NULL;
    struct stat st = {0};
    int fd = -1;
    int r;

    /* The token decides who may call; the mode of the file keeps other users out as well. */
    r = unixsock_bind(path, 0600, &fd, e);
    if (r < 0)
        return err_at(e, r, "unix");
    (void)lstat(path, &st);
    r = listener_new(s, fd, &l, e);
    if (r < 0)
        return r;
    l->dev = st.st_dev;
    l->ino = st.st_ino;
    l->path = strdup(path);
    if (!l->path) {
        listener_free(l);
        return err_oom(e);
    }
    *ret = l;
    return 0;
}

int listener_new_fd(struct server *s, int fd, struct listener **ret, struct err *e)
{
    struct sockaddr_un own = {0};
    socklen_t len = sizeof(own) - 1;
    struct listener *l = NULL;
    int r;

    if (getsockname(fd, (struct sockaddr *)&own, &len) < 0) {
        r = err_sys(e, errno, "the socket that was passed in");
        fd_close(fd);
        return r;
    }
    (void)fcntl(fd, F_SETFD, FD_CLOEXEC);
    r = io_set_nonblock(fd, true, e);
    if (r < 0) {
        fd_close(fd);
        return r;
    }
    r = listener_new(s, fd, &l, e);
    if (r < 0)
        return r;
    if (own.sun_family == AF_UNIX)
        l->path = strdup(own.sun_path);
    r = own.sun_family != AF_UNIX ? name_address(fd, &l->address, e) : l->path ? 0 : err_oom(e);
    if (r < 0) {
        listener_free(l);
        return r;
    }
    *ret = l;
    return 0;
}

int listener_start(struct listener *l, struct err *e)
{
    int wait_s = FIRST_BYTES_S;

    if (l->server->tls && !l->path)
        (void)setsockopt(l->fd, IPPROTO_TCP, TCP_DEFER_ACCEPT, &wait_s, sizeof(wait_s));
    return loop_watch_add(l->server->o.loop, l->fd, EPOLLIN, on_acceptable, l, &l->watch, e);
}

void listener_stop(struct listener *l)
{
    if (l->watch)
        l->watch = loop_watch_del(l->watch);
    fd_close(TAKE_FD(l->fd));
}

struct listener *listener_free(struct listener *l)
{
    struct stat st;

    if (!l)
        return NULL;
    if (l->path && lstat(l->path, &st) == 0 && st.st_dev == l->dev && st.st_ino == l->ino)
        (void)unlink(l->path);
    fd_close(l->fd);
    fd_close(l->spare_fd);
    free(l->address);
    free(l->path);
    free(l);
    return NULL;
}

const char *listener_tcp_address(const struct listener *l)
{
    return l->address;
}

const char *listener_unix_path(const struct listener *l)
{
    return l->path;
}
