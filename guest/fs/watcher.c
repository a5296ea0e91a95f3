#include "fs/watcher.h"

#include <pthread.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "event/loop.h"
#include "event/pool.h"

struct fs_watcher {
    struct fs_watcher_options o;
    struct pool_item item; /* at most one job of it is in the pool */

    /* for start_later; the first job's: */
    struct fs_root *root;
    char *user, *workdir, *path;

    pthread_mutex_t work; /* taken before lock */
    /* guarded by work: */
    struct fs_watch *watch; /* NULL: not yet, or torn down */
    enum fs_watch_state state;

    /* the loop's: */
    struct loop_watch *armed;
    struct loop_timer *batch;
    struct loop_timer *alive;

    pthread_mutex_t lock;
    /* guarded by lock: */
    int refs; /* the consumer's, the loop's, and of who catches up */
    bool is_gone;
    bool must_tell_start;
    bool is_silent; /* for keepalive_ms */
    int64_t told_ms;
    struct list queue;
    size_t bytes;
    void *modified; /* a tree of the queue's events: a path's last one is FS_WATCH_MODIFIED */
    bool is_lossy;  /* events are being dropped */
    bool is_ended;  /* then, if error.code is 0: */
    const char *end;
    struct err error;

    struct fs_watcher_start start; /* the worker's until must_tell_start is set, then constant */
};

void fs_watcher_event_free(struct fs_watcher *w, struct fs_watcher_event *x)
{
    if (!x)
        return;
    if (x->extra)
        w->o.extra_free(x->extra);
    free((char *)(uintptr_t)x->ev.path);
    free((char *)(uintptr_t)x->ev.from);
    free((struct err *)(uintptr_t)x->ev.error);
    free(x);
}

static struct fs_watcher_event *watcher_event_copy(const struct fs_watch_event *ev)
{
    struct fs_watcher_event *x = calloc(1, sizeof(*x));
    struct err *error = NULL;

    if (!x)
        return NULL;
    x->ev = *ev;
    x->ev.path = strdup(ev->path);
    x->ev.from = ev->from ? strdup(ev->from) : NULL;
    x->ev.error = error = ev->error ? malloc(sizeof(*error)) : NULL;
    if (error)
        *error = *ev->error;
    if (x->ev.path && !x->ev.from == !ev->from && !error == !ev->error)
        return x;
    fs_watcher_event_free(NULL, x); /* has no extra yet */
    return NULL;
}

/* ---- the queue, with the lock ---------------------------------------------------------------- */

static int watcher_compare_paths(const void *a, const void *b)
{
    const struct fs_watcher_event *x = a, *y = b;

    return strcmp(x->ev.path, y->ev.path);
}

static void watcher_keep_node(void *node)
{
    (void)node;
}

static void watcher_forget_modified(struct fs_watcher *w)
{
    tdestroy(w->modified, watcher_keep_node);
    w->modified = NULL;
}

static struct fs_watcher_event *watcher_take_first(struct fs_watcher *w)
{
    struct fs_watcher_event *x = LIST_OF(struct fs_watcher_event, link, list_take_first(&w->queue));
    struct fs_watcher_event **node = tfind(x, &w->modified, watcher_compare_paths);

    if (node && *node == x)
        (void)tdelete(x, &w->modified, watcher_compare_paths);
    w->bytes -= x->weight;
    return x;
}

static void watcher_clear_queue(struct fs_watcher *w)
{
    watcher_forget_modified(w);
    while (w->queue.n)
        fs_watcher_event_free(w, watcher_take_first(w));
}

static void watcher_wake(struct fs_watcher *w)
{
    if (w->o.wake && !w->is_gone)
        w->o.wake(w->o.wake_arg);
}

static void watcher_end_locked(struct fs_watcher *w, const char *reason, const struct err *error)
{
    if (w->is_ended)
        return;
    w->is_ended = true;
    w->end = reason;
    if (error)
        w->error = *error;
    if (error && w->o.strict)
        watcher_clear_queue(w);
    watcher_wake(w);
}

static void watcher_lose_event(struct fs_watcher *w)
{
    struct err e = {0};

    w->is_lossy = true;
    if (w->o.strict) {
        (void)err_set(&e, ERR_EXHAUSTED, "queue or buffer overflow");
        watcher_end_locked(w, NULL, &e);
    }
    watcher_wake(w);
}

/* ---- references ------------------------------------------------------------------------------ */

struct fs_watcher *fs_watcher_ref(struct fs_watcher *w)
{
    _cleanup_unlock_ pthread_mutex_t *locked = mutex_lock(&w->lock);

    w->refs++;
    return w;
}

