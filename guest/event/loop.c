#include "event/loop.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/mem.h"

#define LOOP_BATCH 64 /* events taken by one epoll_wait */
#define LOOP_STACK_BYTES (256 * 1024)
#define QUIET_MS 500
#define LOOP_MAX_TIMERS (1u << 20)

struct loop_watch {
    struct loop *loop;
    int fd;
    loop_fd_fn fn; /* NULL: deleted, its memory waits for the end of the batch */
    void *arg;
    struct loop_watch *next_dead;
};

struct loop_timer {
    struct loop *loop;
    int64_t at_ms;
    uint64_t serial; /* timers of one millisecond run in the order they were made */
    size_t slot;
    loop_fn fn;
    void *arg;
};

struct post {
    loop_fn fn;
    void *arg;
    bool is_sure;
    struct post *next;
};

struct loop {
    int epoll_fd;
    int wake_fd; /* an eventfd: something was posted, or the loop must stop */
    int lazy_fd; /* a timerfd: a lazy post has waited for LOOP_LAZY_MS */
    pthread_t thread;
    bool started; /* loop_start()'s thread is there to be joined */
    _Atomic bool stopping;
    _Atomic bool running;
    bool is_over;             /* loop_free() has begun */
    pthread_t runner;         /* valid while running */
    struct loop_timer **heap; /* the earliest first */
    size_t n_timers, cap_timers;
    uint64_t next_serial;
    struct loop_watch *dead;
    loop_fn on_quiet; /* or NULL */
    void *on_quiet_arg;
    pthread_mutex_t lock;
    /* guarded by lock: */
    struct post *first, *last;
    bool is_woken;      /* wake_fd is written for the posts that wait */
    bool is_lazy_armed; /* lazy_fd will wake the loop */
};

static int add_own(struct loop *l, int *fd)
{
    struct epoll_event ev = {.events = EPOLLIN, .data.ptr = fd};

    return *fd < 0 ? -1 : epoll_ctl(l->epoll_fd, EPOLL_CTL_ADD, *fd, &ev);
}

int loop_new(struct loop **ret, struct err *e)
{
    struct loop *l = calloc(1, sizeof(*l));

    if (!l)
        return err_oom(e);
    (void)pthread_mutex_init(&l->lock, NULL);
    l->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    l->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    l->lazy_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    if (l->epoll_fd < 0 || add_own(l, &l->wake_fd) < 0 || add_own(l, &l->lazy_fd) < 0) {
        int sys = errno;

        loop_free(l);
        return err_sys(e, sys, "making the event loop");
    }
    *ret = l;
    return 0;
}

static void free_dead(struct loop *l)
{
    while (l->dead) {
        struct loop_watch *w = l->dead;

        l->dead = w->next_dead;
        free(w);
    }
}

struct loop *loop_free(struct loop *l)
{
    if (!l)
        return NULL;
    assert(!l->started && !l->running);
    l->is_over = true;
    while (l->first) {
        struct post *p = l->first;

        l->first = p->next;
        if (p->is_sure)
            p->fn(l, p->arg);
        free(p);
    }
    free_dead(l);
    for (size_t i = 0; i < l->n_timers; i++)
        free(l->heap[i]);
    free(l->heap);
    fd_close(l->wake_fd);
    fd_close(l->lazy_fd);
    fd_close(l->epoll_fd);
    (void)pthread_mutex_destroy(&l->lock);
    free(l);
    return NULL;
}

bool loop_is_over(const struct loop *l)
{
    return l->is_over;
}

bool loop_is_here(const struct loop *l)
{
    return l->running && pthread_equal(l->runner, pthread_self());
}

/* Watches and timers belong to the loop's thread; before it runs, to the thread that sets it up. */
static void assert_owner(const struct loop *l)
{
    assert(!l->running || loop_is_here(l));
}

/* ---- watches ---- */

int loop_watch_add(struct loop *l, int fd, uint32_t events, loop_fd_fn fn, void *arg,
                   struct loop_watch **ret, struct err *e)
{
    struct epoll_event ev = {.events = events};
    struct loop_watch *w;

    assert_owner(l);
    w = calloc(1, sizeof(*w));
    if (!w)
        return err_oom(e);
    *w = (struct loop_watch){.loop = l, .fd = fd, .fn = fn, .arg = arg};
    ev.data.ptr = w;
    if (epoll_ctl(l->epoll_fd, EPOLL_CTL_ADD, fd, &ev) < 0) {
        int sys = errno;

        free(w);
        return err_sys(e, sys, "watching descriptor %d", fd);
    }
    *ret = w;
    return 0;
}

int loop_watch_set(struct loop_watch *w, uint32_t events, struct err *e)
{
    struct epoll_event ev = {.events = events, .data.ptr = w};

    assert_owner(w->loop);
    if (epoll_ctl(w->loop->epoll_fd, EPOLL_CTL_MOD, w->fd, &ev) < 0)
        return err_sys(e, errno, "watching descriptor %d", w->fd);
    return 0;
}

