/* proc: a command while it runs: its pipes or pty, its readers, its end. */
#include "proc/proc.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "proc/pty.h"
#include "proc/oom.h"

#include "common/banned.h"

#define READS_A_TURN 8   /* of PROC_READ_BYTES, then others have a turn */
#define PTY_DRAIN_MS 500 /* how long a terminal may take to say that it is at its end */
#define PTY_EOF 4        /* ^D */

static void check_end(struct proc *p);

/* ---- readers and waiters ---- */

void proc_wake(struct proc *p)
{
    bool is_over = p->info.state == PROC_ENDED || p->info.state == PROC_FAILED;

    for (struct proc_sub *s = p->subs; s; s = s->next)
        if (is_over || !s->is_end_only)
            s->fn(s->arg);
}

/* With the lock: the earliest deadline, 0 for none. */
static int64_t first_deadline(const struct proc *p)
{
    int64_t first = 0;

    for (const struct proc_sub *s = p->subs; s; s = s->next)
        if (s->deadline_ms && (!first || s->deadline_ms < first))
            first = s->deadline_ms;
    return first;
}

static void on_wake_timer(struct loop *l, void *arg);

static void set_wake_timer(struct loop *l, void *arg)
{
    struct proc *p = arg;
    int64_t now = clock_mono_ms(), at;

    if (p->wake_timer) {
        p->wake_timer = loop_timer_del(p->wake_timer);
        proc_unref(p);
    }
    (void)pthread_mutex_lock(&p->lock);
    at = first_deadline(p);
    (void)pthread_mutex_unlock(&p->lock);
    if (at && loop_timer_add(l, at > now ? at : now, on_wake_timer, p, &p->wake_timer, NULL) == 0)
        proc_ref(p);
    proc_unref(p);
}

static void on_wake_timer(struct loop *l, void *arg)
{
    struct proc *p = arg;
    int64_t now = clock_mono_ms();

    p->wake_timer = NULL;
    (void)pthread_mutex_lock(&p->lock);
    for (struct proc_sub *s = p->subs; s; s = s->next) {
        if (!s->deadline_ms || s->deadline_ms > now)
            continue;
        s->deadline_ms = 0;
        s->fn(s->arg);
    }
    (void)pthread_mutex_unlock(&p->lock);
    set_wake_timer(l, p); /* takes the timer's reference */
}

int proc_subscribe(struct proc *p, struct proc_sub *s, struct err *e)
{
    int r = 0;

    (void)pthread_mutex_lock(&p->lock);
    if (p->n_subs >= REGISTRY_MAX_SUBS) {
        r = err_set(e, ERR_EXHAUSTED, "'%s' has %d readers, the most allowed", p->id,
                    REGISTRY_MAX_SUBS);
    } else {
        s->next = p->subs;
        p->subs = s;
        p->n_subs++;
    }
    (void)pthread_mutex_unlock(&p->lock);
    if (r == 0 && s->deadline_ms && loop_post(p->reg->loop, set_wake_timer, proc_ref(p), NULL) < 0)
        proc_unref(p);
    return r;
}

static void on_resume(struct loop *l, void *arg);

static void post(struct proc *p, loop_fn fn)
{
    if (loop_post(p->reg->loop, fn, proc_ref(p), NULL) < 0)
        proc_unref(p);
}

void proc_unsubscribe(struct proc *p, struct proc_sub *s)
{
    struct proc_sub **at = &p->subs;
    bool is_paused;

    (void)pthread_mutex_lock(&p->lock);
    while (*at && *at != s)
        at = &(*at)->next;
    if (*at) {
        *at = s->next;
        p->n_subs--;
    }
    is_paused = p->is_paused[PROC_STDOUT] || p->is_paused[PROC_STDERR];
    (void)pthread_mutex_unlock(&p->lock);
    if (is_paused)
        post(p, on_resume);
}

