/*
 * output: carries a command's output from its pipes or terminal into the journals and to its
 * readers.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "proc/proc.h"

#define READS_A_TURN 8 /* of PROC_READ_BYTES, before other descriptors get a turn */
#define WATCH_DELAY_MS 3
#define NEXT_BYTES (2 * PROC_READ_BYTES) /* one read, and what a pipe holds at the command's end */
#define STALL_CHECK_MS 1000
#define PTY_DRAIN_MS 500 /* how long a terminal may take to report its end */
#define PTY_AGAIN_MS 50  /* until a terminal that nobody has open is read again */

/* ---- readers and waiters ---- */

void proc_wake(struct proc *p)
{
    WITH_LOCK (&p->subs_lock)
        for (struct proc_sub *s = p->subs; s; s = s->next)
            if (p->is_over || !s->is_end_only)
                s->fn(s->arg);
}

void proc_wake_all(struct proc *p)
{
    WITH_LOCK (&p->subs_lock)
        p->is_over = true;
    proc_wake(p);
}

/* The earliest deadline; 0: none. */
static int64_t first_deadline(struct proc *p)
{
    _cleanup_unlock_ pthread_mutex_t *locked = mutex_lock(&p->subs_lock);
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
    at = first_deadline(p);
    if (at && loop_timer_add(l, at > now ? at : now, on_wake_timer, p, &p->wake_timer, NULL) == 0)
        proc_ref(p);
    proc_unref(p);
}

static void on_wake_timer(struct loop *l, void *arg)
{
    struct proc *p = arg;
    int64_t now = clock_mono_ms();

    p->wake_timer = NULL;
    WITH_LOCK (&p->subs_lock)
        for (struct proc_sub *s = p->subs; s; s = s->next) {
            if (!s->deadline_ms || s->deadline_ms > now)
                continue;
            s->deadline_ms = 0;
            s->fn(s->arg);
        }
    set_wake_timer(l, p); /* takes the timer's reference */
}

static void on_resume(struct loop *l, void *arg);
static void on_wanted(struct loop *l, void *arg);

static int add_reader(struct proc *p, struct proc_sub *s, struct err *e)
{
    _cleanup_unlock_ pthread_mutex_t *locked = mutex_lock(&p->lock);
    _cleanup_unlock_ pthread_mutex_t *subs_locked = mutex_lock(&p->subs_lock);

    if (p->n_subs >= REGISTRY_MAX_SUBS)
        return err_set(e, ERR_EXHAUSTED, "'%s' has %d readers, the most allowed", p->id,
                       REGISTRY_MAX_SUBS);
    s->next = p->subs;
    p->subs = s;
    p->n_subs++;
    if (s->is_lossless)
        p->is_awaited = false;
    /* A smaller tail would drop output before back-pressure starts. */
    for (size_t i = 0; i < N_PROC_STREAMS && s->is_lossless; i++) {
        p->out[i].tail_min = NEXT_BYTES + PROC_READ_BYTES;
        if (p->out[i].tail_max < PROC_LAG_BYTES + PROC_READ_BYTES)
            p->out[i].tail_max = PROC_LAG_BYTES + PROC_READ_BYTES;
    }
    return 0;
}

int proc_subscribe(struct proc *p, struct proc_sub *s, struct err *e)
{
    bool has_deadline = s->deadline_ms != 0; /* subs_lock guards it from here on */
    int r = add_reader(p, s, e);

    if (r == 0 && has_deadline)
        proc_post(p, set_wake_timer);
    if (r == 0 && !s->is_end_only)
        proc_post(p, on_wanted);
    return r;
}

void proc_post(struct proc *p, loop_fn fn)
{
    if (loop_post(p->reg->loop, fn, proc_ref(p), NULL) < 0)
        proc_unref(p);
}

void proc_post_lazily(struct proc *p, loop_fn fn)
{
    if (loop_post_lazily(p->reg->loop, fn, proc_ref(p), NULL) < 0)
        proc_unref(p);
}

void proc_wake_at(struct proc *p, struct proc_sub *s, int64_t at_mono_ms)
{
    WITH_LOCK (&p->subs_lock)
        s->deadline_ms = at_mono_ms;
    proc_post(p, set_wake_timer);
}

