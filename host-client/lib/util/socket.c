#include "lib/util/socket.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/io.h"
#include "common/path.h"

#define SOCKET_BACKLOG 64
#define SOCKET_RETRY_MS 5

/* sockaddr_un has 108 bytes: a longer path goes through a descriptor of its directory. */
static int fill_address(const char *path, struct sockaddr_un *un, int *ret_dir, struct err *e)
{
    _cleanup_free_ char *dir = NULL;
    _cleanup_close_ int fd = -1;
    int n;

    memset(un, 0, sizeof(*un));
    un->sun_family = AF_UNIX;
    if (strlen(path) < sizeof(un->sun_path)) {
        memcpy(un->sun_path, path, strlen(path) + 1);
        return 0;
    }
    dir = path_dir(path);
    if (!dir)
        return err_oom(e);
    fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return err_sys(e, errno, "open '%s'", dir);
    n = snprintf(un->sun_path, sizeof(un->sun_path), "/proc/self/fd/%d/%s", fd, path_name(path));
    if (n < 0 || (size_t)n >= sizeof(un->sun_path))
        return err_set(e, ERR_INVALID, "the socket's name in '%s' is too long", path);
    *ret_dir = TAKE_FD(fd);
    return 0;
}

static int connect_to(int fd, const struct sockaddr_un *un, const char *path, int wait_ms,
                      struct err *e)
{
    int64_t deadline = clock_mono_ms() + wait_ms;
    int sys, r;

    while (connect(fd, (const struct sockaddr *)un, sizeof(*un)) < 0) {
        sys = errno;
        /* The kernel does not report when the backlog has room again. */
        if (sys == EAGAIN && clock_until_ms(deadline) > 0) {
            (void)poll(NULL, 0, SOCKET_RETRY_MS);
            continue;
        }
        r = err_sys(e, sys, "connect to '%s'", path);
        if (sys != ENOENT && sys != ECONNREFUSED && sys != EAGAIN)
            return r;
        if (e)
            e->code = ERR_UNAVAILABLE;
        return -ERR_UNAVAILABLE;
    }
    return 0;
}

int socket_connect(const char *path, int wait_ms, int *ret_fd, struct err *e)
{
    _cleanup_close_ int fd = -1;
    _cleanup_close_ int dir = -1;
    struct sockaddr_un un;
    int r = fill_address(path, &un, &dir, e);

    if (r < 0)
        return r;
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return err_sys(e, errno, "socket");
    r = connect_to(fd, &un, path, wait_ms, e);
    if (r == 0)
        r = io_set_nonblock(fd, false, e);
    if (r < 0)
        return r;
    *ret_fd = TAKE_FD(fd);
    return 0;
}

static int connect_address(const struct addrinfo *at, int cancel_fd, int64_t deadline_mono_ms,
                           int *ret_fd, struct err *e)
{
    _cleanup_close_ int fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int sys = 0, one = 1;
    socklen_t len = sizeof(sys);
    int r;

    if (fd < 0)
        return err_sys(e, errno, "socket");
    if (connect(fd, at->ai_addr, at->ai_addrlen) < 0) {
        if (errno != EINPROGRESS)
            return err_set(e, ERR_UNAVAILABLE, "connect: %m");
        r = socket_wait(fd, true, cancel_fd, deadline_mono_ms, e);
        if (r < 0)
            return r;
        (void)getsockopt(fd, SOL_SOCKET, SO_ERROR, &sys, &len);
        errno = sys;
        if (sys)
            return err_set(e, ERR_UNAVAILABLE, "connect: %m");
    }
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    r = io_set_nonblock(fd, false, e);
    if (r == 0)
        *ret_fd = TAKE_FD(fd);
    return r;
}

