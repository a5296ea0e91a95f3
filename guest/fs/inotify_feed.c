#include "fs/inotify_feed.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <search.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "event/loop.h"

#define RAW_BYTES (64 * 1024)
#define PAUSE_MS 3   /* between two reads, so that one read gets many events */
#define RM_BATCH 512 /* watches removed between two reads: the kernel queues an event for each */
#define FIRST_BYTES 1024 /* of a feed's queue */
#define ALWAYS_TOLD (IN_IGNORED | IN_UNMOUNT)

/* One feed's share of one kernel watch. */
struct tap {
    int wd; /* the feed's own number; first, because the tree compares it */
    uint32_t mask;
    struct fs_feed *feed;
    struct watched *watched;
    struct tap *next, *prev; /* of the same kernel watch */
};

struct watched {
    int wd; /* the kernel's; first */
    struct tap *taps;
    bool is_idle; /* in the list `idle` */
    struct watched *next_idle;
};

/* An instance that several feeds share. */
struct instance {
    struct fs_feeds *all;
    uint32_t flags;
    int fd;
    /* guarded by the lock of `all`: */
    struct instance *next;
    size_t n_feeds;
    /* the loop's: */
    struct loop_watch *armed;
    struct loop_timer *timer;

    pthread_mutex_t lock;
    /* guarded by lock: */
    struct fs_feed *feeds;
    void *watches; /* a tree of struct watched */
    /* Threads between inotify_add_watch() and taking the lock: idle watches must stay. */
    unsigned n_adding;
    struct watched *idle;
    _Alignas(struct inotify_event) char raw[RAW_BYTES];
};

struct fs_feed {
    struct fs_feeds *all;
    int fd; /* of an instance of its own; else an eventfd */
    struct instance *shared;
    /* guarded by shared's lock: */
    struct fs_feed *next;
    void *taps; /* a tree of struct tap */
    int last_wd;
    char *queue;
    size_t at, len, cap; /* of the queue: what is between at and len waits */
    size_t last;         /* where the last event is */
    bool is_overflown;   /* events are dropped until the queue has been read to its end */
    bool is_signalled;
};

struct fs_feeds {
    struct loop *loop;
    pthread_mutex_t lock;
    /* guarded by lock: */
    size_t n_own;
    struct instance *shared;
};

/* ---- trees by number ------------------------------------------------------------------------- */

static int compare_wd(const void *a, const void *b)
{
    int x = *(const int *)a, y = *(const int *)b;

    return (x > y) - (x < y);
}

static void *find_by_wd(void *const *tree, int wd)
{
    void **node = tfind(&wd, tree, compare_wd);

    return node ? *node : NULL;
}

/* ---- a feed's queue, with the instance's lock ------------------------------------------------ */

static void signal_ready(struct fs_feed *f)
{
    uint64_t one = 1;

    if (f->is_signalled || f->at == f->len)
        return;
    f->is_signalled = true;
    (void)!write(f->fd, &one, sizeof(one));
}

/* As the kernel does, merges an event that equals the last one in the queue. */
static bool feed_repeats(const struct fs_feed *f, const struct inotify_event *ev)
{
    const struct inotify_event *last = (const void *)(f->queue + f->last);

    return f->at < f->len && last->wd == ev->wd && last->mask == ev->mask && last->len == ev->len &&
           memcmp(last->name, ev->name, ev->len) == 0 && !(ev->mask & IN_IGNORED);
}

static bool make_room(struct fs_feed *f, size_t need)
{
    size_t cap = f->cap ? f->cap : FIRST_BYTES;
    char *queue;

    if (f->at) {
        memmove(f->queue, f->queue + f->at, f->len - f->at);
        f->len -= f->at;
        f->last -= f->at < f->last ? f->at : f->last;
        f->at = 0;
    }
    while (cap < f->len + need)
        cap *= 2;
    if (cap <= f->cap)
        return true;
    queue = cap <= FEED_QUEUE_BYTES ? realloc(f->queue, cap) : NULL;
    if (!queue)
        return false;
    f->queue = queue;
    f->cap = cap;
    return true;
}