void proc_unsubscribe(struct proc *p, struct proc_sub *s)
{
    struct proc_sub **at = &p->subs;
    bool is_paused = false, had_deadline = false;

    WITH_LOCK (&p->lock)
        WITH_LOCK (&p->subs_lock) {
            while (*at && *at != s)
                at = &(*at)->next;
            if (*at) {
                *at = s->next;
                p->n_subs--;
            }
            had_deadline = s->deadline_ms != 0;
            is_paused = p->is_paused[PROC_STDOUT] || p->is_paused[PROC_STDERR];
        }
    if (is_paused)
        proc_post(p, on_resume);
    /*
     * Without a reader the timer would only keep the command in memory. Removing it is not urgent.
     */
    if (had_deadline)
        proc_post_lazily(p, set_wake_timer);
}

static void on_linger_timer(struct loop *l, void *arg)
{
    struct proc *p = arg;

    p->linger_timer = NULL;
    WITH_LOCK (&p->lock)
        p->is_awaited = false;
    on_resume(l, p); /* takes the timer's reference */
}

static void set_linger_timer(struct loop *l, void *arg)
{
    struct proc *p = arg;
    bool had = p->linger_timer != NULL;

    p->linger_timer = loop_timer_del(p->linger_timer);
    if (had)
        proc_unref(p);
    /* The reference is the timer's now. */
    if (loop_timer_add(l, clock_mono_ms() + PROC_LINGER_MS, on_linger_timer, p, &p->linger_timer,
                       NULL) < 0)
        on_linger_timer(l, p);
}

void proc_leave(struct proc *p, struct proc_sub *s)
{
    bool is_awaited = false;

    WITH_LOCK (&p->lock) {
        is_awaited = s->is_lossless && p->info.state == PROC_RUNNING;
        if (!is_awaited)
            break;
        p->is_awaited = true;
        memcpy(p->left_at, s->read_to, sizeof(p->left_at));
    }
    if (is_awaited)
        proc_post(p, set_linger_timer);
    proc_unsubscribe(p, s);
}

/* With the lock: the bytes that are neither in memory nor in the file. */
static uint64_t count_dropped(const struct proc *p, size_t i)
{
    uint64_t n = journal_dropped(&p->out[i]);
    uint64_t from = p->out[i].head_len, to = journal_tail_offset(&p->out[i]);

    if (p->spill[i].base > from)
        from = p->spill[i].base;
    if (spill_end(&p->spill[i]) < to)
        to = spill_end(&p->spill[i]);
    return to > from ? n - (to - from) : n;
}

void proc_get_info(struct proc *p, struct proc_info *ret)
{
    _cleanup_unlock_ pthread_mutex_t *locked = mutex_lock(&p->lock);

    *ret = p->info;
    ret->is_stdin_broken = p->stdin_broken;
    for (size_t i = 0; i < N_PROC_STREAMS; i++) {
        ret->bytes[i] = p->out[i].total;
        ret->dropped[i] = count_dropped(p, i);
        ret->spilled[i] = p->spill[i].written;
        ret->spill_sys[i] = p->spill[i].sys;
    }
}

/* Without the lock: the file may be slow. It may have been evicted meanwhile. */
static int read_spilled(int fd, uint64_t place, void *out, size_t max, size_t *ret_len,
                        struct err *e)
{
    ssize_t n;

    do
        n = pread(fd, out, max, (off_t)place);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return err_sys(e, errno, "reading spilled output");
    if (n == 0)
        return err_field(e, ERR_DATA_LOSS, "offset", "the spilled bytes have just been dropped");
    *ret_len = (size_t)n;
    return 0;
}

/* With the lock: reads the journal, or finds the place in the file (*ret_n > 0). */
static int find_output(struct proc *p, enum proc_stream stream, uint64_t offset, void *out,
                       size_t max, size_t *ret_len, uint64_t *ret_held, size_t *ret_n,
                       uint64_t *ret_place, struct err *e)
{
    const struct spill *s = &p->spill[stream];
    int r = journal_read(&p->out[stream], offset, out, max, ret_len, ret_held, e);

    if (r != -ERR_DATA_LOSS)
        return r;
    *ret_n = spill_held(s, offset, max, ret_place);
    if (*ret_n > 0)
        return 0;
    if (offset >= s->base && offset < spill_end(s)) {
        *ret_len = 0; /* queued for the file */
        return 0;
    }
    if (offset < s->base && s->taken > 0)
        *ret_held = s->base;
    return r;
}

/*
 * With the lock: how far behind a reader may be without losing bytes to the next read; at most lag.
 */
static uint64_t most_behind(const struct journal *j, uint64_t lag)
{
    uint64_t room = j->tail_cap > j->tail_min ? j->tail_cap : j->tail_min;

    if (!j->tail_cap || room >= lag + NEXT_BYTES)
        return lag;
    return room > NEXT_BYTES ? room - NEXT_BYTES : 0;
}

