#include "dialect/e2b/watcher.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/path.h"
#include "dialect/e2b/entry.h"
#include "fs/notify.h"
#include "event/loop.h"
#include "agent.h"
#include "event/pool.h"

#define BATCH_MS 5       /* between two readings: what came meanwhile is read at once */
#define ENTRY_BYTES 1024 /* about what an entry weighs */
#define OVERFLOWED "watcher error: fsnotify: queue or buffer overflow"

struct event {
    struct event *next;
    enum fs_notice what;
    json_t *entry; /* or NULL */
    size_t weight;
    char name[];
};

struct watcher {
    struct loop *loop;
    struct pool *pool;
    struct fs_caller *caller; /* a reference */
    char *path;
    bool include_entry;
    int64_t keepalive_ms;
    struct pool_item item; /* at most one of it is in the pool */

    pthread_mutex_t work; /* taken before lock */
    /* guarded by work: */
    struct fs_notify *notify; /* NULL: torn down */
    struct fs_owners owners;

    /* the loop's: */
    struct loop_watch *armed;
    struct loop_timer *batch;
    struct loop_timer *alive;

    pthread_mutex_t lock;
    /* guarded by lock: */
    int refs; /* the client's, the loop's, and who takes all */
    bool is_gone;
    bool is_silent; /* for so long that a sign of life is due */
    int64_t told_ms;
    void (*wake)(void *arg);
    void *wake_arg;
    struct event *first, **last;
    size_t bytes;
    struct err error; /* code 0: it works */
};

/* ---- the queue ------------------------------------------------------------------------------- */

static void event_free(struct event *ev)
{
    json_decref(ev->entry);
    free(ev);
}

/* Called with the lock. */
static struct event *take_first(struct watcher *w)
{
    struct event *ev = w->first;

    w->first = ev->next;
    if (!w->first)
        w->last = &w->first;
    w->bytes -= ev->weight;
    return ev;
}

static void clear(struct watcher *w)
{
    while (w->first)
        event_free(take_first(w));
}

/* Called with the lock; gives it up. */
static void unref_and_unlock(struct watcher *w)
{
    bool is_last = --w->refs == 0;

    (void)pthread_mutex_unlock(&w->lock);
    if (!is_last)
        return;
    clear(w);
    fs_notify_free(w->notify); /* when there was no memory to hand it on */
    fs_caller_unref(w->caller);
    (void)pthread_mutex_destroy(&w->lock);
    (void)pthread_mutex_destroy(&w->work);
    free(w->path);
    free(w);
}

static void unref(struct watcher *w)
{
    (void)pthread_mutex_lock(&w->lock);
    unref_and_unlock(w);
}

static bool is_gone(struct watcher *w)
{
    bool gone;

    (void)pthread_mutex_lock(&w->lock);
    gone = w->is_gone;
    (void)pthread_mutex_unlock(&w->lock);
    return gone;
}

/* Called with the lock. */
static void wake(struct watcher *w)
{
    if (w->wake && !w->is_gone)
        w->wake(w->wake_arg);
}

static void fail(struct watcher *w, const char *fmt_message)
{
    (void)pthread_mutex_lock(&w->lock);
    if (!w->error.code)
        (void)err_set(&w->error, ERR_INTERNAL, "%s", fmt_message);
    clear(w);
    wake(w);
    (void)pthread_mutex_unlock(&w->lock);
}

static void push_take(struct watcher *w, struct event *ev)
{
    bool has_room;

    (void)pthread_mutex_lock(&w->lock);
    has_room = w->bytes + ev->weight <= WATCHER_QUEUE_BYTES && !w->error.code;
    if (has_room) {
        *w->last = ev;
        w->last = &ev->next;
        w->bytes += ev->weight;
        wake(w);
    }
    (void)pthread_mutex_unlock(&w->lock);
    if (has_room)
        return;
    event_free(ev);
    fail(w, OVERFLOWED);
}

/* ---- the worker ------------------------------------------------------------------------------ */

/* What is at the name now; that it has gone meanwhile is no error. */
static json_t *look(struct watcher *w, enum fs_notice what, const char *rel)
{
    _cleanup_free_ char *joined = NULL;
    _cleanup_free_ char *path = NULL;
    json_t *entry = NULL;

    if (!w->include_entry || what == FS_NOTICE_REMOVE || what == FS_NOTICE_RENAME)
        return NULL;
    joined = path_join(w->path, rel);
    path = joined ? path_clean(joined) : NULL;
    if (path)
        (void)entry_stat(w->caller, path, &w->owners, &entry, NULL);
    return entry;
}