static void feed_append(struct fs_feed *f, const struct inotify_event *ev)
{
    f->last = f->len;
    memcpy(f->queue + f->len, ev, sizeof(*ev));
    memcpy(f->queue + f->len + sizeof(*ev), ev->name, ev->len);
    f->len += sizeof(*ev) + ev->len;
}

/* Always leaves room for IN_Q_OVERFLOW. */
static void feed_push(struct fs_feed *f, const struct inotify_event *ev)
{
    static const struct inotify_event lost = {.wd = -1, .mask = IN_Q_OVERFLOW};
    size_t size = sizeof(*ev) + ev->len;
    bool is_lost = ev->mask & IN_Q_OVERFLOW;

    if (f->is_overflown || (f->queue && feed_repeats(f, ev)))
        return;
    if (!is_lost && f->len + size + sizeof(lost) > f->cap)
        is_lost = !make_room(f, size + sizeof(lost));
    if (is_lost && f->len + sizeof(lost) > f->cap && !make_room(f, sizeof(lost)))
        return; /* no memory at all: the next event tries again */
    f->is_overflown = is_lost;
    feed_append(f, is_lost ? &lost : ev);
    signal_ready(f);
}

/* ---- a shared instance, with its lock -------------------------------------------------------- */

static void unlink_tap(struct tap *t)
{
    if (t->prev)
        t->prev->next = t->next;
    else
        t->watched->taps = t->next;
    if (t->next)
        t->next->prev = t->prev;
}

static void watched_forget(struct instance *in, struct watched *w)
{
    (void)tdelete(w, &in->watches, compare_wd);
    free(w);
}

static void drop_tap(struct tap *t)
{
    (void)tdelete(t, &t->feed->taps, compare_wd);
    unlink_tap(t);
    free(t);
}

/* Frees a watch that the kernel has ended. */
static void drop_watched(struct instance *in, struct watched *w)
{
    while (w->taps)
        drop_tap(w->taps);
    if (!w->is_idle)
        watched_forget(in, w);
}

/* Removes a watch without taps; keeps it idle while a thread that is adding may have been given its
 * number. */
static void watched_release(struct instance *in, struct watched *w)
{
    if (w->taps || w->is_idle)
        return;
    if (in->n_adding) {
        w->is_idle = true;
        w->next_idle = in->idle;
        in->idle = w;
        return;
    }
    (void)inotify_rm_watch(in->fd, w->wd);
    watched_forget(in, w);
}

static void release_idle(struct instance *in)
{
    while (in->idle && !in->n_adding) {
        struct watched *w = in->idle;

        in->idle = w->next_idle;
        w->is_idle = false;
        watched_release(in, w);
    }
}

/* Gives the event to each feed that taps its watch. Overwrites ev->wd. */
static void instance_deal(struct instance *in, struct inotify_event *ev)
{
    struct watched *w = find_by_wd(&in->watches, ev->wd);

    if (ev->mask & IN_Q_OVERFLOW)
        for (struct fs_feed *f = in->feeds; f; f = f->next)
            feed_push(f, ev);
    if (!w)
        return;
    for (struct tap *t = w->taps; t; t = t->next) {
        if (!(ev->mask & ((t->mask & IN_ALL_EVENTS) | ALWAYS_TOLD)))
            continue;
        ev->wd = t->wd;
        feed_push(t->feed, ev);
    }
    if (ev->mask & IN_IGNORED)
        drop_watched(in, w);
}

/* Reads and distributes all events that the kernel holds. */
static void instance_read(struct instance *in)
{
    int left;

    if (ioctl(in->fd, FIONREAD, &left) < 0)
        left = INT_MAX;
    while (left > 0) {
        ssize_t n = read(in->fd, in->raw, sizeof(in->raw));

        if (n <= 0)
            return;
        left -= (int)n;
        for (ssize_t at = 0; at < n;) {
            struct inotify_event *ev = (void *)(in->raw + at);

            at += (ssize_t)(sizeof(*ev) + ev->len);
            instance_deal(in, ev);
        }
    }
}

