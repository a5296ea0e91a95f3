/*
 * record: what a client of the tests (curl, python3, node, bellhop, a program with libbellhop) sends
 * and gets over each connection that it makes to this machine, as it goes over the wire. Preloaded into
 * the client by wire/launch.c; check-answers.py reads it when all tests are over. The agent itself
 * knows nothing of it.
 *
 * Each process writes one file in WIRE_DIR, of frames: struct frame, then `length` bytes. Kinds:
 *   T  the test: its file and its name          C  the connection is closed
 *   S  sent              s  sent, not kept      R  got       r  got, not kept
 * (s and r have no bytes: `length` is how many there were). Any thread; a frame is one write.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#define N_FDS 65536
#define LOG_FD_MIN 900              /* out of the way of programs that use low numbers themselves */
#define SENT_MAX_BYTES (256 * 1024) /* kept between two answers; the rest is counted */
#define GOT_MAX_BYTES (1024 * 1024) /* kept between two requests */

struct frame {
    uint64_t connection;
    uint32_t length;
    uint32_t kind;
};

static struct {
    uint64_t id; /* 0: not one of ours */
    size_t sent; /* since something was got */
    size_t got;  /* since something was sent */
} connections[N_FDS];

static int log_fd = -1;
static _Atomic uint32_t n_connections;

#define REAL(name) ((__typeof__(&name))real(#name))

static void *real(const char *name)
{
    void *f = dlsym(RTLD_NEXT, name);

    if (!f)
        abort();
    return f;
}

static void put(char kind, uint64_t connection, const struct iovec *data, int n, size_t length)
{
    struct frame f = {.connection = connection, .length = (uint32_t)length, .kind = (uint32_t)kind};
    struct iovec v[8] = {{.iov_base = &f, .iov_len = sizeof f}};
    int saved = errno;
    int used = 1;

    for (int i = 0; i < n && length > 0 && used < 8; i++) {
        size_t part = data[i].iov_len < length ? data[i].iov_len : length;

        v[used++] = (struct iovec){.iov_base = data[i].iov_base, .iov_len = part};
        length -= part;
    }
    (void)!REAL(writev)(log_fd, v, used);
    errno = saved;
}

/* A client's name may be that of a script that finds the client (as pyenv's are). */
static bool is_shell(void)
{
    static const char *const shells[] = {"sh", "bash", "dash", "env"};

    for (size_t i = 0; i < sizeof shells / sizeof *shells; i++)
        if (strcmp(program_invocation_short_name, shells[i]) == 0)
            return true;
    return false;
}

__attribute__((constructor)) static void begin(void)
{
    const char *dir = getenv("WIRE_DIR");
    const char *file = getenv("BATS_TEST_FILENAME");
    const char *test = getenv("BATS_TEST_NAME");
    char path[4096];
    struct iovec name = {.iov_base = path};
    int fd;

    if (is_shell())
        return;
    unsetenv("LD_PRELOAD"); /* the client's own children are not recorded */
    if (!dir)
        return;
    (void)snprintf(path, sizeof path, "%s/%d-%08x", dir, (int)getpid(), (unsigned)arc4random());
    fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0644);
    if (fd < 0)
        return;
    log_fd = fcntl(fd, F_DUPFD_CLOEXEC, LOG_FD_MIN);
    (void)REAL(close)(fd);
    if (log_fd < 0)
        return;
    name.iov_len = (size_t)snprintf(path, sizeof path, "%s: %s",
                                    file ? strrchr(file, '/') + 1 : "-", test ? test : "-");
    put('T', 0, &name, 1, name.iov_len);
}

static bool is_ours(int fd)
{
    return log_fd >= 0 && fd >= 0 && fd < N_FDS && connections[fd].id;
}

static void sent(int fd, const struct iovec *v, int n, ssize_t r)
{
    if (r <= 0 || !is_ours(fd))
        return;
    connections[fd].got = 0;
    connections[fd].sent += (size_t)r;
    /* Many small pieces would make frames of more parts than put() has. */
    put(connections[fd].sent <= SENT_MAX_BYTES && n <= 7 ? 'S' : 's', connections[fd].id, v,
        connections[fd].sent <= SENT_MAX_BYTES && n <= 7 ? n : 0, (size_t)r);
}