void proc_get_info(struct proc *p, struct proc_info *ret)
{
    (void)pthread_mutex_lock(&p->lock);
    *ret = p->info;
    for (size_t i = 0; i < N_PROC_STREAMS; i++) {
        ret->bytes[i] = p->out[i].total;
        ret->dropped[i] = journal_dropped(&p->out[i]);
    }
    (void)pthread_mutex_unlock(&p->lock);
}

int proc_read(struct proc *p, struct proc_sub *s, enum proc_stream stream, uint64_t offset,
              void *out, size_t max, size_t *ret_len, uint64_t *ret_first_held, struct err *e)
{
    bool is_paused = false;
    int r;

    (void)pthread_mutex_lock(&p->lock);
    r = journal_read(&p->out[stream], offset, out, max, ret_len, ret_first_held, e);
    if (s && s->is_lossless) {
        s->read_to[stream] = r == 0 ? offset + *ret_len : *ret_first_held;
        is_paused = p->is_paused[stream];
    }
    (void)pthread_mutex_unlock(&p->lock);
    if (is_paused)
        post(p, on_resume);
    return r;
}

int proc_copy_output(struct proc *p, enum proc_stream stream, struct proc_output *ret,
                     struct err *e)
{
    const struct journal *j = &p->out[stream];
    struct proc_output o = {0};
    uint64_t held;
    size_t n;
    int r = 0;

    (void)pthread_mutex_lock(&p->lock);
    o.bytes = j->total;
    o.dropped = journal_dropped(j);
    o.head_len = j->head_len;
    o.tail_len = j->tail_len;
    /* What nothing is missing of is one piece. */
    if (!o.dropped) {
        o.head_len += o.tail_len;
        o.tail_len = 0;
    }
    o.head = malloc(o.head_len + 1);
    o.tail = malloc(o.tail_len + 1);
    if (!o.head || !o.tail)
        r = err_oom(e);
    if (r == 0)
        r = journal_read(j, 0, o.head, o.head_len, &n, &held, o.head_len ? e : NULL);
    if (r == -ERR_DATA_LOSS && !o.head_len)
        r = 0;
    if (r == 0 && o.tail_len)
        r = journal_read(j, journal_tail_offset(j), o.tail, o.tail_len, &n, &held, e);
    (void)pthread_mutex_unlock(&p->lock);
    if (r < 0)
        proc_output_done(&o);
    else
        *ret = o;
    return r;
}

void proc_output_done(struct proc_output *o)
{
    free(o->head);
    free(o->tail);
    *o = (struct proc_output){0};
}

/* ---- output ---- */

static void close_stream(struct proc *p, enum proc_stream i)
{
    p->out_watch[i] = loop_watch_del(p->out_watch[i]);
    (void)pthread_mutex_lock(&p->lock);
    fd_close(p->out_fd[i]);
    p->out_fd[i] = -1;
    p->info.is_eof[i] = true;
    p->is_paused[i] = false;
    if (p->spec.has_pty)
        p->info.is_stdin_open = false;
    proc_wake(p);
    (void)pthread_mutex_unlock(&p->lock);
}

/* With the lock: does a reader that must not miss anything lag too far behind? */
static bool is_held_up(const struct proc *p, enum proc_stream i)
{
    for (const struct proc_sub *s = p->subs; s; s = s->next)
        if (s->is_lossless && p->out[i].total > s->read_to[i] + PROC_LAG_BYTES)
            return true;
    return false;
}

static void keep(struct proc *p, enum proc_stream i, const char *data, size_t len)
{
    struct registry *reg = p->reg;

    if (atomic_load(&reg->budget.used) + 2 * PROC_READ_BYTES > reg->budget.max)
        registry_relieve(reg);
    (void)pthread_mutex_lock(&p->lock);
    journal_append(&p->out[i], data, len);
    proc_wake(p);
    (void)pthread_mutex_unlock(&p->lock);
    (void)pthread_mutex_lock(&reg->lock);
    if (i == PROC_STDOUT)
        reg->totals.stdout_bytes_total += len;
    else
        reg->totals.stderr_bytes_total += len;
    (void)pthread_mutex_unlock(&reg->lock);
}

