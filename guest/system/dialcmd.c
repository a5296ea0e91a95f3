#include "system/dialcmd.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/io.h"
#include "common/str.h"

#define EXIT_USAGE 2
#define DIAL_BYTES (64 * 1024)

/* One direction. */
struct dial_way {
    int from, to;
    size_t at, len; /* of `data`: not written yet */
    bool is_eof, is_done;
    char data[DIAL_BYTES];
};

/* Too large for the stack of a thread, and there is one of each. */
static struct dial_way dial_in, dial_out;

static int dial_usage(FILE *to, int status)
{
    (void)fprintf(to, "Usage: bellhopd dial PATH|PORT\n\n"
                      "Joins standard input and output with the unix socket PATH, or with PORT on "
                      "127.0.0.1.\nThe end of one side ends that direction alone.\n");
    return status;
}

static int connect_unix(const char *path)
{
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0)
        return -1;
    if (strlen(path) >= sizeof(un.sun_path)) {
        errno = ENAMETOOLONG;
        return -1;
    }
    memcpy(un.sun_path, path, strlen(path) + 1);
    return connect(fd, (const struct sockaddr *)&un, sizeof(un)) < 0 ? -1 : fd;
}

static int connect_port(uint16_t port)
{
    struct sockaddr_in in = {.sin_family = AF_INET,
                             .sin_port = htons(port),
                             .sin_addr = {.s_addr = htonl(INADDR_LOOPBACK)}};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0)
        return -1;
    return connect(fd, (const struct sockaddr *)&in, sizeof(in)) < 0 ? -1 : fd;
}

static bool is_retry(void)
{
    return errno == EAGAIN || errno == EINTR;
}

/* False: the direction is broken. */
static bool dial_move(struct dial_way *w)
{
    ssize_t n;

    if (!w->len && !w->is_eof) {
        n = read(w->from, w->data, sizeof(w->data));
        if (n < 0 && !is_retry())
            return false;
        w->is_eof = n == 0;
        w->at = 0;
        w->len = n > 0 ? (size_t)n : 0;
    }
    if (w->len) {
        n = write(w->to, w->data + w->at, w->len);
        if (n < 0 && !is_retry())
            return false;
        w->at += n > 0 ? (size_t)n : 0;
        w->len -= n > 0 ? (size_t)n : 0;
    }
    if (w->is_eof && !w->len && !w->is_done) {
        w->is_done = true;
        if (shutdown(w->to, SHUT_WR) < 0 && errno == ENOTSOCK)
            (void)close(w->to);
    }
    return true;
}

static void dial_watch(const struct dial_way *w, struct pollfd p[2])
{
    p[0] = (struct pollfd){.fd = w->is_eof || w->len ? -1 : w->from, .events = POLLIN};
    p[1] = (struct pollfd){.fd = w->len ? w->to : -1, .events = POLLOUT};
}

static int dial_run(int fd)
{
    dial_in = (struct dial_way){.from = STDIN_FILENO, .to = fd};
    dial_out = (struct dial_way){.from = fd, .to = STDOUT_FILENO};
    while (!dial_out.is_done) {
        struct pollfd p[4];

        dial_watch(&dial_in, p);
        dial_watch(&dial_out, p + 2);
        p[3].fd = STDOUT_FILENO; /* also while nothing waits for it: its reader may go */
        p[3].events = (short)(dial_out.len ? POLLOUT : 0);
        if (poll(p, 4, -1) < 0 && errno != EINTR)
            return 1;
        if (p[3].revents & POLLERR)
            return 1;
        if (!dial_move(&dial_in) || !dial_move(&dial_out))
            return 1;
    }
    return 0;
}

int dialcmd_main(int argc, char **argv)
{
    uint64_t port = 0;
    int fd;

    if (argc == 1 && str_eq(argv[0], "--help"))
        return dial_usage(stdout, 0);
    if (argc != 1 || (*argv[0] != '/' && str_parse_u64(argv[0], 1, UINT16_MAX, &port, NULL) < 0))
        return dial_usage(stderr, EXIT_USAGE);
    (void)signal(SIGPIPE, SIG_IGN);
    fd = port ? connect_port((uint16_t)port) : connect_unix(argv[0]);
    if (fd < 0 || io_set_nonblock(fd, true, NULL) < 0 ||
        io_set_nonblock(STDIN_FILENO, true, NULL) < 0 ||
        io_set_nonblock(STDOUT_FILENO, true, NULL) < 0) {
        (void)fprintf(stderr, "bellhopd dial: '%s': %m\n", argv[0]);
        return 1;
    }
    return dial_run(fd);
}