static void got(int fd, const struct iovec *v, int n, ssize_t r, int flags)
{
    if (r <= 0 || (flags & MSG_PEEK) || !is_ours(fd))
        return;
    connections[fd].sent = 0;
    connections[fd].got += (size_t)r;
    put(connections[fd].got <= GOT_MAX_BYTES && n <= 7 ? 'R' : 'r', connections[fd].id, v,
        connections[fd].got <= GOT_MAX_BYTES && n <= 7 ? n : 0, (size_t)r);
}

static bool is_here(const struct sockaddr *a)
{
    const struct sockaddr_in *in = (const void *)a;

    return a->sa_family == AF_UNIX ||
           (a->sa_family == AF_INET && ntohl(in->sin_addr.s_addr) >> 24 == 127);
}

int connect(int fd, const struct sockaddr *a, socklen_t len)
{
    int r = REAL(connect)(fd, a, len);

    if ((r == 0 || errno == EINPROGRESS) && log_fd >= 0 && fd >= 0 && fd < N_FDS && is_here(a)) {
        connections[fd].id = (uint64_t)getpid() << 32 | atomic_fetch_add(&n_connections, 1);
        connections[fd].sent = connections[fd].got = 0;
    }
    return r;
}

int close(int fd)
{
    if (is_ours(fd)) {
        put('C', connections[fd].id, NULL, 0, 0);
        connections[fd].id = 0;
    }
    return REAL(close)(fd);
}

#define ONE(p, n) (&(struct iovec){.iov_base = (void *)(uintptr_t)(p), .iov_len = (n)}), 1

ssize_t send(int fd, const void *p, size_t n, int flags)
{
    ssize_t r = REAL(send)(fd, p, n, flags);

    sent(fd, ONE(p, n), r);
    return r;
}

ssize_t sendto(int fd, const void *p, size_t n, int flags, const struct sockaddr *a, socklen_t len)
{
    ssize_t r = REAL(sendto)(fd, p, n, flags, a, len);

    sent(fd, ONE(p, n), r);
    return r;
}

ssize_t sendmsg(int fd, const struct msghdr *m, int flags)
{
    ssize_t r = REAL(sendmsg)(fd, m, flags);

    sent(fd, m->msg_iov, (int)m->msg_iovlen, r);
    return r;
}

ssize_t write(int fd, const void *p, size_t n)
{
    ssize_t r = REAL(write)(fd, p, n);

    sent(fd, ONE(p, n), r);
    return r;
}

ssize_t writev(int fd, const struct iovec *v, int n)
{
    ssize_t r = REAL(writev)(fd, v, n);

    sent(fd, v, n, r);
    return r;
}

ssize_t recv(int fd, void *p, size_t n, int flags)
{
    ssize_t r = REAL(recv)(fd, p, n, flags);

    got(fd, ONE(p, n), r, flags);
    return r;
}

ssize_t __recv_chk(int fd, void *p, size_t n, size_t room, int flags);
ssize_t __recv_chk(int fd, void *p, size_t n, size_t room, int flags)
{
    if (n > room)
        abort();
    return recv(fd, p, n, flags);
}

ssize_t recvfrom(int fd, void *p, size_t n, int flags, struct sockaddr *a, socklen_t *len)
{
    ssize_t r = REAL(recvfrom)(fd, p, n, flags, a, len);

    got(fd, ONE(p, n), r, flags);
    return r;
}

ssize_t recvmsg(int fd, struct msghdr *m, int flags)
{
    ssize_t r = REAL(recvmsg)(fd, m, flags);

    got(fd, m->msg_iov, (int)m->msg_iovlen, r, flags);
    return r;
}

ssize_t read(int fd, void *p, size_t n)
{
    ssize_t r = REAL(read)(fd, p, n);

    got(fd, ONE(p, n), r, 0);
    return r;
}

ssize_t __read_chk(int fd, void *p, size_t n, size_t room);
ssize_t __read_chk(int fd, void *p, size_t n, size_t room)
{
    if (n > room)
        abort();
    return read(fd, p, n);
}

ssize_t readv(int fd, const struct iovec *v, int n)
{
    ssize_t r = REAL(readv)(fd, v, n);

    got(fd, v, n, r, 0);
    return r;
}