/*
 * With the lock: is a lossless reader that has not been passed over, or the disk, further behind
 * than lag?
 */
static bool is_held_up(const struct proc *p, enum proc_stream i, uint64_t lag)
{
    lag = most_behind(&p->out[i], lag);
    if (spill_is_behind(&p->spill[i]) || (p->is_awaited && p->out[i].total > p->left_at[i] + lag))
        return true;
    for (const struct proc_sub *s = p->subs; s; s = s->next)
        if (s->is_lossless && !s->is_passed && p->out[i].total > s->read_to[i] + lag)
            return true;
    return false;
}

/* With the lock. */
static bool is_behind(const struct proc *p, const struct proc_sub *s, uint64_t lag)
{
    return p->out[PROC_STDOUT].total > s->read_to[PROC_STDOUT] + lag ||
           p->out[PROC_STDERR].total > s->read_to[PROC_STDERR] + lag;
}

bool output_is_wanted(struct proc *p)
{
    int64_t now = clock_mono_ms();

    for (struct proc_sub *s = p->subs; s; s = s->next) {
        if (!s->is_lossless || !is_behind(p, s, 0))
            continue;
        if (!s->behind_ms)
            s->behind_ms = now;
        if (!s->yields || s->behind_ms + PROC_STALL_MS > now)
            return true;
    }
    return false;
}

int proc_read(struct proc *p, struct proc_sub *s, enum proc_stream stream, uint64_t offset,
              void *out, size_t max, size_t *ret_len, uint64_t *ret_first_held, struct err *e)
{
    bool is_paused = false;
    uint64_t place = 0;
    size_t n = 0;
    int fd = -1, r = 0;

    WITH_LOCK (&p->lock) {
        r = find_output(p, stream, offset, out, max, ret_len, ret_first_held, &n, &place, e);
        fd = p->spill[stream].fd;
    }
    if (n > 0) {
        r = read_spilled(fd, place, out, n, ret_len, e);
        if (r < 0)
            *ret_first_held = offset + n;
    }
    if (!s || !s->is_lossless)
        return r;
    WITH_LOCK (&p->lock) {
        s->read_to[stream] = r == 0 ? offset + *ret_len : *ret_first_held;
        if (r == 0 && *ret_len > 0) {
            s->behind_ms = 0;
            s->is_passed = false;
        }
        is_paused = p->is_paused[stream] && !is_held_up(p, stream, PROC_LAG_RESUME_BYTES);
    }
    if (is_paused)
        proc_post(p, on_resume);
    return r;
}

int proc_copy_output(struct proc *p, enum proc_stream stream, struct proc_output *ret,
                     struct err *e)
{
    _cleanup_unlock_ pthread_mutex_t *locked = mutex_lock(&p->lock);
    const struct journal *j = &p->out[stream];
    struct proc_output o = {0};
    uint64_t held;
    size_t n;
    int r = 0;

