#include "system/waitport.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "common/buf.h"
#include "common/cleanup.h"
#include "common/clock.h"
#include "event/loop.h"
#include "proc/registry.h"
#include "event/dial.h"
#include "system/ports.h"
#include "common/http1.h"

#define IO_BYTES 4096

struct waitport {
    struct loop *loop;
    uint16_t port;
    char *host, *path;
    struct proc *proc; /* NULL: no command's end matters */
    int64_t started_ms, deadline_ms;
    void (*on_done)(void *arg);
    void *arg;

    /* the loop's: */
    bool is_waiting; /* started, and not over */
    int64_t pause_ms;
    struct loop_timer *deadline;
    struct loop_timer *timer; /* the next try, or the deadline of this one's answer */
    struct dial *dial;
    int fd; /* of a try with a path */
    struct loop_watch *watch;
    struct buf reply;
    struct err last; /* why the port is not ready yet */
    struct proc_sub sub;
    bool is_subscribed;

    _Atomic int refs; /* the caller's, and one for each task posted to the loop */
    pthread_mutex_t lock;
    /* guarded by lock: */
    bool is_left;
    bool is_done;
    int status;
    struct err error;
};

static void try_to_connect(struct loop *l, void *arg);

static void waitport_unref(struct waitport *w)
{
    if (atomic_fetch_sub(&w->refs, 1) != 1)
        return;
    proc_unref(w->proc);
    buf_done(&w->reply);
    (void)pthread_mutex_destroy(&w->lock);
    free(w->host);
    free(w->path);
    free(w);
}

/* Runs fn on the loop's thread with a reference that fn drops. */
static int post_to_loop(struct waitport *w, loop_fn fn, struct err *e)
{
    int r;

    (void)atomic_fetch_add(&w->refs, 1);
    r = loop_post(w->loop, fn, w, e);
    if (r < 0)
        waitport_unref(w);
    return r;
}

/* ---- on the loop's thread ---- */

static void drop_try(struct waitport *w)
{
    w->timer = loop_timer_del(w->timer);
    w->dial = dial_free(w->dial);
    w->watch = loop_watch_del(w->watch);
    fd_close(TAKE_FD(w->fd));
    buf_clear(&w->reply);
}

static void stop_waiting(struct waitport *w)
{
    drop_try(w);
    w->deadline = loop_timer_del(w->deadline);
    if (w->is_subscribed)
        proc_unsubscribe(w->proc, &w->sub);
    w->is_subscribed = false;
    w->is_waiting = false;
}

/* error NULL: the port is ready. */
static void finish_waiting(struct waitport *w, int status, const struct err *error)
{
    _cleanup_unlock_ pthread_mutex_t *locked = NULL;
    struct err copy = error ? *error : (struct err){0}; /* it may be w->last */

    stop_waiting(w);
    locked = mutex_lock(&w->lock);
    w->error = copy;
    w->status = status;
    if (!w->is_left && !w->is_done)
        w->on_done(w->arg); /* with the lock: `arg` lives until waitport_free() */
    w->is_done = true;
}

static void try_later(struct waitport *w)
{
    struct err error = {0};

    drop_try(w);
    if (loop_timer_add(w->loop, clock_mono_ms() + w->pause_ms, try_to_connect, w, &w->timer,
                       &error) < 0) {
        finish_waiting(w, 0, &error);
        return;
    }
    w->pause_ms += w->pause_ms / 2;
    if (w->pause_ms > WAITPORT_LATER_MS)
        w->pause_ms = WAITPORT_LATER_MS;
}

/* Needs the answer's head, or the connection's end. */
static void check_answer(struct waitport *w, bool is_end)
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
        finish_waiting(w, status, NULL);
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
    check_answer(w, n <= 0);
}

static void on_answer_deadline(struct loop *l, void *arg)
{
    struct waitport *w = arg;

    (void)l;
    w->timer = NULL;
    (void)err_set(&w->last, ERR_UNAVAILABLE, "it accepts, but did not answer within %d ms",
                  WAITPORT_ANSWER_MS);
    try_later(w);
}

/* The request is small enough for any socket's buffer. */
static void send_request(struct waitport *w)
{
    char text[WAITPORT_PATH_MAX_BYTES + 128];
    int n = snprintf(text, sizeof(text),
                     "GET %s HTTP/1.1\r\nHost: localhost:%d\r\nAccept: */*\r\n"
                     "User-Agent: bellhopd\r\nConnection: close\r\n\r\n",
                     w->path, (int)w->port);

    if (send(w->fd, text, (size_t)n, MSG_NOSIGNAL | MSG_DONTWAIT) != n ||
        loop_watch_add(w->loop, w->fd, EPOLLIN, on_answer, w, &w->watch, NULL) < 0 ||
        loop_timer_add(w->loop, clock_mono_ms() + WAITPORT_ANSWER_MS, on_answer_deadline, w,
                       &w->timer, NULL) < 0)
        try_later(w);
}

static void on_connected(void *arg, int fd, const struct err *error)
{
    struct waitport *w = arg;

    w->dial = NULL;
    w->fd = fd;
    if (fd < 0) {
        w->last = *error;
        try_later(w);
    } else if (w->path) {
        send_request(w);
    } else {
        finish_waiting(w, 0, NULL);
    }
}

static void try_to_connect(struct loop *l, void *arg)
{
    struct waitport *w = arg;

    w->timer = NULL;
    if (dial_new(l, w->host, w->port, on_connected, w, &w->dial, &w->last) < 0)
        try_later(w);
}

static void on_deadline(struct loop *l, void *arg)
{
    struct waitport *w = arg;
    struct err error = {0};

    (void)l;
    w->deadline = NULL;
    (void)err_field(&error, ERR_DEADLINE, "port", "port %d was not ready in time%s%s", (int)w->port,
                    w->last.message[0] ? ": " : "", w->last.message);
    finish_waiting(w, 0, &error);
}