static void watcher_free(struct fs_watcher *w)
{
    watcher_clear_queue(w);
    while (w->start.unwatched.n)
        fs_watcher_event_free(
            w, LIST_OF(struct fs_watcher_event, link, list_take_first(&w->start.unwatched)));
    fs_watch_free(w->watch); /* if there was no memory to hand it to a worker */
    if (w->o.arg_free)
        w->o.arg_free(w->o.arg);
    (void)pthread_mutex_destroy(&w->lock);
    (void)pthread_mutex_destroy(&w->work);
    free(w->user);
    free(w->workdir);
    free(w->path);
    free(w);
}

void fs_watcher_unref(struct fs_watcher *w)
{
    bool is_last;

    (void)pthread_mutex_lock(&w->lock);
    is_last = --w->refs == 0;
    (void)pthread_mutex_unlock(&w->lock);
    if (is_last)
        watcher_free(w);
}

static void watcher_end(struct fs_watcher *w, const char *reason, const struct err *error)
{
    _cleanup_unlock_ pthread_mutex_t *locked = mutex_lock(&w->lock);

    watcher_end_locked(w, reason, error);
}

static bool watcher_is_gone(void *arg)
{
    struct fs_watcher *w = arg;
    _cleanup_unlock_ pthread_mutex_t *locked = mutex_lock(&w->lock);

    return w->is_gone;
}

/* ---- the worker ------------------------------------------------------------------------------ */

/* Whether the queue's last event of this path is FS_WATCH_MODIFIED, as this one is. */
static bool watcher_is_repeated(struct fs_watcher *w, const struct fs_watch_event *ev)
{
    struct fs_watcher_event key = {.ev = {.path = ev->path}}, **node;
    _cleanup_unlock_ pthread_mutex_t *locked = mutex_lock(&w->lock);

    node = tfind(&key, &w->modified, watcher_compare_paths);
    if (ev->type == FS_WATCH_RENAMED || ev->type == FS_WATCH_OVERFLOW)
        watcher_forget_modified(w);
    else if (node && ev->type != FS_WATCH_MODIFIED)
        (void)tdelete(&key, &w->modified, watcher_compare_paths);
    return node && ev->type == FS_WATCH_MODIFIED;
}

static void watcher_push_take(struct fs_watcher *w, struct fs_watcher_event *x)
{
    _cleanup_unlock_ pthread_mutex_t *locked = mutex_lock(&w->lock);

    if (!x || w->is_lossy || (w->o.strict && w->is_ended) ||
        w->bytes + x->weight > w->o.queue_bytes) {
        fs_watcher_event_free(w, x);
        watcher_lose_event(w);
        return;
    }
    list_append(&w->queue, &x->link);
    w->bytes += x->weight;
    if (x->ev.type == FS_WATCH_MODIFIED && !w->o.raw)
        (void)tsearch(x, &w->modified, watcher_compare_paths); /* no memory: it may be repeated */
    watcher_wake(w);
}

/* Only unwatched directories are told before the start is over: they are part of its report. */
static void watcher_note_unwatched(struct fs_watcher *w, const struct fs_watch_event *ev)
{
    struct fs_watcher_event *x = NULL;

    if (++w->start.n_unwatched <= FS_WATCHER_MAX_UNWATCHED)
        x = watcher_event_copy(ev);
    if (x)
        list_append(&w->start.unwatched, &x->link);
}

static void watcher_on_event(void *arg, const struct fs_watch_event *ev)
{
    struct fs_watcher *w = arg;
    struct fs_watcher_event *x;

    if (!w->watch) {
        watcher_note_unwatched(w, ev);
        return;
    }
    if (!w->o.raw && watcher_is_repeated(w, ev))
        return;
    x = watcher_event_copy(ev);
    if (x) {
        x->extra = w->o.look ? w->o.look(w->o.arg, ev) : NULL;
        x->weight = w->o.event_bytes + strlen(ev->path) + (ev->from ? strlen(ev->from) : 0) +
                    (x->extra ? w->o.extra_bytes : 0);
    }
    watcher_push_take(w, x);
}

static bool watcher_is_excluded(void *arg, const char *rel, bool is_dir)
{
    const struct fs_watcher *w = arg;

    return w->o.is_excluded(w->o.arg, rel, is_dir);
}

static int watcher_open(struct fs_watcher *w, struct fs_caller *c, const char *path, struct err *e)
{
    const struct fs_watch_options o = {
        .recursive = w->o.recursive,
        .raw = w->o.raw,
        .sink = {.event = watcher_on_event,
                 .is_gone = watcher_is_gone,
                 .is_excluded = w->o.is_excluded ? watcher_is_excluded : NULL,
                 .arg = w},
    };
    struct fs_watch *watch;
    int r = fs_watch_new(c, path, &o, &watch, e);

    if (r == 0)
        w->watch = watch;
    return r;
}