/* One read of at most max bytes; false when there was nothing (more) to be had now. */
static bool read_some(struct proc *p, enum proc_stream i, size_t max)
{
    char *buf = p->reg->scratch;
    ssize_t n;

    if (max > PROC_READ_BYTES)
        max = PROC_READ_BYTES;
    do
        n = read(p->out_fd[i], buf, max);
    while (n < 0 && errno == EINTR);
    if (n > 0) {
        keep(p, i, buf, (size_t)n);
        return (size_t)n == max;
    }
    if (n == 0 || errno != EAGAIN)
        close_stream(p, i); /* a terminal's end is EIO */
    return false;
}

static bool pause_if_held_up(struct proc *p, enum proc_stream i)
{
    (void)pthread_mutex_lock(&p->lock);
    p->is_paused[i] = is_held_up(p, i);
    (void)pthread_mutex_unlock(&p->lock);
    if (p->is_paused[i])
        p->out_watch[i] = loop_watch_del(p->out_watch[i]);
    return p->is_paused[i];
}

static void on_output(struct proc *p, enum proc_stream i)
{
    proc_ref(p);
    for (int n = 0; n < READS_A_TURN && p->out_fd[i] >= 0; n++)
        if (pause_if_held_up(p, i) || !read_some(p, i, PROC_READ_BYTES))
            break;
    check_end(p);
    proc_unref(p);
}

static void pump_pty(struct proc *p);

static void on_stdout(struct loop *l, uint32_t events, void *arg)
{
    struct proc *p = arg;

    (void)l;
    proc_ref(p);
    if (events & EPOLLOUT && p->spec.has_pty)
        pump_pty(p);
    if (events & ~(uint32_t)EPOLLOUT)
        on_output(p, PROC_STDOUT);
    proc_unref(p);
}

static void on_stderr(struct loop *l, uint32_t events, void *arg)
{
    (void)l;
    (void)events;
    on_output(arg, PROC_STDERR);
}

/* A stream that can't be watched (no memory) ends here rather than block the command. */
static void watch_stream(struct proc *p, enum proc_stream i)
{
    loop_fd_fn fn = i == PROC_STDOUT ? on_stdout : on_stderr;

    if (p->out_fd[i] < 0 || p->out_watch[i])
        return;
    if (loop_watch_add(p->reg->loop, p->out_fd[i], EPOLLIN, fn, p, &p->out_watch[i], NULL) < 0)
        close_stream(p, i);
}

static void on_resume(struct loop *l, void *arg)
{
    struct proc *p = arg;

    (void)l;
    for (size_t i = 0; i < N_PROC_STREAMS; i++) {
        bool resume;

        (void)pthread_mutex_lock(&p->lock);
        resume = p->is_paused[i] && !is_held_up(p, (enum proc_stream)i);
        if (resume)
            p->is_paused[i] = false;
        (void)pthread_mutex_unlock(&p->lock);
        if (resume)
            watch_stream(p, (enum proc_stream)i);
    }
    proc_unref(p);
}

/* ---- stdin ---- */

/* With the lock. */
static void drop_stdin_queue(struct proc *p)
{
    struct chunk *c;

    while ((c = p->stdin_first)) {
        p->stdin_first = c->next;
        free(c);
    }
    p->stdin_last = NULL;
    p->stdin_queued = 0;
}

static void close_stdin(struct proc *p)
{
    p->stdin_watch = loop_watch_del(p->stdin_watch);
    (void)pthread_mutex_lock(&p->lock);
    drop_stdin_queue(p);
    fd_close(p->stdin_fd);
    p->stdin_fd = -1;
    p->info.is_stdin_open = false;
    proc_wake(p);
    (void)pthread_mutex_unlock(&p->lock);
}

/*
 * With the lock: writes what the descriptor takes. 0: the queue is empty; else -errno, which is
 * -EAGAIN when there is more than the command takes now.
 */