/*
 * The batch being dispatched may still hold an event of this watch, so the memory stays until the
 * batch is over.
 */
struct loop_watch *loop_watch_del(struct loop_watch *w)
{
    if (!w)
        return NULL;
    assert_owner(w->loop);
    (void)epoll_ctl(w->loop->epoll_fd, EPOLL_CTL_DEL, w->fd, NULL);
    w->fn = NULL;
    w->next_dead = w->loop->dead;
    w->loop->dead = w;
    return NULL;
}

/* ---- timers: a binary heap ---- */

static bool is_earlier(const struct loop_timer *a, const struct loop_timer *b)
{
    return a->at_ms < b->at_ms || (a->at_ms == b->at_ms && a->serial < b->serial);
}

static void heap_put(struct loop *l, size_t slot, struct loop_timer *t)
{
    l->heap[slot] = t;
    t->slot = slot;
}

static void heap_up(struct loop *l, size_t slot)
{
    struct loop_timer *t = l->heap[slot];

    while (slot > 0 && is_earlier(t, l->heap[(slot - 1) / 2])) {
        heap_put(l, slot, l->heap[(slot - 1) / 2]);
        slot = (slot - 1) / 2;
    }
    heap_put(l, slot, t);
}

static void heap_down(struct loop *l, size_t slot)
{
    struct loop_timer *t = l->heap[slot];

    for (;;) {
        size_t child = slot * 2 + 1;

        if (child >= l->n_timers)
            break;
        if (child + 1 < l->n_timers && is_earlier(l->heap[child + 1], l->heap[child]))
            child++;
        if (!is_earlier(l->heap[child], t))
            break;
        heap_put(l, slot, l->heap[child]);
        slot = child;
    }
    heap_put(l, slot, t);
}

int loop_timer_add(struct loop *l, int64_t at_mono_ms, loop_fn fn, void *arg,
                   struct loop_timer **ret, struct err *e)
{
    struct loop_timer *t;
    int r;

    assert_owner(l);
    if (l->n_timers >= LOOP_MAX_TIMERS)
        return err_set(e, ERR_EXHAUSTED, "more than %u timers", LOOP_MAX_TIMERS);
    r = array_grow(&l->heap, &l->cap_timers, l->n_timers + 1, LOOP_MAX_TIMERS, e);
    if (r < 0)
        return r;
    t = calloc(1, sizeof(*t));
    if (!t)
        return err_oom(e);
    *t = (struct loop_timer){
        .loop = l, .at_ms = at_mono_ms, .serial = l->next_serial++, .fn = fn, .arg = arg};
    heap_put(l, l->n_timers++, t);
    heap_up(l, t->slot);
    *ret = t;
    return 0;
}

struct loop_timer *loop_timer_del(struct loop_timer *t)
{
    struct loop_timer *last;
    struct loop *l;
    size_t slot;

    if (!t)
        return NULL;
    l = t->loop;
    slot = t->slot;
    assert_owner(l);
    last = l->heap[--l->n_timers];
    if (last != t) {
        heap_put(l, slot, last);
        heap_up(l, slot);
        heap_down(l, last->slot);
    }
    free(t);
    return NULL;
}

/* Runs the timers that were due when the round began: one that sets itself to now must not starve others. */
static void run_timers(struct loop *l)
{
    int64_t now = clock_mono_ms();
    uint64_t before = l->next_serial;

    while (l->n_timers > 0 && l->heap[0]->at_ms <= now && l->heap[0]->serial < before) {
        loop_fn fn = l->heap[0]->fn;
        void *arg = l->heap[0]->arg;

        loop_timer_del(l->heap[0]);
        fn(l, arg);
    }
}

static int wait_ms(const struct loop *l)
{
    int64_t left;

    if (l->n_timers == 0)
        return -1;
    left = l->heap[0]->at_ms - clock_mono_ms();
    if (left < 0)
        return 0;
    return left > 3600 * 1000 ? 3600 * 1000 : (int)left;
}

void loop_on_quiet(struct loop *l, loop_fn fn, void *arg)
{
    assert_owner(l);
    l->on_quiet = fn;
    l->on_quiet_arg = arg;
}

/* ---- posts ---- */

static void loop_wake(struct loop *l)
{
    uint64_t one = 1;

    (void)!write(l->wake_fd, &one, sizeof(one)); /* a full eventfd has woken the loop already */
}

static void arm_lazy(struct loop *l)
{
    const struct itimerspec in = {.it_value.tv_nsec = LOOP_LAZY_MS * 1000000};

    (void)timerfd_settime(l->lazy_fd, 0, &in, NULL);
}

static void on_lazy(struct loop *l)
{
    _cleanup_unlock_ pthread_mutex_t *locked = mutex_lock(&l->lock);
    uint64_t count;

    l->is_lazy_armed = false;
    (void)!read(l->lazy_fd, &count, sizeof(count));
}

static int loop_add_post(struct loop *l, loop_fn fn, void *arg, bool lazily, bool is_sure,
                         struct err *e)
{
    struct post *p = calloc(1, sizeof(*p));
    bool must_wake, must_arm;

