#pragma once
/* fake_server: a child process that answers connections on a unix socket with bytes from a
 * script. */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

struct reply {
    const char *bytes; /* the response to a request's head; NULL: none, ever */
    bool keeps_open;   /* do not close after it */
    bool reads_all;    /* read until a blank line and "0\r\n\r\n" of a chunked body first */
};

static inline bool fake_read_request(int fd, bool to_last_chunk, char *head, size_t size)
{
    size_t n = 0;

    head[0] = '\0';
    for (;;) {
        ssize_t got = read(fd, head + n, size - 1 - n);

        if (got <= 0)
            return false;
        n += (size_t)got;
        head[n] = '\0';
        if (strstr(head, to_last_chunk ? "\r\n0\r\n\r\n" : "\r\n\r\n"))
            return true;
        if (n > size / 2) { /* only the end is looked at */
            memmove(head, head + n - 16, 17);
            n = 16;
        }
    }
}

/* Serves the replies one connection each, in order; requests go to `log` when it is >= 0. */
static inline pid_t fake_server(const char *path, const struct reply *replies, size_t n, int log)
{
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    static char head[1 << 16];
    pid_t pid;

    (void)strncpy(un.sun_path, path, sizeof(un.sun_path) - 1);
    if (bind(fd, (struct sockaddr *)&un, sizeof(un)) < 0 || listen(fd, 16) < 0)
        return -1;
    pid = fork();
    if (pid != 0) {
        (void)close(fd);
        return pid;
    }
    for (size_t i = 0; i < n; i++) {
        int c = accept(fd, NULL, NULL);
        bool ok = fake_read_request(c, replies[i].reads_all, head, sizeof(head));

        if (log >= 0)
            (void)!write(log, head, strlen(head));
        if (ok && replies[i].bytes)
            (void)send(c, replies[i].bytes, strlen(replies[i].bytes), MSG_NOSIGNAL);
        if (replies[i].bytes && !replies[i].keeps_open)
            (void)close(c);
    }
    for (;;)
        (void)pause();
}