static int write_queue(struct proc *p, int fd)
{
    struct chunk *c;

    while ((c = p->stdin_first)) {
        ssize_t n = write(fd, c->data + c->sent, c->len - c->sent);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        c->sent += (size_t)n;
        p->stdin_queued -= (size_t)n;
        p->info.stdin_written += (size_t)n;
        if (c->sent < c->len)
            continue;
        p->stdin_first = c->next;
        if (!p->stdin_first)
            p->stdin_last = NULL;
        free(c);
        proc_wake(p);
    }
    return 0;
}

static void pump_pty(struct proc *p)
{
    int r;

    (void)pthread_mutex_lock(&p->lock);
    r = p->out_fd[PROC_STDOUT] < 0 ? -EIO : write_queue(p, p->out_fd[PROC_STDOUT]);
    if (r < 0 && r != -EAGAIN) {
        p->stdin_broken = true;
        drop_stdin_queue(p);
        proc_wake(p);
    }
    (void)pthread_mutex_unlock(&p->lock);
    if (p->out_watch[PROC_STDOUT])
        (void)loop_watch_set(p->out_watch[PROC_STDOUT], r == -EAGAIN ? EPOLLIN | EPOLLOUT : EPOLLIN,
                             NULL);
}

static void on_stdin(struct loop *l, uint32_t events, void *arg);

static void pump_pipe(struct proc *p)
{
    bool is_over;
    int r;

    if (p->stdin_fd < 0)
        return;
    (void)pthread_mutex_lock(&p->lock);
    r = write_queue(p, p->stdin_fd);
    p->stdin_broken = r < 0 && r != -EAGAIN;
    is_over = p->stdin_broken || (r == 0 && p->stdin_close_asked);
    (void)pthread_mutex_unlock(&p->lock);
    if (is_over) {
        close_stdin(p);
        return;
    }
    if (r == 0)
        p->stdin_watch = loop_watch_del(p->stdin_watch);
    else if (!p->stdin_watch && loop_watch_add(p->reg->loop, p->stdin_fd, EPOLLOUT, on_stdin, p,
                                               &p->stdin_watch, NULL) < 0)
        close_stdin(p);
}

static void on_stdin(struct loop *l, uint32_t events, void *arg)
{
    (void)l;
    (void)events;
    pump_pipe(arg);
}

static void pump(struct loop *l, void *arg)
{
    struct proc *p = arg;

    (void)l;
    if (p->is_adopted && p->spec.has_pty)
        pump_pty(p);
    else if (p->is_adopted)
        pump_pipe(p);
    proc_unref(p);
}

/* With the lock: where a write at `offset` (-1: the end) begins to be new. */
static int check_write(const struct proc *p, int64_t offset, size_t len, uint64_t *ret_at,
                       struct err *e)
{
    uint64_t end = p->info.stdin_accepted;
    uint64_t at = offset < 0 ? end : (uint64_t)offset;

    if (at > end)
        return err_field(e, ERR_RANGE, "offset", "offset %" PRIu64 " is past the end, %" PRIu64, at,
                         end);
    if (at + len > end && p->stdin_broken)
        return err_field(e, ERR_PRECONDITION, "id", "'%s' has closed its stdin", p->id);
    if (at + len > end && (!p->info.is_stdin_open || p->stdin_close_asked))
        return err_field(e, ERR_PRECONDITION, "id", "the stdin of '%s' is closed", p->id);
    *ret_at = at;
    return 0;
}

static int enqueue(struct proc *p, const char *data, size_t len, struct err *e)
{
    struct chunk *c;

    if (p->stdin_queued > 0 && p->stdin_queued + len > PROC_STDIN_QUEUE_BYTES)
        return err_set(e, ERR_UNAVAILABLE, "stdin's queue is full");
    c = malloc(sizeof(*c) + len);
    if (!c)
        return err_oom(e);
    *c = (struct chunk){.len = len};
    memcpy(c->data, data, len);
    if (p->stdin_last)
        p->stdin_last->next = c;
    else
        p->stdin_first = c;
    p->stdin_last = c;
    p->stdin_queued += len;
    p->info.stdin_accepted += len;
    return 0;
}

