/* input: a command's stdin, by offset, through a pipe or a terminal. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/str.h"
#include "proc/proc.h"

#define PTY_EOF 4 /* ^D */

void input_close(struct proc *p)
{
    p->stdin_watch = loop_watch_del(p->stdin_watch);
    WITH_LOCK (&p->lock) {
        chunk_queue_clear(&p->stdin_queue);
        fd_close(TAKE_FD(p->stdin_fd));
        p->info.is_stdin_open = false;
    }
    proc_wake(p);
}

/*
 * With the lock: writes as much as the descriptor takes. 0: the queue is empty; else -errno, which
 * is -EAGAIN when the command does not read more now. *ret_is_news: a write has been completed.
 */
static int write_queue(struct proc *p, int fd, bool *ret_is_news)
{
    struct chunk *c;

    while ((c = p->stdin_queue.first)) {
        ssize_t n = write(fd, c->data + c->sent, c->len - c->sent);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        p->info.stdin_written += c->is_uncounted ? 0 : (size_t)n;
        if (chunk_queue_sent(&p->stdin_queue, (size_t)n))
            *ret_is_news = true;
    }
    return 0;
}

static void pump_pty(struct proc *p)
{
    bool is_news = false;
    int r = 0;

    WITH_LOCK (&p->lock) {
        r = p->out_fd[PROC_STDOUT] < 0 ? -EIO : write_queue(p, p->out_fd[PROC_STDOUT], &is_news);
        if (r == 0 || r == -EAGAIN)
            break;
        p->stdin_broken = is_news = true;
        chunk_queue_clear(&p->stdin_queue);
    }
    if (is_news)
        proc_wake(p);
    if (p->out_watch[PROC_STDOUT])
        (void)loop_watch_set(p->out_watch[PROC_STDOUT], r == -EAGAIN ? EPOLLIN | EPOLLOUT : EPOLLIN,
                             NULL);
}

static void on_stdin(struct loop *l, uint32_t events, void *arg);

static void pump_pipe(struct proc *p)
{
    bool is_over = false, is_news = false;
    int r = 0;

    if (p->stdin_fd < 0)
        return;
    WITH_LOCK (&p->lock) {
        r = write_queue(p, p->stdin_fd, &is_news);
        p->stdin_broken = r < 0 && r != -EAGAIN;
        is_over = p->stdin_broken || (r == 0 && p->stdin_close_asked);
    }
    if (is_news)
        proc_wake(p);
    if (is_over) {
        input_close(p);
        return;
    }
    if (r == 0)
        p->stdin_watch = loop_watch_del(p->stdin_watch);
    else if (!p->stdin_watch && loop_watch_add(p->reg->loop, p->stdin_fd, EPOLLOUT, on_stdin, p,
                                               &p->stdin_watch, NULL) < 0)
        input_close(p);
}

static void on_stdin(struct loop *l, uint32_t events, void *arg)
{
    (void)l;
    (void)events;
    pump_pipe(arg);
}

void input_pump(struct proc *p)
{
    if (p->spec.has_pty)
        pump_pty(p);
    else
        pump_pipe(p);
}

static void on_pump(struct loop *l, void *arg)
{
    struct proc *p = arg;

    (void)l;
    if (p->is_adopted)
        input_pump(p);
    proc_unref(p);
}

/* With the lock: are there bytes to take, and may they be? */
static int check_open(const struct proc *p, bool is_new, struct err *e)
{
    if (is_new && p->stdin_broken)
        return err_field(e, ERR_PRECONDITION, "id", "'%s' has closed its stdin", p->id);
    if (is_new && (!p->info.is_stdin_open || p->stdin_close_asked))
        return err_field(e, ERR_PRECONDITION, "id", "the stdin of '%s' is closed", p->id);
    return 0;
}

/* With the lock. */
static int queue_stdin(struct proc *p, const char *data, size_t len, bool is_uncounted,
                       struct err *e)
{
    struct chunk *c;

    if (p->stdin_queue.bytes > 0 && p->stdin_queue.bytes + len > PROC_STDIN_QUEUE_BYTES)
        return err_set(e, ERR_UNAVAILABLE, "stdin's queue is full");
    c = chunk_queue_add(&p->stdin_queue, data, len);
    if (!c)
        return err_oom(e);
    c->is_uncounted = is_uncounted;
    if (is_uncounted)
        return 0;
    p->info.stdin_accepted += len;
    p->stdin_is_within_line = data[len - 1] != '\n';
    return 0;
}

int input_queue_first(struct proc *p, const char *data, size_t len, struct err *e)
{
    return queue_stdin(p, data, len, false, e);
}