    o.has_gap = journal_dropped(j) > 0;
    o.head_len = j->head_len;
    o.tail_len = j->tail_len;
    if (!o.has_gap) { /* head and tail are one piece */
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

/* ---- pipes and terminals ---- */

static void close_stream(struct proc *p, enum proc_stream i)
{
    p->out_watch[i] = loop_watch_del(p->out_watch[i]);
    WITH_LOCK (&p->lock) {
        fd_close(TAKE_FD(p->out_fd[i]));
        p->info.is_eof[i] = true;
        p->is_paused[i] = false;
        if (p->spec.has_pty)
            p->info.is_stdin_open = false;
    }
    proc_wake(p);
}

static void on_spilled(struct loop *l, void *arg)
{
    struct proc *p = arg;

    proc_check_end(p);
    on_resume(l, p);
}

/* Takes the queue of the next stream that has one. NULL: the work is over. */
static struct chunk *next_spill(struct proc *p, size_t *ret_i, int *ret_fd, uint64_t *ret_at)
{
    _cleanup_unlock_ pthread_mutex_t *locked = mutex_lock(&p->lock);
    struct chunk *take = NULL;

    for (size_t i = 0; i < N_PROC_STREAMS && !take; i++) {
        take = spill_take(&p->spill[i]);
        *ret_i = i;
        *ret_fd = p->spill[i].fd;
        *ret_at = p->spill[i].written;
    }
    p->is_spilling = take != NULL;
    return take;
}

/* On a pool thread: writes queued bytes until the queues are empty. */
static void spill_run(void *arg)
{
    struct proc *p = arg;
    struct registry *reg = p->reg;
    struct chunk *take;
    uint64_t at;
    size_t i, n;
    int fd, sys;

    while ((take = next_spill(p, &i, &fd, &at))) {
        registry_relieve_spill(reg, 2 * SPILL_QUEUE_BYTES);
        sys = spill_write(take, reg->o.spill_dir, &reg->spill_budget, &fd, at, &n);
        WITH_LOCK (&p->lock)
            spill_written(&p->spill[i], fd, n, sys);
        proc_wake(p);
        proc_post(p, on_spilled);
    }
    proc_post(p, on_spilled);
    proc_unref(p);
}

/* With the lock: queues what the journal's head did not take, if the command asked for a file. */
static void spill_output(struct proc *p, enum proc_stream i, uint64_t offset, const char *data,
                         size_t len)
{
    spill_append(&p->spill[i], offset, data, len);
    if (p->is_spilling || !p->spill[i].queue.first)
        return;
    p->is_spilling = true;
    p->spill_item = (struct pool_item){.fn = spill_run, .arg = proc_ref(p)};
}

static void keep_output(struct proc *p, enum proc_stream i, const char *data, size_t len)
{
    struct registry *reg = p->reg;
    bool starts_spilling = false;
    uint64_t dropped = 0;

    if (atomic_load(&reg->budget.used) + 2 * PROC_READ_BYTES > reg->budget.max)
        registry_relieve(reg);
    WITH_LOCK (&p->lock) {
        bool was_spilling = p->is_spilling;
        size_t head = p->out[i].head_len;

        dropped = journal_dropped(&p->out[i]);
        journal_append(&p->out[i], data, len);
        dropped = journal_dropped(&p->out[i]) - dropped;
        head = p->out[i].head_len - head;
        spill_output(p, i, p->out[i].total - len + head, data + head, len - head);
        starts_spilling = !was_spilling && p->is_spilling;
    }
    proc_wake(p);
    if (starts_spilling)
        pool_push(reg->pool, &p->spill_item);
    WITH_LOCK (&reg->lock) {
        *(i == PROC_STDOUT ? &reg->totals.stdout_bytes_total : &reg->totals.stderr_bytes_total) +=
            len;
        reg->totals.dropped_bytes_total += dropped;
        reg->totals.last_output_mono_ms = clock_mono_ms();
    }
}

static void on_watch_timer(struct loop *l, void *arg);

/*
 * Nobody has the terminal open, but the command runs and may open it again, as /dev/tty. Closing
 * the master now would be a hang-up: SIGHUP for the command.
 */
static bool retry_pty_later(struct proc *p, int sys)
{
    if (!p->spec.has_pty || p->is_reaped || sys != EIO)
        return false;
    p->out_watch[PROC_STDOUT] = loop_watch_del(p->out_watch[PROC_STDOUT]);
    p->watch_timer = loop_timer_del(p->watch_timer);
    return loop_timer_add(p->reg->loop, clock_mono_ms() + PTY_AGAIN_MS, on_watch_timer, p,
                          &p->watch_timer, NULL) == 0;
}

/* Reads at most max bytes, once. False: there is nothing more to read now. */
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
        keep_output(p, i, buf, (size_t)n);
        return (size_t)n == max;
    }
    if (n == 0 || (errno != EAGAIN && !retry_pty_later(p, errno)))
        close_stream(p, i); /* the end of a terminal is EIO */
    return false;
}

static void on_stall_timer(struct loop *l, void *arg);

/*
 * Starts the stall timers of readers that are behind; passes over those that exceed the stall
 * timeout.
 */
static void check_stalled_readers(struct proc *p)
{
    int64_t now = clock_mono_ms();
    bool has_stalling = false;

    WITH_LOCK (&p->lock)
        for (struct proc_sub *s = p->subs; s; s = s->next) {
            if (!s->yields || s->is_passed || !is_behind(p, s, PROC_LAG_RESUME_BYTES))
                continue;
            if (!s->behind_ms)
                s->behind_ms = now;
            s->is_passed = s->behind_ms + PROC_STALL_MS <= now;
            has_stalling = has_stalling || !s->is_passed;
        }
    if (has_stalling && !p->stall_timer)
        (void)loop_timer_add(p->reg->loop, now + STALL_CHECK_MS, on_stall_timer, p, &p->stall_timer,
                             NULL);
}