int proc_write(struct proc *p, int64_t offset, const void *data, size_t len, uint64_t *ret_end,
               struct err *e)
{
    uint64_t at = 0, old;
    int r;

    (void)pthread_mutex_lock(&p->lock);
    r = check_write(p, offset, len, &at, e);
    old = p->info.stdin_accepted;
    if (r == 0 && at + len > old)
        r = enqueue(p, (const char *)data + (old - at), len - (size_t)(old - at), e);
    (void)pthread_mutex_unlock(&p->lock);
    if (r < 0)
        return r;
    *ret_end = at + len;
    post(p, pump);
    return 0;
}

int proc_close_stdin(struct proc *p, struct err *e)
{
    static const char end = PTY_EOF;
    uint64_t ret_end;

    if (p->spec.has_pty)
        return proc_write(p, -1, &end, 1, &ret_end, e);
    (void)pthread_mutex_lock(&p->lock);
    p->stdin_close_asked = true;
    (void)pthread_mutex_unlock(&p->lock);
    post(p, pump);
    return 0;
}

/* ---- the life ---- */

static void on_timeout(struct loop *l, void *arg)
{
    struct proc *p = arg;

    (void)l;
    p->timeout_timer = NULL;
    killer_begin(p, REASON_TIMEOUT);
}

/* The list's reference holds p until registry_ended() and after: timers need none of their own. */
void proc_adopt(struct proc *p)
{
    int64_t at = p->started_mono_ms + (int64_t)p->spec.timeout_ms;
    bool is_canceled;

    if (p->is_adopted)
        return;
    p->is_adopted = true;
    p->oom_kills_before = p->cgroup ? 0 : oom_kills(NULL, p->reg->oom_fd);
    for (size_t i = 0; i < N_PROC_STREAMS; i++)
        watch_stream(p, (enum proc_stream)i);
    if (p->spec.has_pty)
        pump_pty(p);
    else
        pump_pipe(p);
    if (p->spec.timeout_ms)
        (void)loop_timer_add(p->reg->loop, at, on_timeout, p, &p->timeout_timer, NULL);
    (void)pthread_mutex_lock(&p->lock);
    is_canceled = p->cancel_asked;
    (void)pthread_mutex_unlock(&p->lock);
    if (is_canceled)
        killer_begin(p, REASON_CANCELED);
}

/* What the first process had written by its end, and no more: others may be writing still. */
static void drain_pipe(struct proc *p, enum proc_stream i)
{
    int left = 0;

    if (p->out_fd[i] < 0 || ioctl(p->out_fd[i], FIONREAD, &left) < 0)
        return;
    while (left > 0 && p->out_fd[i] >= 0) {
        size_t n = left < PROC_READ_BYTES ? (size_t)left : PROC_READ_BYTES;

        left -= (int)n;
        if (!read_some(p, i, n))
            break;
    }
    /* Nobody else holds it: take note of its end now, so that nothing lingers. */
    if (left <= 0 && p->out_fd[i] >= 0)
        (void)read_some(p, i, 1);
}

static void on_drain_timer(struct loop *l, void *arg)
{
    struct proc *p = arg;

    (void)l;
    p->drain_timer = NULL;
    proc_ref(p);
    close_stream(p, PROC_STDOUT);
    check_end(p);
    proc_unref(p);
}

/*
 * A terminal hangs up when its session's leader ends, but what was written may still be on its way
 * through the kernel: it is read to its end, within a time.
 */
static void drain_pty(struct proc *p)
{
    p->is_paused[PROC_STDOUT] = false;
    watch_stream(p, PROC_STDOUT);
    while (p->out_fd[PROC_STDOUT] >= 0 && read_some(p, PROC_STDOUT, PROC_READ_BYTES))
        ;
    if (p->out_fd[PROC_STDOUT] >= 0)
        (void)loop_timer_add(p->reg->loop, clock_mono_ms() + PTY_DRAIN_MS, on_drain_timer, p,
                             &p->drain_timer, NULL);
}