void fs_watcher_catch_up(struct fs_watcher *w)
{
    _cleanup_unlock_ pthread_mutex_t *locked = mutex_lock(&w->work);
    enum fs_watch_state state = FS_WATCH_IDLE;
    struct err e = {0};

    if (!w->watch)
        return;
    if (fs_watch_run(w->watch, &state, &e) < 0)
        watcher_end(w, NULL, &e);
    else if (state == FS_WATCH_ENDED)
        watcher_end(w, fs_watch_end(w->watch), NULL);
    if (state != w->state) /* the loop may read it: raw events never change it */
        w->state = state;
}

/* Gives the loop's reference back. */
static void watcher_close_job(void *arg)
{
    struct fs_watcher *w = arg;

    (void)pthread_mutex_lock(&w->work);
    w->watch = fs_watch_free(w->watch);
    (void)pthread_mutex_unlock(&w->work);
    fs_watcher_unref(w);
}

static void watcher_after_job(struct loop *l, void *arg);

static void watcher_hand_to_loop(struct fs_watcher *w)
{
    struct err e = {0};

    if (loop_post_sure(w->o.loop, watcher_after_job, w, &e) == 0)
        return;
    watcher_end(w, NULL, &e);
    watcher_close_job(w);
}

static void watcher_run_job(void *arg)
{
    fs_watcher_catch_up(arg);
    watcher_hand_to_loop(arg);
}

static void watcher_start_job(void *arg)
{
    struct fs_watcher *w = arg;
    _cleanup_fs_caller_ struct fs_caller *c = NULL;
    struct err e = {0};

    (void)pthread_mutex_lock(&w->work);
    if (fs_caller_new(w->root, w->user, w->workdir, &c, &e) < 0 ||
        watcher_open(w, c, w->path, &e) < 0)
        watcher_end(w, NULL, &e);
    else
        w->start.n_dirs = fs_watch_dirs(w->watch);
    (void)pthread_mutex_unlock(&w->work);
    (void)pthread_mutex_lock(&w->lock);
    w->must_tell_start = !w->is_ended;
    watcher_wake(w);
    (void)pthread_mutex_unlock(&w->lock);
    watcher_run_job(w);
}

/* ---- the loop -------------------------------------------------------------------------------- */

static void watcher_start_pool(struct fs_watcher *w, void (*run_job)(void *arg))
{
    w->item = (struct pool_item){.fn = run_job, .arg = w};
    pool_push(w->o.pool, &w->item);
}

/* The loop's part is over. A worker closes the watch, for that may take a while. */
static void watcher_tear_down(struct fs_watcher *w)
{
    w->armed = loop_watch_del(w->armed);
    w->batch = loop_timer_del(w->batch);
    w->alive = loop_timer_del(w->alive);
    if (loop_is_over(w->o.loop)) /* the pool has gone, too */
        watcher_close_job(w);
    else
        watcher_start_pool(w, watcher_close_job);
}

static void watcher_on_readable(struct loop *l, uint32_t events, void *arg)
{
    struct fs_watcher *w = arg;

    (void)l;
    (void)events;
    w->armed = loop_watch_del(w->armed);
    watcher_start_pool(w, watcher_run_job);
}

static void watcher_arm(struct loop *l, void *arg)
{
    struct fs_watcher *w = arg;
    struct err e = {0};

    w->batch = NULL;
    if (w->state == FS_WATCH_PENDING) {
        watcher_start_pool(w, watcher_run_job);
    } else if (loop_watch_add(l, fs_watch_fd(w->watch), EPOLLIN, watcher_on_readable, w, &w->armed,
                              &e) < 0) {
        watcher_end(w, NULL, &e);
        watcher_tear_down(w);
    }
}

static bool watcher_is_over(struct fs_watcher *w)
{
    _cleanup_unlock_ pthread_mutex_t *locked = mutex_lock(&w->lock);

    return w->is_gone || w->is_ended || loop_is_over(w->o.loop);
}

static void watcher_after_job(struct loop *l, void *arg)
{
    struct fs_watcher *w = arg;
    struct err e = {0};

    if (watcher_is_over(w)) {
        watcher_tear_down(w);
    } else if (loop_timer_add(l, clock_mono_ms() + w->o.batch_ms, watcher_arm, w, &w->batch, &e) <
               0) {
        watcher_end(w, NULL, &e);
        watcher_tear_down(w);
    }
}

static void watcher_on_silence(struct loop *l, void *arg)
{
    struct fs_watcher *w = arg;
    int64_t now = clock_mono_ms(), due;

    w->alive = NULL;
    (void)pthread_mutex_lock(&w->lock);
    due = w->told_ms + w->o.keepalive_ms;
    if (now >= due) {
        w->is_silent = true;
        w->told_ms = now;
        due = now + w->o.keepalive_ms;
        watcher_wake(w);
    }
    (void)pthread_mutex_unlock(&w->lock);
    (void)loop_timer_add(l, due, watcher_on_silence, w, &w->alive, NULL);
}

