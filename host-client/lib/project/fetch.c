#include "lib/project/fetch.h"

#include <errno.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/cleanup.h"
/* A socket pair: unlike a pipe's, its writer gets no SIGPIPE when the reader gives up. */
struct flow {
    int read_fd;
    int write_fd;
    const struct fetch *f;
    int r;
    struct err e;
};

static void *extract_thread(void *arg)
{
    struct flow *flow = arg;

    flow->r = extract_stream(flow->read_fd, &flow->f->to, &flow->e);
    fd_close(TAKE_FD(flow->read_fd)); /* the writer gets an error and stops */
    return NULL;
}

static int to_thread(void *arg, const char *data, size_t len)
{
    const struct flow *flow = arg;

    while (len) {
        ssize_t n = send(flow->write_fd, data, len, MSG_NOSIGNAL);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return 1;
        data += n;
        len -= (size_t)n;
    }
    return 0;
}

static int receive_archive(struct client *c, struct flow *flow, struct err *e)
{
    const struct fetch *f = flow->f;
    const char *query = f->to.is_zstd ? "format=tar.zst" : "format=tar";

    if (f->names)
        return client_post_archive(c, f->path, query, f->names, f->names_bytes, to_thread, flow, 0,
                                   e);
    return client_get_archive(c, f->path, query, to_thread, flow, 0, e);
}

int fetch_run(struct client *c, const struct fetch *f, struct err *e)
{
    struct flow flow = {.f = f};
    pthread_t thread;
    int p[2];
    int r;

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, p) < 0)
        return err_sys(e, errno, "socketpair");
    flow.read_fd = p[0];
    flow.write_fd = p[1];
    r = pthread_create(&thread, NULL, extract_thread, &flow);
    if (r) {
        fd_close(p[0]);
        fd_close(p[1]);
        return err_sys(e, r, "start a thread");
    }
    r = receive_archive(c, &flow, e);
    fd_close(TAKE_FD(flow.write_fd));
    (void)pthread_join(thread, NULL);
    if (flow.r < 0 && (r == 0 || r == -ERR_CANCELED)) {
        if (e)
            *e = flow.e;
        return flow.r;
    }
    return r;
}