static void on_stall_timer(struct loop *l, void *arg)
{
    struct proc *p = arg;

    p->stall_timer = NULL;
    proc_ref(p);
    check_stalled_readers(p);
    on_resume(l, p); /* drops the reference */
}

static bool pause_if_held_up(struct proc *p, enum proc_stream i)
{
    WITH_LOCK (&p->lock)
        p->is_paused[i] = is_held_up(p, i, PROC_LAG_BYTES);
    if (p->is_paused[i]) {
        p->out_watch[i] = loop_watch_del(p->out_watch[i]);
        check_stalled_readers(p);
    }
    return p->is_paused[i];
}

static void on_output(struct proc *p, enum proc_stream i)
{
    proc_ref(p);
    for (int n = 0; n < READS_A_TURN && p->out_fd[i] >= 0; n++)
        if (pause_if_held_up(p, i) || !read_some(p, i, PROC_READ_BYTES))
            break;
    proc_check_end(p);
    proc_unref(p);
}

static void on_stdout(struct loop *l, uint32_t events, void *arg)
{
    struct proc *p = arg;

    (void)l;
    proc_ref(p);
    if (events & EPOLLOUT && p->spec.has_pty)
        input_pump(p);
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

/*
 * A stream that can't be watched (out of memory) is closed, so that it does not block the command.
 */
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
        bool resume = false;

        WITH_LOCK (&p->lock) {
            resume = p->is_paused[i] && !is_held_up(p, (enum proc_stream)i, PROC_LAG_RESUME_BYTES);
            p->is_paused[i] = p->is_paused[i] && !resume;
        }
        if (resume)
            watch_stream(p, (enum proc_stream)i);
    }
    proc_unref(p);
}

/*
 * Reads what was in the pipe when the first process ended, and no more: others may still be
 * writing.
 */
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
    /* If nobody else holds the pipe, this read finds its end, and nothing lingers. */
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
    proc_check_end(p);
    proc_unref(p);
}

/*
 * A terminal hangs up when its session leader ends, but output may still be on its way through the
 * kernel: read to the end, for at most PTY_DRAIN_MS.
 */
static void drain_pty(struct proc *p)
{
    p->is_paused[PROC_STDOUT] = false;
    p->watch_timer = loop_timer_del(p->watch_timer);
    watch_stream(p, PROC_STDOUT);
    while (p->out_fd[PROC_STDOUT] >= 0 && read_some(p, PROC_STDOUT, PROC_READ_BYTES))
        ;
    if (p->out_fd[PROC_STDOUT] >= 0)
        (void)loop_timer_add(p->reg->loop, clock_mono_ms() + PTY_DRAIN_MS, on_drain_timer, p,
                             &p->drain_timer, NULL);
}

static void watch_now(struct proc *p)
{
    p->is_watched = true;
    p->watch_timer = loop_timer_del(p->watch_timer);
    for (size_t i = 0; i < N_PROC_STREAMS; i++)
        watch_stream(p, (enum proc_stream)i);
}

static void on_watch_timer(struct loop *l, void *arg)
{
    struct proc *p = arg;

    (void)l;
    p->watch_timer = NULL;
    watch_now(p);
    if (p->spec.has_pty)
        input_pump(p);
}

static void on_wanted(struct loop *l, void *arg)
{
    struct proc *p = arg;

    (void)l;
    if (p->is_adopted && !p->is_watched && !p->is_reaped)
        watch_now(p);
    proc_unref(p);
}

bool output_has_readers(struct proc *p)
{
    _cleanup_unlock_ pthread_mutex_t *locked = mutex_lock(&p->subs_lock);

    for (const struct proc_sub *s = p->subs; s; s = s->next)
        if (!s->is_end_only)
            return true;
    return false;
}

/*
 * Without readers before the end, output stays in the pipes for WATCH_DELAY_MS: most commands have
 * ended by then, and each wake of this thread would have slowed them down.
 */
void output_watch(struct proc *p)
{
    int64_t at_ms = p->started_mono_ms + WATCH_DELAY_MS;

    if (p->spec.has_pty || output_has_readers(p) || clock_mono_ms() >= at_ms ||
        loop_timer_add(p->reg->loop, at_ms, on_watch_timer, p, &p->watch_timer, NULL) < 0)
        watch_now(p);
}

void output_drain(struct proc *p)
{
    if (p->spec.has_pty) {
        drain_pty(p);
        return;
    }
    drain_pipe(p, PROC_STDOUT);
    drain_pipe(p, PROC_STDERR);
    if (!p->is_watched) /* output of descendants is still to come */
        watch_now(p);
}