/* ---- the writers, with the lock; the one that wrote last is the last ---- */

/* n_writers: it has not written. */
static size_t find_writer(const struct proc *p, const char *name)
{
    size_t i = 0;

    while (i < p->n_writers && !str_eq(p->writers[i].name, name))
        i++;
    return i;
}

/*
 * The place for a new writer: of the one that wrote first and whose bytes the command has. A client that still waits
 * for its answer may repeat the request.
 */
static int place_for_writer(struct proc *p, size_t *ret, struct err *e)
{
    struct proc_writer *grown;
    size_t i = 0;

    if (p->n_writers < PROC_WRITERS) {
        grown = realloc(p->writers, (p->n_writers + 1) * sizeof(*grown));
        if (!grown)
            return err_oom(e);
        p->writers = grown;
        *ret = p->n_writers;
        return 0;
    }
    while (i < p->n_writers && p->writers[i].end > p->info.stdin_written)
        i++;
    if (i == p->n_writers)
        return err_set(e, ERR_UNAVAILABLE, "%d writers wait for '%s' to read", PROC_WRITERS, p->id);
    *ret = i;
    return 0;
}

static void keep_writer(struct proc *p, size_t i, const struct proc_writer *w)
{
    if (i == p->n_writers)
        p->n_writers++;
    memmove(&p->writers[i], &p->writers[i + 1], (p->n_writers - 1 - i) * sizeof(*w));
    p->writers[p->n_writers - 1] = *w;
}

/* Changes the writer, or what all writers have written together, only if the data is queued. */
static int write_at(struct proc *p, struct proc_writer *w, int64_t offset, const char *data,
                    size_t len, struct proc_written *ret, struct err *e)
{
    uint64_t at = offset < 0 ? w->accepted : (uint64_t)offset;
    uint64_t n = at + len > w->accepted ? at + len - w->accepted : 0;
    int r;

    if (at > w->accepted)
        return err_field(e, ERR_RANGE, "offset", "offset %" PRIu64 " is past the end, %" PRIu64, at,
                         w->accepted);
    r = check_open(p, n > 0, e);
    if (r == 0 && n)
        r = queue_stdin(p, data + (len - n), (size_t)n, false, e);
    if (r < 0)
        return r;
    w->accepted += n;
    if (n)
        w->end = p->info.stdin_accepted;
    *ret = (struct proc_written){.offset = at + len, .end = w->end};
    return 0;
}

static int write_as(struct proc *p, const char *writer, int64_t offset, const char *data,
                    size_t len, struct proc_written *ret, struct err *e)
{
    size_t i = find_writer(p, writer);
    struct proc_writer w = {0};
    uint64_t before;
    int r = 0;

    if (i < p->n_writers)
        w = p->writers[i];
    else if (len)
        r = place_for_writer(p, &i, e);
    (void)snprintf(w.name, sizeof(w.name), "%s", writer);
    before = w.accepted;
    if (r == 0)
        r = write_at(p, &w, offset, data, len, ret, e);
    if (r == 0 && w.accepted > before)
        keep_writer(p, i, &w);
    return r;
}

int proc_write(struct proc *p, const char *writer, int64_t offset, const void *data, size_t len,
               struct proc_written *ret, struct err *e)
{
    struct proc_writer all = {0};
    int r = 0;

    WITH_LOCK (&p->lock) {
        all.accepted = p->info.stdin_accepted;
        r = writer ? write_as(p, writer, offset, data, len, ret, e)
                   : write_at(p, &all, offset, data, len, ret, e);
    }
    if (r < 0)
        return r;
    if (!writer)
        ret->end = ret->offset;
    proc_post(p, on_pump);
    return 0;
}

int proc_write_between_lines(struct proc *p, const void *data, size_t len, struct proc_written *ret,
                             struct err *e)
{
    int r = 0;

    WITH_LOCK (&p->lock) {
        r = check_open(p, true, e);
        if (r == 0 && p->stdin_is_within_line)
            r = err_field(e, ERR_ABORTED, "between_lines", "'%s' is in the middle of a line",
                          p->id);
        if (r == 0)
            r = queue_stdin(p, data, len, true, e);
        ret->offset = ret->end = p->info.stdin_accepted;
    }
    if (r < 0)
        return r;
    proc_post(p, on_pump);
    return 0;
}

int proc_close_stdin(struct proc *p, struct err *e)
{
    static const char end = PTY_EOF;
    struct proc_written written;

    if (p->spec.has_pty)
        return proc_write(p, NULL, -1, &end, 1, &written, e);
    WITH_LOCK (&p->lock)
        p->stdin_close_asked = true;
    proc_post(p, on_pump);
    return 0;
}