    if (!p)
        return err_oom(e);
    *p = (struct post){.fn = fn, .arg = arg, .is_sure = is_sure};
    (void)pthread_mutex_lock(&l->lock);
    if (l->first)
        l->last->next = p;
    else
        l->first = p;
    l->last = p;
    must_wake = !lazily && !l->is_woken;
    must_arm = lazily && !l->is_woken && !l->is_lazy_armed;
    l->is_woken |= must_wake;
    l->is_lazy_armed |= must_arm;
    if (must_arm) /* with the lock held, or on_lazy() could read the timer that is being armed */
        arm_lazy(l);
    (void)pthread_mutex_unlock(&l->lock);
    if (must_wake)
        loop_wake(l);
    return 0;
}

int loop_post(struct loop *l, loop_fn fn, void *arg, struct err *e)
{
    return loop_add_post(l, fn, arg, false, false, e);
}

int loop_post_lazily(struct loop *l, loop_fn fn, void *arg, struct err *e)
{
    return loop_add_post(l, fn, arg, true, false, e);
}

int loop_post_sure(struct loop *l, loop_fn fn, void *arg, struct err *e)
{
    return loop_add_post(l, fn, arg, false, true, e);
}

/* Runs the posts that wait; true: there was one. */
static bool run_posts(struct loop *l)
{
    struct post *p;
    bool is_some;

    (void)pthread_mutex_lock(&l->lock);
    p = l->first;
    l->first = l->last = NULL;
    l->is_woken = false;
    (void)pthread_mutex_unlock(&l->lock);
    is_some = p != NULL;
    while (p) {
        struct post *next = p->next;

        p->fn(l, p->arg);
        free(p);
        p = next;
    }
    return is_some;
}

/* ---- the thread ---- */

static void loop_dispatch(struct loop *l, const struct epoll_event *ev, int n)
{
    uint64_t count;

    for (int i = 0; i < n; i++) {
        struct loop_watch *w = ev[i].data.ptr;

        if (ev[i].data.ptr == &l->wake_fd)
            (void)!read(l->wake_fd, &count, sizeof(count));
        else if (ev[i].data.ptr == &l->lazy_fd)
            on_lazy(l);
        else if (w->fn)
            w->fn(l, ev[i].events, w->arg);
    }
    free_dead(l);
}

/* Waits for events. QUIET_MS after the last event of a burst, frees memory and calls on_quiet. */
static int wait_quiet(struct loop *l, struct epoll_event *ev, int64_t *burst_ms)
{
    int ms = wait_ms(l);
    int n = epoll_wait(l->epoll_fd, ev, LOOP_BATCH,
                       *burst_ms && (ms < 0 || ms > QUIET_MS) ? QUIET_MS : ms);

    if (n > 0) {
        *burst_ms = clock_mono_ms();
    } else if (*burst_ms && clock_mono_ms() - *burst_ms >= QUIET_MS) {
        mem_trim_heap();
        *burst_ms = 0;
        if (l->on_quiet)
            l->on_quiet(l, l->on_quiet_arg);
    }
    return n;
}

int loop_run(struct loop *l, struct err *e)
{
    struct epoll_event ev[LOOP_BATCH];
    int64_t burst_ms = 0; /* of the last event; 0: nothing since memory was given back */
    int r = 0;

    l->runner = pthread_self();
    l->running = true;
    while (!l->stopping) {
        int n = wait_quiet(l, ev, &burst_ms);

        if (n < 0 && errno != EINTR) {
            r = err_sys(e, errno, "waiting for events");
            break;
        }
        loop_dispatch(l, ev, n);
        (void)run_posts(l);
        run_timers(l);
        free_dead(l);
    }
    (void)run_posts(l); /* posts from before the stop still run */
    free_dead(l);
    l->running = false;
    return r;
}

bool loop_run_posted(struct loop *l)
{
    bool is_some;

    assert(!l->running);
    is_some = run_posts(l);
    free_dead(l);
    return is_some;
}

static void *loop_thread_main(void *arg)
{
    struct err e = {0};

    /* epoll_wait fails only because of a bug of ours. Nothing would run any more: abort. */
    if (loop_run(arg, &e) < 0)
        abort();
    return NULL;
}

int loop_start(struct loop *l, struct err *e)
{
    sigset_t all, old;
    pthread_attr_t attr;
    int r;

    (void)sigfillset(&all);
    (void)pthread_attr_init(&attr);
    (void)pthread_attr_setstacksize(&attr, LOOP_STACK_BYTES);
    (void)pthread_sigmask(SIG_SETMASK, &all, &old);
    r = pthread_create(&l->thread, &attr, loop_thread_main, l);
    (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
    (void)pthread_attr_destroy(&attr);
    if (r != 0)
        return err_sys(e, r, "starting the loop's thread");
    l->started = true;
    return 0;
}

void loop_stop(struct loop *l)
{
    l->stopping = true;
    loop_wake(l);
    if (l->started && !loop_is_here(l)) {
        (void)pthread_join(l->thread, NULL);
        l->started = false;
    }
}
