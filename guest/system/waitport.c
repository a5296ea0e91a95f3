#include "system/waitport.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "common/buf.h"
#include "common/cleanup.h"
#include "common/clock.h"
#include "event/loop.h"
#include "system/dial.h"
#include "system/http1.h"

#define IO_BYTES 4096

struct waitport {
    struct loop *loop;
    struct waitport_options o;
    char *host, *path; /* o's */
    waitport_fn fn;
    void *arg;
    int64_t pause_ms;
    struct loop_timer *deadline;
    struct loop_timer *timer; /* the next try, or the end of this one's patience */
    struct dial *dial;
    int fd; /* of a try with a path */
    struct loop_watch *watch;
    struct buf reply;
    struct err last; /* why it is not there yet */
};

static void try_now(struct loop *l, void *arg);

static void drop_try(struct waitport *w)
{
    w->timer = loop_timer_del(w->timer);
    w->dial = dial_free(w->dial);
    if (w->watch)
        w->watch = loop_watch_del(w->watch);
    fd_close(TAKE_FD(w->fd));
    buf_clear(&w->reply);
}

struct waitport *waitport_free(struct waitport *w)
{
    if (!w)
        return NULL;
    drop_try(w);
    loop_timer_del(w->deadline);
    buf_done(&w->reply);
    free(w->host);
    free(w->path);
    free(w);
    return NULL;
}

static void finish(struct waitport *w, int status, const struct err *error)
{
    struct err copy = error ? *error : (struct err){0};
    waitport_fn fn = w->fn;
    void *arg = w->arg;

    waitport_free(w);
    fn(arg, status, error ? &copy : NULL);
}

static void try_later(struct waitport *w)
{
    struct err error = {0};

    drop_try(w);
    if (loop_timer_add(w->loop, clock_mono_ms() + w->pause_ms, try_now, w, &w->timer, &error) < 0)
        finish(w, 0, &error);
    else if (w->pause_ms < WAITPORT_LATER_MS)
        w->pause_ms += w->pause_ms / 2;
    if (w->pause_ms > WAITPORT_LATER_MS)
        w->pause_ms = WAITPORT_LATER_MS;
}

/* The answer's head, or its end. */
static void judge(struct waitport *w, bool is_end)
{
    struct http1_head head;
    size_t head_len = 0;
    int status;

    w->last = (struct err){0};
    if (http1_parse_head(w->reply.data ? w->reply.data : "", w->reply.len, &head, &head_len,
                         &w->last) < 0) {
        try_later(w);
        return;
    }
    if (!head_len) {
        if (!is_end)
            return;
        (void)err_set(&w->last, ERR_UNAVAILABLE, "it closed without an answer");
        try_later(w);
        return;
    }
    status = head.status;
    http1_head_done(&head);
    if (status < 400) {
        finish(w, status, NULL);
        return;
    }
    (void)err_set(&w->last, ERR_UNAVAILABLE, "it answered with %d", status);
    try_later(w);
}

static void on_answer(struct loop *l, uint32_t events, void *arg)
{
    struct waitport *w = arg;
    char data[IO_BYTES];
    ssize_t n = recv(w->fd, data, sizeof(data), MSG_DONTWAIT);

    (void)l;
    (void)events;
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n > 0 && buf_add(&w->reply, data, (size_t)n, NULL) < 0)
        n = 0;
    judge(w, n <= 0);
}

static void on_impatience(struct loop *l, void *arg)
{
    struct waitport *w = arg;

    (void)l;
    w->timer = NULL;
    (void)err_set(&w->last, ERR_UNAVAILABLE, "it accepts, but did not answer within %d ms",
                  WAITPORT_ANSWER_MS);
    try_later(w);
}

/* The request is small enough for any socket's buffer. */
static void ask(struct waitport *w)
{
    char text[WAITPORT_PATH_MAX_BYTES + 128];
    int n = snprintf(text, sizeof(text),
                     "GET %s HTTP/1.1\r\nHost: localhost:%d\r\nAccept: */*\r\n"
                     "User-Agent: bellhopd\r\nConnection: close\r\n\r\n",
                     w->path, (int)w->o.port);

    if (send(w->fd, text, (size_t)n, MSG_NOSIGNAL | MSG_DONTWAIT) != n ||
        loop_watch_add(w->loop, w->fd, EPOLLIN, on_answer, w, &w->watch, NULL) < 0 ||
        loop_timer_add(w->loop, clock_mono_ms() + WAITPORT_ANSWER_MS, on_impatience, w, &w->timer,
                       NULL) < 0)
        try_later(w);
}

static void on_dialed(void *arg, int fd, const struct err *error)
{
    struct waitport *w = arg;

    w->dial = NULL;
    w->fd = fd;
    if (fd < 0) {
        w->last = *error;
        try_later(w);
    } else if (w->path) {
        ask(w);
    } else {
        finish(w, 0, NULL);
    }
}

static void try_now(struct loop *l, void *arg)
{
    struct waitport *w = arg;

    w->timer = NULL;
    if (dial_new(l, w->host, w->o.port, on_dialed, w, &w->dial, &w->last) < 0)
        try_later(w);
}

static void on_deadline(struct loop *l, void *arg)
{
    struct waitport *w = arg;
    struct err error = {0};

    (void)l;
    w->deadline = NULL;
    (void)err_field(&error, ERR_DEADLINE, "port", "port %d was not ready in time%s%s",
                    (int)w->o.port, w->last.message[0] ? ": " : "", w->last.message);
    finish(w, 0, &error);
}

int waitport_check_path(const char *path, struct err *e)
{
    if (path[0] != '/' || strlen(path) > WAITPORT_PATH_MAX_BYTES)
        return err_field(e, ERR_INVALID, "path",
                         "field 'path' must begin with '/' and have at "
                         "most %d bytes",
                         WAITPORT_PATH_MAX_BYTES);
    for (const char *c = path; *c; c++)
        if (*c <= ' ' || *c > '~')
            return err_field(e, ERR_INVALID, "path",
                             "field 'path' has characters that must be percent-encoded");
    return 0;
}

int waitport_new(struct loop *l, const struct waitport_options *o, waitport_fn fn, void *arg,
                 struct waitport **ret, struct err *e)
{
    struct waitport *w = calloc(1, sizeof(*w));
    int r;

    if (!w)
        return err_oom(e);
    *w = (struct waitport){
        .loop = l, .o = *o, .fn = fn, .arg = arg, .fd = -1, .pause_ms = WAITPORT_FIRST_MS};
    buf_init(&w->reply, HTTP1_HEAD_MAX + IO_BYTES);
    w->host = o->host ? strdup(o->host) : NULL;
    w->path = o->path ? strdup(o->path) : NULL;
    r = (o->host && !w->host) || (o->path && !w->path) ? err_oom(e) : 0;
    if (r == 0)
        r = loop_timer_add(l, o->deadline_ms, on_deadline, w, &w->deadline, e);
    if (r == 0)
        r = dial_new(l, w->host, o->port, on_dialed, w, &w->dial, e);
    if (r < 0) {
        waitport_free(w);
        return r;
    }
    *ret = w;
    return 0;
}