/* A server that put itself into the background exits with 0 and leaves processes behind. */
static bool command_is_hopeless(const struct proc_info *i)
{
    bool is_daemon = i->reason == REASON_EXITED && i->code == 0 && i->tree != TREE_GONE;

    return i->state == PROC_FAILED || (i->state == PROC_ENDED && !is_daemon);
}

static void check_command(struct loop *l, void *arg)
{
    struct waitport *w = arg;
    struct proc_info i;
    struct err error = {0};

    (void)l;
    proc_get_info(w->proc, &i);
    if (w->is_waiting && command_is_hopeless(&i)) {
        if (i.state == PROC_FAILED)
            error = i.error;
        else if (i.reason == REASON_EXITED)
            (void)err_field(&error, ERR_PRECONDITION, "id",
                            "the command that should open port %d exited with %d", (int)w->port,
                            i.code);
        else
            (void)err_field(&error, ERR_PRECONDITION, "id",
                            "the command that should open port %d has ended: %s", (int)w->port,
                            proc_reason_name(i.reason));
        finish_waiting(w, 0, &error);
    }
    waitport_unref(w);
}

/* With the command's lock held: proc_get_info() would deadlock here. */
static void on_command_change(void *arg)
{
    (void)post_to_loop(arg, check_command, NULL);
}

static void start_waiting(struct loop *l, void *arg)
{
    struct waitport *w = arg;
    struct err error = {0};
    bool is_left = false;
    int r = 0;

    WITH_LOCK (&w->lock)
        is_left = w->is_left;
    if (!is_left) {
        w->is_waiting = true;
        r = loop_timer_add(l, w->deadline_ms, on_deadline, w, &w->deadline, &error);
        if (r == 0)
            r = dial_new(l, w->host, w->port, on_connected, w, &w->dial, &error);
    }
    if (!is_left && r == 0 && w->proc) {
        w->sub = (struct proc_sub){.fn = on_command_change, .arg = w, .is_end_only = true};
        r = proc_subscribe(w->proc, &w->sub, &error);
        w->is_subscribed = r == 0;
        if (r == 0)
            r = post_to_loop(w, check_command, &error); /* it may have ended before */
    }
    if (r < 0)
        finish_waiting(w, 0, &error);
    waitport_unref(w);
}

static void leave_waiting(struct loop *l, void *arg)
{
    (void)l;
    stop_waiting(arg);
    waitport_unref(arg);
}

/* ---- the caller's side ---- */

int waitport_check_port(uint32_t port, struct err *e)
{
    if (port < 1 || port > UINT16_MAX)
        return err_field(e, ERR_INVALID, "port", "field 'port' must be from 1 to 65535");
    return 0;
}

/* "/x?y" as it may stand in a request line. */
static int check_request_path(const char *path, struct err *e)
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

static int check_waitport_options(const struct waitport_options *o, struct err *e)
{
    int r;

    r = waitport_check_port(o->port, e);
    if (r < 0)
        return r;
    if (o->timeout_ms > WAITPORT_TIMEOUT_MAX_MS)
        return err_field(e, ERR_INVALID, "timeout_ms", "field 'timeout_ms' must be at most %d",
                         WAITPORT_TIMEOUT_MAX_MS);
    r = o->path ? check_request_path(o->path, e) : 0;
    return r == 0 && o->host ? dial_check_host(o->host, e) : r;
}

int waitport_new(struct loop *l, struct registry *reg, const struct waitport_options *o,
                 void (*on_done)(void *arg), void *arg, struct waitport **ret, struct err *e)
{
    struct proc *proc = NULL;
    struct waitport *w;
    int r;

    r = check_waitport_options(o, e);
    if (r == 0 && o->id)
        r = registry_get(reg, o->id, &proc, e);
    if (r < 0)
        return r;
    w = calloc(1, sizeof(*w));
    if (!w) {
        proc_unref(proc);
        return err_oom(e);
    }
    *w = (struct waitport){.loop = l,
                           .port = (uint16_t)o->port,
                           .host = o->host ? strdup(o->host) : NULL,
                           .path = o->path ? strdup(o->path) : NULL,
                           .proc = proc,
                           .started_ms = clock_mono_ms(),
                           .on_done = on_done,
                           .arg = arg,
                           .pause_ms = WAITPORT_FIRST_MS,
                           .fd = -1,
                           .refs = 1};
    w->deadline_ms = w->started_ms + (int64_t)o->timeout_ms;
    buf_init(&w->reply, HTTP1_HEAD_MAX + IO_BYTES);
    (void)pthread_mutex_init(&w->lock, NULL);
    if ((o->host && !w->host) || (o->path && !w->path))
        r = err_oom(e);
    if (r == 0)
        r = post_to_loop(w, start_waiting, e);
    if (r < 0) {
        waitport_unref(w);
        return r;
    }
    *ret = w;
    return 0;
}

int waitport_poll(struct waitport *w, struct waitport_result *ret, struct err *e)
{
    _cleanup_unlock_ pthread_mutex_t *locked = mutex_lock(&w->lock);

    if (!w->is_done)
        return 0;
    if (w->error.code) {
        *e = w->error;
        return -w->error.code;
    }
    *ret =
        (struct waitport_result){.status = w->status, .waited_ms = clock_mono_ms() - w->started_ms};
    return 1;
}

struct waitport *waitport_free(struct waitport *w)
{
    if (!w)
        return NULL;
    WITH_LOCK (&w->lock)
        w->is_left = true;
    (void)post_to_loop(w, leave_waiting, NULL);
    waitport_unref(w);
    return NULL;
}