/* ---- the loop's part ------------------------------------------------------------------------- */

static void on_readable(struct loop *l, uint32_t events, void *arg);

static void instance_arm(struct loop *l, void *arg)
{
    struct instance *in = arg;

    in->timer = NULL;
    /* Out of memory: fs_feed_read() still reads it. */
    (void)loop_watch_add(l, in->fd, EPOLLIN, on_readable, in, &in->armed, NULL);
}

static void on_readable(struct loop *l, uint32_t events, void *arg)
{
    struct instance *in = arg;

    (void)events;
    (void)pthread_mutex_lock(&in->lock);
    instance_read(in);
    (void)pthread_mutex_unlock(&in->lock);
    if (loop_timer_add(l, clock_mono_ms() + PAUSE_MS, instance_arm, in, &in->timer, NULL) == 0)
        in->armed = loop_watch_del(in->armed);
}

static void on_retired(struct loop *l, void *arg)
{
    struct instance *in = arg;

    (void)l;
    in->armed = loop_watch_del(in->armed);
    in->timer = loop_timer_del(in->timer);
    fd_close(in->fd);
    (void)pthread_mutex_destroy(&in->lock);
    free(in);
}

/* ---- instances ------------------------------------------------------------------------------- */

static int new_inotify(int *ret, struct err *e)
{
    *ret = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    if (*ret < 0 && errno == EMFILE)
        return err_field(e, ERR_EXHAUSTED, "path",
                         "the kernel's limit of watchers (fs.inotify.max_user_instances) or the "
                         "agent's of descriptors is reached");
    return *ret < 0 ? err_sys(e, errno, "inotify_init1") : 0;
}

static int instance_new(struct fs_feeds *all, uint32_t flags, struct instance **ret, struct err *e)
{
    struct instance *in = calloc(1, sizeof(*in));
    int r;

    if (!in)
        return err_oom(e);
    in->all = all;
    in->flags = flags;
    (void)pthread_mutex_init(&in->lock, NULL);
    r = new_inotify(&in->fd, e);
    if (r == 0)
        r = loop_post(all->loop, instance_arm, in, e);
    if (r < 0) {
        fd_close(in->fd);
        (void)pthread_mutex_destroy(&in->lock);
        free(in);
        return r;
    }
    *ret = in;
    return 0;
}

/* With the lock of all. Chooses the instance with the fewest feeds, or makes another. */
static int choose_instance(struct fs_feeds *all, uint32_t flags, struct instance **ret,
                           struct err *e)
{
    struct instance *best = NULL;
    struct err why = {0};
    size_t n = 0;
    int r;

    for (struct instance *in = all->shared; in; in = in->next) {
        if (in->flags != flags)
            continue;
        n++;
        if (!best || in->n_feeds < best->n_feeds)
            best = in;
    }
    *ret = best;
    if (n == FEED_SHARED_MAX)
        return 0;
    r = instance_new(all, flags, ret, &why);
    if (r == 0) {
        (*ret)->next = all->shared;
        all->shared = *ret;
    } else if (!best && e) {
        *e = why;
    }
    return best ? 0 : r;
}

/* With the lock of all. */
static void instance_unlist(struct instance *in)
{
    struct instance **at = &in->all->shared;

    while (*at != in)
        at = &(*at)->next;
    *at = in->next;
}

static int feed_open_shared(struct fs_feed *f, uint32_t flags, struct err *e)
{
    struct fs_feeds *all = f->all;
    struct instance *in;
    int r;

    f->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (f->fd < 0)
        return err_sys(e, errno, "eventfd");
    (void)pthread_mutex_lock(&all->lock);
    r = choose_instance(all, flags, &in, e);
    if (r == 0)
        in->n_feeds++;
    (void)pthread_mutex_unlock(&all->lock);
    if (r < 0)
        return r;
    f->shared = in;
    (void)pthread_mutex_lock(&in->lock);
    f->next = in->feeds;
    in->feeds = f;
    (void)pthread_mutex_unlock(&in->lock);
    return 0;
}