static void set_status(struct proc *p, int status, bool is_lost)
{
    p->info.reason = REASON_EXITED;
    if (is_lost) {
        p->info.reason = REASON_LOST;
    } else if (WIFSIGNALED(status)) {
        p->info.reason = REASON_SIGNALED;
        p->info.signal = WTERMSIG(status);
    } else {
        p->info.code = WEXITSTATUS(status);
    }
}

static void set_usage(struct proc_usage *u, const struct rusage *ru)
{
    u->user_ms = ru->ru_utime.tv_sec * 1000 + ru->ru_utime.tv_usec / 1000;
    u->system_ms = ru->ru_stime.tv_sec * 1000 + ru->ru_stime.tv_usec / 1000;
    u->max_rss_bytes = (int64_t)ru->ru_maxrss * 1024;
}

void proc_reaped(struct proc *p, int status, const struct rusage *ru, bool is_lost)
{
    enum proc_oom oom;

    proc_adopt(p);
    oom = oom_verdict(p->cgroup, p->reg->oom_fd,
                      is_lost || !WIFSIGNALED(status) ? 0 : WTERMSIG(status),
                      p->kill_phase == KILL_FORCE, p->oom_kills_before);
    (void)pthread_mutex_lock(&p->lock);
    set_status(p, status, is_lost);
    set_usage(&p->info.usage, ru);
    p->info.oom = oom;
    if (oom == OOM_YES && p->info.signal == SIGKILL)
        p->info.reason = REASON_OOM;
    p->info.usage.wall_ms = clock_mono_ms() - p->started_mono_ms;
    (void)pthread_mutex_unlock(&p->lock);
    if (p->spec.has_pty) {
        drain_pty(p);
    } else {
        drain_pipe(p, PROC_STDOUT);
        drain_pipe(p, PROC_STDERR);
    }
    if (p->spec.kill_on_exit && p->kill_phase == KILL_NONE)
        killer_begin(p, REASON_NONE);
    else if (p->kill_phase != KILL_NONE)
        killer_reaped(p);
    check_end(p);
}

/* Is the result complete? */
static void check_end(struct proc *p)
{
    bool is_open = p->out_fd[PROC_STDOUT] >= 0 || p->out_fd[PROC_STDERR] >= 0;
    bool must_wait = p->spec.wait_eof && p->kill_phase != KILL_DONE;

    if (!is_open)
        registry_lingering(p, false);
    if (!p->is_reaped || p->info.state != PROC_RUNNING)
        return;
    if (p->kill_phase == KILL_TERM || p->kill_phase == KILL_FORCE)
        return;
    if (is_open && (must_wait || p->drain_timer))
        return;
    proc_finish(p);
}

static enum proc_tree tree_verdict(const struct proc *p)
{
    size_t n;
    bool is_left;

    if (p->cgroup && cgroup_count(p->cgroup, &n, NULL) == 0)
        return n > 0 ? TREE_LEFT : TREE_GONE;
    is_left = p->kill_phase == KILL_DONE ? p->n_left > 0 : kill(-p->info.pid, 0) == 0;

    if (is_left)
        return TREE_LEFT;
    return reap_has_children() ? TREE_BEST_EFFORT : TREE_GONE;
}