int socket_connect_tcp(const char *host, uint16_t port, int cancel_fd, int64_t deadline_mono_ms,
                       int *ret_fd, struct err *e)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    struct addrinfo *list = NULL;
    char service[8];
    int r;

    (void)snprintf(service, sizeof(service), "%u", (unsigned)port);
    r = getaddrinfo(host, service, &hints, &list);
    if (r != 0)
        return err_set(e, ERR_UNAVAILABLE, "'%.200s': %s", host, gai_strerror(r));
    r = -ERR_UNAVAILABLE;
    for (const struct addrinfo *at = list; at && r == -ERR_UNAVAILABLE; at = at->ai_next)
        r = connect_address(at, cancel_fd, deadline_mono_ms, ret_fd, e);
    freeaddrinfo(list);
    return r < 0 ? err_wrap(e, r, "'%.200s:%u'", host, (unsigned)port) : 0;
}

int socket_pair(int ret_fds[2], struct err *e)
{
    return socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ret_fds) < 0
               ? err_sys(e, errno, "socketpair")
               : 0;
}

int socket_peer(int fd, pid_t *ret, struct err *e)
{
    struct ucred cred = {0};
    socklen_t len = sizeof(cred);

    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) < 0)
        return err_sys(e, errno, "the peer of a socket");
    *ret = cred.pid;
    return 0;
}

int socket_listen(const char *path, int *ret_fd, struct err *e)
{
    _cleanup_close_ int fd = -1;
    _cleanup_close_ int dir = -1;
    struct sockaddr_un un;
    int r = fill_address(path, &un, &dir, e);

    if (r < 0)
        return r;
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return err_sys(e, errno, "socket");
    (void)unlink(path);
    (void)fchmod(fd, 0600); /* bind() gives the file this mode */
    if (bind(fd, (struct sockaddr *)&un, sizeof(un)) < 0)
        return err_sys(e, errno, "bind '%s'", path);
    if (listen(fd, SOCKET_BACKLOG) < 0)
        return err_sys(e, errno, "listen '%s'", path);
    *ret_fd = TAKE_FD(fd);
    return 0;
}

int socket_listen_tcp(uint16_t port, int *ret_fd, uint16_t *ret_port, struct err *e)
{
    _cleanup_close_ int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct sockaddr_in in = {.sin_family = AF_INET,
                             .sin_port = htons(port),
                             .sin_addr = {.s_addr = htonl(INADDR_LOOPBACK)}};
    socklen_t len = sizeof(in);
    int one = 1;

    if (fd < 0)
        return err_sys(e, errno, "socket");
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    if (bind(fd, (struct sockaddr *)&in, sizeof(in)) < 0 || listen(fd, SOCKET_BACKLOG) < 0) {
        if (errno == EADDRINUSE)
            return err_field(e, ERR_EXISTS, "port", "the port %u of this machine is taken",
                             (unsigned)port);
        return err_sys(e, errno, "listen on port %u", (unsigned)port);
    }
    if (getsockname(fd, (struct sockaddr *)&in, &len) < 0)
        return err_sys(e, errno, "getsockname");
    *ret_port = ntohs(in.sin_port);
    *ret_fd = TAKE_FD(fd);
    return 0;
}

int socket_wait(int fd, bool for_write, int cancel_fd, int64_t deadline_mono_ms, struct err *e)
{
    for (;;) {
        struct pollfd p[2] = {{.fd = fd, .events = (short)(for_write ? POLLOUT : POLLIN)},
                              {.fd = cancel_fd, .events = POLLIN}};
        int n = poll(p, 2, clock_until_ms(deadline_mono_ms));

        if (n < 0 && errno != EINTR)
            return err_sys(e, errno, "poll");
        if (n == 0)
            return err_set(e, ERR_DEADLINE, "the deadline passed");
        if (n > 0 && p[1].revents)
            return err_set(e, ERR_CANCELED, "canceled");
        if (n > 0)
            return 0;
    }
}

bool socket_wait_canceled(int cancel_fd, int ms)
{
    struct pollfd p = {.fd = cancel_fd, .events = POLLIN};

    return poll(&p, 1, ms) > 0;
}