/* ---- feeds ----------------------------------------------------------------------------------- */

int fs_feeds_new(struct loop *l, struct fs_feeds **ret, struct err *e)
{
    struct fs_feeds *all = calloc(1, sizeof(*all));

    if (!all)
        return err_oom(e);
    all->loop = l;
    (void)pthread_mutex_init(&all->lock, NULL);
    *ret = all;
    return 0;
}

struct fs_feeds *fs_feeds_free(struct fs_feeds *all)
{
    if (!all)
        return NULL;
    (void)pthread_mutex_destroy(&all->lock);
    free(all);
    return NULL;
}

/* Takes one of the FEED_OWN_MAX places for a feed with its own instance. */
static bool feeds_take_own(struct fs_feeds *all)
{
    _cleanup_unlock_ pthread_mutex_t *locked = mutex_lock(&all->lock);
    bool has = all->n_own < FEED_OWN_MAX;

    all->n_own += has;
    return has;
}

static void feeds_give_own(struct fs_feeds *all)
{
    _cleanup_unlock_ pthread_mutex_t *locked = mutex_lock(&all->lock);

    all->n_own--;
}

static int feed_open_own(struct fs_feed *f, struct err *e)
{
    int r = new_inotify(&f->fd, e);

    if (r < 0 && f->all)
        feeds_give_own(f->all);
    return r;
}

int fs_feed_new(struct fs_feeds *all, uint32_t flags, struct fs_feed **ret, struct err *e)
{
    struct fs_feed *f = calloc(1, sizeof(*f));
    int r = -1;

    if (!f)
        return err_oom(e);
    f->all = all;
    if (!all || feeds_take_own(all))
        r = feed_open_own(f, e);
    if (r < 0 && all)
        r = feed_open_shared(f, flags, e);
    if (r < 0) {
        fd_close(f->fd);
        free(f);
        return r;
    }
    *ret = f;
    return 0;
}

int fs_feed_fd(const struct fs_feed *f)
{
    return f->fd;
}

/* The kernel queues an event for every watch that is removed. Reads in between, so that its queue
 * does not overflow. */
static void feed_leave(struct fs_feed *f, bool is_last)
{
    struct instance *in = f->shared;
    struct fs_feed **at = &in->feeds;
    _cleanup_unlock_ pthread_mutex_t *locked = mutex_lock(&in->lock);

    while (*at != f)
        at = &(*at)->next;
    *at = f->next;
    for (size_t n = 1; f->taps; n++) {
        struct tap *t = *(struct tap **)f->taps; /* the root's */
        struct watched *w = t->watched;

        drop_tap(t);
        if (is_last)
            watched_forget(in, w);
        else
            watched_release(in, w);
        if (n % RM_BATCH == 0)
            instance_read(in);
    }
}

/* The last feed closes the instance, and with it all kernel watches. */
static void feed_close_shared(struct fs_feed *f)
{
    struct instance *in = f->shared;
    struct fs_feeds *all = f->all;
    bool is_last;

    (void)pthread_mutex_lock(&all->lock);
    is_last = in->n_feeds == 1;
    if (is_last)
        instance_unlist(in);
    (void)pthread_mutex_unlock(&all->lock);
    feed_leave(f, is_last);
    (void)pthread_mutex_lock(&all->lock);
    if (--in->n_feeds == 0 && !is_last) {
        is_last = true;
        instance_unlist(in);
    }
    (void)pthread_mutex_unlock(&all->lock);
    if (is_last)
        (void)loop_post_sure(all->loop, on_retired, in, NULL);
}

struct fs_feed *fs_feed_free(struct fs_feed *f)
{
    if (!f)
        return NULL;
    if (f->shared)
        feed_close_shared(f);
    else if (f->all)
        feeds_give_own(f->all);
    fd_close(f->fd);
    free(f->queue);
    free(f);
    return NULL;
}

/* With the lock. Distributes earlier events first: the feed must not get them. */
static struct tap *feed_tap(struct fs_feed *f, int wd)
{
    struct instance *in = f->shared;
    struct watched *w = find_by_wd(&in->watches, wd);
    struct tap *t;