static void watcher_begin(struct loop *l, void *arg)
{
    struct fs_watcher *w = arg;

    if (watcher_is_over(w)) {
        watcher_tear_down(w);
        return;
    }
    if (w->o.keepalive_ms)
        (void)loop_timer_add(l, clock_mono_ms() + w->o.keepalive_ms, watcher_on_silence, w,
                             &w->alive, NULL);
    watcher_arm(l, w);
}

/* While a job has the watch, neither is set: watcher_after_job() will see that the consumer has
 * gone. */
static void watcher_on_gone(struct loop *l, void *arg)
{
    struct fs_watcher *w = arg;

    (void)l;
    if (w->armed || w->batch)
        watcher_tear_down(w);
    fs_watcher_unref(w);
}

/* ---- for the consumer ------------------------------------------------------------------------ */

int fs_watcher_new(const struct fs_watcher_options *o, struct fs_watcher **ret, struct err *e)
{
    struct fs_watcher *w = calloc(1, sizeof(*w));

    if (!w)
        return err_oom(e);
    w->o = *o;
    w->refs = 1;
    w->told_ms = clock_mono_ms();
    (void)pthread_mutex_init(&w->lock, NULL);
    (void)pthread_mutex_init(&w->work, NULL);
    *ret = w;
    return 0;
}

int fs_watcher_start(struct fs_watcher *w, struct fs_caller *c, const char *path, struct err *e)
{
    int r;

    (void)pthread_mutex_lock(&w->work);
    r = watcher_open(w, c, path, e);
    (void)pthread_mutex_unlock(&w->work);
    if (r < 0)
        return r;
    (void)fs_watcher_ref(w); /* the loop's */
    r = loop_post_sure(w->o.loop, watcher_begin, w, e);
    if (r < 0)
        fs_watcher_unref(w);
    return r;
}

int fs_watcher_start_later(struct fs_watcher *w, struct fs_root *root, const char *user,
                           const char *workdir, const char *path, struct err *e)
{
    int r;

    w->root = root;
    w->path = strdup(path);
    w->user = user ? strdup(user) : NULL;
    w->workdir = workdir ? strdup(workdir) : NULL;
    if (!w->path || !w->user != !user || !w->workdir != !workdir)
        return err_oom(e);
    (void)fs_watcher_ref(w); /* the loop's */
    r = pool_run(w->o.pool, watcher_start_job, w, e);
    if (r < 0)
        fs_watcher_unref(w);
    return r;
}

void fs_watcher_drop(struct fs_watcher *w)
{
    if (!w)
        return;
    (void)pthread_mutex_lock(&w->lock);
    w->is_gone = true;
    if (w->o.strict)
        watcher_clear_queue(w);
    (void)pthread_mutex_unlock(&w->lock); /* the reference goes to watcher_on_gone() */
    /* If there is no memory for that, the next event or the end of the program tears it down. */
    if (loop_post_sure(w->o.loop, watcher_on_gone, w, NULL) < 0)
        fs_watcher_unref(w);
}

/* With the lock. */
static int watcher_next_locked(struct fs_watcher *w, struct fs_watcher_event **ret, struct err *e)
{
    if (w->must_tell_start) {
        w->must_tell_start = false;
        return FS_WATCHER_STARTED;
    }
    if (w->queue.n) {
        *ret = watcher_take_first(w);
        w->told_ms = clock_mono_ms();
        w->is_silent = false;
        return FS_WATCHER_EVENT;
    }
    if (w->is_lossy && !w->o.strict) {
        const struct fs_watch_event overflow = {.type = FS_WATCH_OVERFLOW, .path = ""};
        struct fs_watcher_event *x = watcher_event_copy(&overflow);

        w->is_lossy = false;
        if (!x)
            return err_oom(e);
        x->is_slow = true;
        *ret = x;
        return FS_WATCHER_EVENT;
    }
    if (w->error.code) {
        if (e)
            *e = w->error;
        return -w->error.code;
    }
    if (w->is_ended)
        return FS_WATCHER_ENDED;
    if (!w->is_silent)
        return FS_WATCHER_NOTHING;
    w->is_silent = false;
    return FS_WATCHER_KEEPALIVE;
}

int fs_watcher_next(struct fs_watcher *w, struct fs_watcher_event **ret, struct err *e)
{
    _cleanup_unlock_ pthread_mutex_t *locked = mutex_lock(&w->lock);

    return watcher_next_locked(w, ret, e);
}

const struct fs_watcher_start *fs_watcher_started(const struct fs_watcher *w)
{
    return &w->start;
}

const char *fs_watcher_end(const struct fs_watcher *w)
{
    return w->end;
}