void proc_finish(struct proc *p)
{
    enum proc_tree tree = tree_verdict(p);

    assert(p->info.state == PROC_RUNNING);
    proc_ref(p); /* once announced, another thread may forget it */
    p->timeout_timer = loop_timer_del(p->timeout_timer);
    p->poll_timer = loop_timer_del(p->poll_timer);
    p->drain_timer = loop_timer_del(p->drain_timer);
    close_stdin(p);
    (void)pthread_mutex_lock(&p->lock);
    if (p->kill_reason != REASON_NONE && p->info.reason != REASON_OOM)
        p->info.reason = p->kill_reason;
    p->info.tree = tree;
    p->info.ended_ms = clock_real_ms();
    p->info.state = PROC_ENDED;
    (void)pthread_mutex_unlock(&p->lock);
    if (p->out_fd[PROC_STDOUT] >= 0 || p->out_fd[PROC_STDERR] >= 0)
        registry_lingering(p, true);
    if (p->cgroup)
        cgroup_remove(p->cgroup);
    /* First kept, then announced: who hears of the end may ask to forget it. */
    registry_ended(p);
    (void)pthread_mutex_lock(&p->lock);
    proc_wake(p);
    (void)pthread_mutex_unlock(&p->lock);
    proc_unref(p);
}

void proc_abandon(struct proc *p)
{
    for (size_t i = 0; i < N_PROC_STREAMS; i++)
        p->out_watch[i] = loop_watch_del(p->out_watch[i]);
    p->stdin_watch = loop_watch_del(p->stdin_watch);
    p->timeout_timer = loop_timer_del(p->timeout_timer);
    p->poll_timer = loop_timer_del(p->poll_timer);
    p->drain_timer = loop_timer_del(p->drain_timer);
    if (p->wake_timer) {
        p->wake_timer = loop_timer_del(p->wake_timer);
        proc_unref(p);
    }
    registry_lingering(p, false);
}

/* ---- what callers ask ---- */

int proc_signal(struct proc *p, int sig, bool is_tree, struct err *e)
{
    int r = 0;

    if (is_tree)
        return killer_signal_tree(p, sig, e);
    (void)pthread_mutex_lock(&p->lock);
    if (p->info.state == PROC_STARTING)
        r = err_field(e, ERR_PRECONDITION, "id", "'%s' is still being started", p->id);
    else if (p->is_reaped || p->info.state != PROC_RUNNING)
        r = err_field(e, ERR_PRECONDITION, "id", "'%s' has ended", p->id);
    else if (kill(p->info.pid, sig) < 0)
        r = err_sys(e, errno, "sending signal %d to '%s'", sig, p->id);
    (void)pthread_mutex_unlock(&p->lock);
    return r;
}

int proc_resize(struct proc *p, unsigned cols, unsigned rows, struct err *e)
{
    int r;

    (void)pthread_mutex_lock(&p->lock);
    if (!p->spec.has_pty)
        r = err_field(e, ERR_PRECONDITION, "id", "'%s' has no terminal", p->id);
    else if (p->out_fd[PROC_STDOUT] < 0)
        r = err_field(e, ERR_PRECONDITION, "id", "the terminal of '%s' is closed", p->id);
    else
        r = pty_resize(p->out_fd[PROC_STDOUT], cols, rows, e);
    (void)pthread_mutex_unlock(&p->lock);
    return r;
}

void proc_own(struct proc *p)
{
    (void)pthread_mutex_lock(&p->lock);
    p->n_owners++;
    (void)pthread_mutex_unlock(&p->lock);
}

void proc_detach(struct proc *p)
{
    (void)pthread_mutex_lock(&p->lock);
    p->is_detached = true;
    (void)pthread_mutex_unlock(&p->lock);
}

static void on_cancel(struct loop *l, void *arg)
{
    struct proc *p = arg;

    (void)l;
    if (p->is_adopted)
        killer_begin(p, REASON_CANCELED);
    proc_unref(p);
}

void proc_disown(struct proc *p)
{
    bool is_cancel;

    (void)pthread_mutex_lock(&p->lock);
    p->n_owners--;
    is_cancel = p->n_owners == 0 && p->spec.cancel_on_leave && !p->is_detached &&
                (p->info.state == PROC_STARTING || p->info.state == PROC_RUNNING);
    if (is_cancel)
        p->cancel_asked = true;
    (void)pthread_mutex_unlock(&p->lock);
    if (is_cancel)
        post(p, on_cancel);
}