    for (t = w ? w->taps : NULL; t; t = t->next)
        if (t->feed == f)
            return t;
    if (w)
        instance_read(in);
    w = find_by_wd(&in->watches, wd);
    if (!w) {
        w = calloc(1, sizeof(*w));
        if (!w)
            return NULL;
        w->wd = wd;
        if (!tsearch(w, &in->watches, compare_wd)) {
            free(w);
            return NULL;
        }
    }
    t = calloc(1, sizeof(*t));
    if (t) {
        *t = (struct tap){.wd = ++f->last_wd, .feed = f, .watched = w, .next = w->taps};
        if (!tsearch(t, &f->taps, compare_wd)) {
            free(t);
            t = NULL;
        }
    }
    if (t && t->next)
        t->next->prev = t;
    if (t)
        w->taps = t;
    else
        watched_release(in, w);
    return t;
}

/* Does not hold the lock during inotify_add_watch(): the directory may be on a disk that hangs. */
static int add_shared(struct fs_feed *f, const char *path, uint32_t mask)
{
    struct instance *in = f->shared;
    struct tap *t = NULL;
    int wd, sys = ENOMEM;

    (void)pthread_mutex_lock(&in->lock);
    in->n_adding++;
    (void)pthread_mutex_unlock(&in->lock);
    wd = inotify_add_watch(in->fd, path, mask | in->flags | IN_MASK_ADD);
    if (wd < 0)
        sys = errno;
    (void)pthread_mutex_lock(&in->lock);
    if (wd >= 0)
        t = feed_tap(f, wd);
    if (t)
        t->mask = mask;
    in->n_adding--;
    release_idle(in);
    wd = t ? t->wd : -1;
    (void)pthread_mutex_unlock(&in->lock);
    errno = sys;
    return wd;
}

int fs_feed_add(struct fs_feed *f, int dirfd, uint32_t mask)
{
    char self[40];

    (void)snprintf(self, sizeof(self), "/proc/self/fd/%d", dirfd);
    return f->shared ? add_shared(f, self, mask) : inotify_add_watch(f->fd, self, mask);
}

void fs_feed_rm(struct fs_feed *f, int wd)
{
    struct instance *in = f->shared;
    struct watched *w;
    struct tap *t;

    if (!in) {
        (void)inotify_rm_watch(f->fd, wd); /* fails if the watch is gone already */
        return;
    }
    (void)pthread_mutex_lock(&in->lock);
    instance_read(in); /* earlier events must not get lost */
    t = find_by_wd(&f->taps, wd);
    if (t) {
        w = t->watched;
        feed_push(f, &(struct inotify_event){.wd = wd, .mask = IN_IGNORED});
        drop_tap(t);
        watched_release(in, w);
    }
    (void)pthread_mutex_unlock(&in->lock);
}

/* With the lock. */
static size_t feed_take(struct fs_feed *f, char *out, size_t max)
{
    size_t n = 0;
    uint64_t count;

    while (f->at + n < f->len) {
        const struct inotify_event *ev = (const void *)(f->queue + f->at + n);

        if (n + sizeof(*ev) + ev->len > max)
            break;
        n += sizeof(*ev) + ev->len;
    }
    if (n)
        memcpy(out, f->queue + f->at, n);
    f->at += n;
    if (f->at < f->len)
        return n;
    f->at = f->len = f->last = 0;
    f->is_overflown = false;
    if (f->is_signalled)
        (void)!read(f->fd, &count, sizeof(count));
    f->is_signalled = false;
    return n;
}

ssize_t fs_feed_read(struct fs_feed *f, void *out, size_t max)
{
    size_t n;

    if (!f->shared)
        return read(f->fd, out, max);
    (void)pthread_mutex_lock(&f->shared->lock);
    instance_read(f->shared);
    n = feed_take(f, out, max);
    (void)pthread_mutex_unlock(&f->shared->lock);
    errno = EAGAIN;
    return n ? (ssize_t)n : -1;
}