static void on_notice(void *arg, enum fs_notice what, const char *rel)
{
    struct watcher *w = arg;
    size_t len = strlen(rel);
    struct event *ev = malloc(sizeof(*ev) + len + 1);

    if (!ev) {
        fail(w, OVERFLOWED);
        return;
    }
    *ev = (struct event){.what = what, .entry = look(w, what, rel)};
    ev->weight = sizeof(*ev) + len + (ev->entry ? ENTRY_BYTES : 0);
    (void)memcpy(ev->name, rel, len + 1);
    push_take(w, ev);
}

static void after_work(struct loop *l, void *arg);

static void free_notify(void *arg)
{
    struct watcher *w = arg;

    (void)pthread_mutex_lock(&w->work);
    w->notify = fs_notify_free(w->notify);
    (void)pthread_mutex_unlock(&w->work);
    unref(w);
}

static void hand_to_loop(struct watcher *w)
{
    if (loop_post_sure(w->loop, after_work, w, NULL) == 0)
        return;
    fail(w, "watcher error: out of memory");
    free_notify(w);
}

/* All that has happened until now is in the queue then. */
static void catch_up(struct watcher *w)
{
    char message[ERR_MESSAGE_BYTES + 32];
    struct err e = {0};

    (void)pthread_mutex_lock(&w->work);
    if (w->notify && fs_notify_run(w->notify, &e) < 0) {
        (void)snprintf(message, sizeof(message), "watcher error: fsnotify: %s", e.message);
        fail(w, message);
    }
    (void)pthread_mutex_unlock(&w->work);
}

static void run_work(void *arg)
{
    catch_up(arg);
    hand_to_loop(arg);
}

/* ---- the loop -------------------------------------------------------------------------------- */

static void tear_down(struct watcher *w)
{
    w->armed = loop_watch_del(w->armed);
    w->batch = loop_timer_del(w->batch);
    w->alive = loop_timer_del(w->alive);
    if (loop_is_over(w->loop)) { /* the pool has gone, too */
        free_notify(w);
        return;
    }
    w->item = (struct pool_item){.fn = free_notify, .arg = w};
    pool_push(w->pool, &w->item);
}

static void on_readable(struct loop *l, uint32_t events, void *arg)
{
    struct watcher *w = arg;

    (void)l;
    (void)events;
    w->armed = loop_watch_del(w->armed);
    w->item = (struct pool_item){.fn = run_work, .arg = w};
    pool_push(w->pool, &w->item);
}

static void arm(struct loop *l, void *arg)
{
    struct watcher *w = arg;

    w->batch = NULL;
    if (loop_watch_add(l, fs_notify_fd(w->notify), EPOLLIN, on_readable, w, &w->armed, NULL) == 0)
        return;
    fail(w, "watcher error: out of memory");
    tear_down(w);
}

static void after_work(struct loop *l, void *arg)
{
    struct watcher *w = arg;
    bool is_over;

    (void)pthread_mutex_lock(&w->lock);
    is_over = w->is_gone || w->error.code || loop_is_over(l);
    (void)pthread_mutex_unlock(&w->lock);
    if (is_over) {
        tear_down(w);
    } else if (loop_timer_add(l, clock_mono_ms() + BATCH_MS, arm, w, &w->batch, NULL) < 0) {
        fail(w, "watcher error: out of memory");
        tear_down(w);
    }
}

static void on_alive(struct loop *l, void *arg)
{
    struct watcher *w = arg;
    int64_t now = clock_mono_ms(), due;

    w->alive = NULL;
    (void)pthread_mutex_lock(&w->lock);
    due = w->told_ms + w->keepalive_ms;
    if (now >= due) {
        w->is_silent = true;
        w->told_ms = now;
        due = now + w->keepalive_ms;
        wake(w);
    }
    (void)pthread_mutex_unlock(&w->lock);
    (void)loop_timer_add(l, due, on_alive, w, &w->alive, NULL);
}

static void begin(struct loop *l, void *arg)
{
    struct watcher *w = arg;

    if (w->keepalive_ms && !loop_is_over(l))
        (void)loop_timer_add(l, clock_mono_ms() + w->keepalive_ms, on_alive, w, &w->alive, NULL);
    if (is_gone(w) || loop_is_over(l))
        tear_down(w);
    else
        arm(l, w);
}

/* While a worker has it, neither is set: after_work() will see that the client has gone. */
static void on_gone(struct loop *l, void *arg)
{
    struct watcher *w = arg;

    (void)l;
    if (w->armed || w->batch)
        tear_down(w);
    unref(w);
}

/* ---- for the client -------------------------------------------------------------------------- */

static int start(struct watcher *w, const struct watcher_options *o, struct err *e)
{
    const struct fs_notify_options no = {.recursive = o->recursive, .told = on_notice, .arg = w};
    struct err inner = {0};

    if (!w->path)
        return err_oom(e);
    if (fs_notify_new(w->caller, w->path, &no, &w->notify, &inner) < 0)
        return err_set(e, ERR_INTERNAL, "error adding path %s to watcher: %s", w->path,
                       inner.message);
    w->refs = 2;
    if (loop_post_sure(w->loop, begin, w, e) == 0)
        return 0;
    w->refs = 1;
    return -ERR_EXHAUSTED;
}

int watcher_new(const struct agent *a, struct fs_caller *c, const struct watcher_options *o,
                struct watcher **ret, struct err *e)
{
    struct watcher *w = calloc(1, sizeof(*w));
    int r;

    if (!w)
        return err_oom(e);
    *w = (struct watcher){.loop = a->loop,
                          .pool = a->pool,
                          .caller = fs_caller_ref(c),
                          .path = strdup(o->path),
                          .include_entry = o->include_entry,
                          .keepalive_ms = o->keepalive_ms,
                          .refs = 1,
                          .told_ms = clock_mono_ms(),
                          .wake = o->wake,
                          .wake_arg = o->arg};
    w->last = &w->first;
    (void)pthread_mutex_init(&w->lock, NULL);
    (void)pthread_mutex_init(&w->work, NULL);
    r = start(w, o, e);
    if (r < 0) {
        unref(w);
        return r;
    }
    *ret = w;
    return 0;
}

struct watcher *watcher_ref(struct watcher *w)
{
    (void)pthread_mutex_lock(&w->lock);
    w->refs++;
    (void)pthread_mutex_unlock(&w->lock);
    return w;
}

void watcher_unref(struct watcher *w)
{
    unref(w);
}

void watcher_drop(struct watcher *w)
{
    if (!w)
        return;
    (void)pthread_mutex_lock(&w->lock);
    w->is_gone = true;
    clear(w);
    (void)pthread_mutex_unlock(&w->lock); /* the reference goes to on_gone() */
    /* Without memory the next event, or the end of the program, gives it back. */
    if (loop_post_sure(w->loop, on_gone, w, NULL) < 0)
        unref(w);
}

static json_t *new_event(const struct event *ev)
{
    static const char *const types[] = {
        [FS_NOTICE_CREATE] = "EVENT_TYPE_CREATE", [FS_NOTICE_RENAME] = "EVENT_TYPE_RENAME",
        [FS_NOTICE_CHMOD] = "EVENT_TYPE_CHMOD",   [FS_NOTICE_WRITE] = "EVENT_TYPE_WRITE",
        [FS_NOTICE_REMOVE] = "EVENT_TYPE_REMOVE",
    };

    return json_pack("{s:o, s:s, s:O*}", "name", entry_new_text(ev->name), "type", types[ev->what],
                     "entry", ev->entry);
}

/* Called with the lock. */
static int next_locked(struct watcher *w, struct event **ret, struct err *e)
{
    if (w->error.code) {
        if (e)
            *e = w->error;
        return -w->error.code;
    }
    if (w->first) {
        *ret = take_first(w);
        w->told_ms = clock_mono_ms();
        w->is_silent = false;
        return WATCHER_EVENT;
    }
    if (!w->is_silent)
        return WATCHER_NOTHING;
    w->is_silent = false;
    return WATCHER_KEEPALIVE;
}

int watcher_next(struct watcher *w, json_t **ret_event, struct err *e)
{
    struct event *ev = NULL;
    int r;

    (void)pthread_mutex_lock(&w->lock);
    r = next_locked(w, &ev, e);
    (void)pthread_mutex_unlock(&w->lock);
    if (r != WATCHER_EVENT)
        return r;
    *ret_event = new_event(ev);
    event_free(ev);
    return *ret_event ? r : err_oom(e);
}

int watcher_take_all(struct watcher *w, json_t **ret, struct err *e)
{
    json_t *all = json_array(), *event = NULL;
    int r = all ? WATCHER_EVENT : err_oom(e);

    catch_up(w);
    while (r > 0 && (r = watcher_next(w, &event, e)) == WATCHER_EVENT)
        if (json_array_append_new(all, event) < 0)
            r = err_oom(e);
    if (r < 0) {
        json_decref(all);
        return r;
    }
    *ret = all;
    return 0;
}
