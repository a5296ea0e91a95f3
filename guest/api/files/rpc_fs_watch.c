/*
 * fs_watch: Fs/Watch. The loop watches inotify's descriptor; what it says is read and looked at by
 * a worker, for that touches the disk; the two take turns, so that guest/fs/watch never sees two
 * threads. Events wait for the client in a bounded queue: past the bound they are dropped, and the
 * client is told to look again when it has taken what was kept.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/jsonx.h"
#include "common/str.h"
#include "fs/watch.h"
#include "event/loop.h"
#include "agent.h"
#include "api/rpc.h"
#include "search/ignore.h"
#include "event/pool.h"

#define QUEUE_MAX_BYTES (1024u * 1024) /* of events that wait for the client */
#define EVENT_BYTES 300                /* about what an event weighs besides its paths */
#define BATCH_MS 10       /* between two readings: what came meanwhile is told at once */
#define UNWATCHED_MAX 100 /* named in the first message; the others are counted */
#define EXCLUDE_MAX 100

struct message {
    json_t *json;
    size_t weight;
    char *modified; /* this message says that this path was modified: not to be said again */
    struct message *next;
};

struct watching {
    struct source source; /* first: the server has a pointer to it */
    struct loop *loop;
    struct pool *pool;
    const struct agent *agent;
    json_t *params;   /* a reference: */
    const char *user; /* borrowed from it */
    char *path;
    bool recursive;
    struct rules *exclude;
    struct pool_item item; /* at most one of it is in the pool */

    /* the worker's and the loop's in turns: */
    struct fs_watch *watch;
    enum fs_watch_state state;
    json_t *unwatched; /* until it has started */
    size_t n_unwatched;
    bool is_broken; /* nothing more comes from it */

    /* the loop's: */
    struct loop_watch *armed;
    struct loop_timer *timer;

    pthread_mutex_t lock;
    /* guarded by lock: */
    int refs; /* the server's and the loop's */
    bool is_gone;
    struct message *first, *last;
    json_t *modified; /* a set of paths: the last word of the queue on each is that */
    size_t bytes;
    bool is_lossy; /* events are being dropped */
    bool is_done;  /* then: */
    json_t *end;   /* the last message, or NULL: */
    struct err error;
};

static void message_free(struct message *m)
{
    json_decref(m->json);
    free(m->modified);
    free(m);
}

/* Called with the lock; gives it up. */
static void unref_and_unlock(struct watching *x)
{
    bool is_last = --x->refs == 0;

    (void)pthread_mutex_unlock(&x->lock);
    if (!is_last)
        return;
    while (x->first) {
        struct message *m = x->first;

        x->first = m->next;
        message_free(m);
    }
    json_decref(x->modified);
    json_decref(x->unwatched);
    json_decref(x->end);
    rules_free(x->exclude);
    json_decref(x->params);
    free(x->path);
    (void)pthread_mutex_destroy(&x->lock);
    free(x);
}

static void unref(struct watching *x)
{
    (void)pthread_mutex_lock(&x->lock);
    unref_and_unlock(x);
}

static bool is_gone(void *arg)
{
    struct watching *x = arg;
    bool gone;

    (void)pthread_mutex_lock(&x->lock);
    gone = x->is_gone;
    (void)pthread_mutex_unlock(&x->lock);
    return gone;
}

/* ---- the queue ------------------------------------------------------------------------------- */

static json_t *new_overflow(const char *reason)
{
    return json_pack("{s:{s:s, s:s}}", "event", "type", "overflow", "reason", reason);
}

static json_t *take_first(struct watching *x)
{
    struct message *m = x->first;
    json_t *json = json_incref(m->json);

    x->first = m->next;
    if (!x->first)
        x->last = NULL;
    x->bytes -= m->weight;
    if (m->modified)
        (void)json_object_del(x->modified, m->modified);
    message_free(m);
    return json;
}

/* Called with the lock. */
static int next_locked(struct watching *x, json_t **ret_msg, struct err *e)
{
    if (x->first) {
        *ret_msg = take_first(x);
        return SOURCE_MESSAGE;
    }
    if (x->is_lossy) {
        x->is_lossy = false;
        *ret_msg = new_overflow("slow_client");
        return *ret_msg ? SOURCE_MESSAGE : err_oom(e);
    }
    if (x->end) {
        *ret_msg = TAKE(x->end);
        return SOURCE_MESSAGE;
    }
    if (!x->is_done)
        return SOURCE_WAIT;
    if (!x->error.code)
        return SOURCE_END;
    if (e)
        *e = x->error;
    return -x->error.code;
}

static int watching_next(struct source *s, json_t **ret_msg, struct err *e)
{
    struct watching *x = (struct watching *)s;
    int r;

    (void)pthread_mutex_lock(&x->lock);
    r = next_locked(x, ret_msg, e);
    (void)pthread_mutex_unlock(&x->lock);
    return r;
}

/* Takes json (NULL: there was no memory for it) and modified. */
static void push_take(struct watching *x, json_t *json, char *modified, size_t weight)
{
    struct message *m = malloc(sizeof(*m));

    (void)pthread_mutex_lock(&x->lock);
    if (!m || !json || x->is_lossy || x->bytes + weight > QUEUE_MAX_BYTES) {
        x->is_lossy = true;
        json_decref(json);
        free(modified);
        free(m);
    } else {
        *m = (struct message){.json = json, .weight = weight, .modified = modified};
        if (x->last)
            x->last->next = m;
        else
            x->first = m;
        x->last = m;
        x->bytes += weight;
        if (modified)
            (void)json_object_set_new_nocheck(x->modified, modified, json_true());
    }
    source_wake(&x->source);
    (void)pthread_mutex_unlock(&x->lock);
}

static void finish(struct watching *x, const char *reason, const struct err *error)
{
    json_t *end = reason ? json_pack("{s:{s:s}}", "end", "reason", reason) : NULL;

    (void)pthread_mutex_lock(&x->lock);
    x->is_done = true;
    if (reason && !end)
        (void)err_oom(&x->error);
    else if (error)
        x->error = *error;
    x->end = end;
    source_wake(&x->source);
    (void)pthread_mutex_unlock(&x->lock);
}

/* ---- events ---------------------------------------------------------------------------------- */

/* Whether the queue ends, as far as this path goes, with the same word. */
static bool is_said_already(struct watching *x, const struct fs_watch_event *ev)
{
    bool is_said;

    (void)pthread_mutex_lock(&x->lock);
    is_said = json_object_get(x->modified, ev->path) != NULL;
    if (ev->type == FS_WATCH_RENAMED || ev->type == FS_WATCH_OVERFLOW)
        (void)json_object_clear(x->modified);
    else if (is_said && ev->type != FS_WATCH_MODIFIED)
        (void)json_object_del(x->modified, ev->path);
    (void)pthread_mutex_unlock(&x->lock);
    return is_said && ev->type == FS_WATCH_MODIFIED;
}

static const char *const type_words[] = {
    [FS_WATCH_CREATED] = "created",     [FS_WATCH_REMOVED] = "removed",
    [FS_WATCH_RENAMED] = "renamed",     [FS_WATCH_MODIFIED] = "modified",
    [FS_WATCH_WRITTEN] = "written",     [FS_WATCH_ATTRIBUTES] = "attributes",
    [FS_WATCH_UNWATCHED] = "unwatched", [FS_WATCH_OVERFLOW] = "overflow",
};

static json_t *new_event(const struct fs_watch_event *ev)
{
    json_t *obj = json_pack("{s:s, s:o, s:b}", "type", type_words[ev->type], "path",
                            jx_new_path(ev->path), "directory", ev->is_dir);
    int r = obj ? 0 : -1;

    if (r == 0 && ev->from)
        r = json_object_set_new(obj, "from", jx_new_path(ev->from));
    if (r == 0 && ev->is_moved)
        r = json_object_set_new(obj, "moved", json_true());
    if (r == 0 && ev->error)
        r = json_object_set_new(obj, "error", jx_new_error(ev->error));
    if (r < 0) {
        json_decref(obj);
        return NULL;
    }
    return json_pack("{s:o}", "event", obj);
}

/* Before it has started, only this is told: it goes into the first message. */
static void note_unwatched(struct watching *x, const struct fs_watch_event *ev)
{
    if (++x->n_unwatched > UNWATCHED_MAX)
        return;
    (void)json_array_append_new(x->unwatched, json_pack("{s:o, s:o}", "path", jx_new_path(ev->path),
                                                        "error", jx_new_error(ev->error)));
}

static void on_event(void *arg, const struct fs_watch_event *ev)
{
    struct watching *x = arg;
    char *modified;

    if (!x->watch) {
        note_unwatched(x, ev);
    } else if (ev->type == FS_WATCH_OVERFLOW) {
        (void)is_said_already(x, ev);
        push_take(x, new_overflow("kernel"), NULL, EVENT_BYTES);
    } else if (!is_said_already(x, ev)) {
        modified = ev->type == FS_WATCH_MODIFIED ? strdup(ev->path) : NULL;
        push_take(x, new_event(ev), modified,
                  EVENT_BYTES + strlen(ev->path) + (ev->from ? strlen(ev->from) : 0));
    }
}

static bool is_excluded(void *arg, const char *rel, bool is_dir)
{
    const struct watching *x = arg;

    return rules_match_globs(x->exclude, rel, strlen(rel), is_dir) == IGNORE_HIDE;
}

/* ---- the worker ------------------------------------------------------------------------------ */

static void after_work(struct loop *l, void *arg);

static void free_watch(void *arg)
{
    struct watching *x = arg;

    fs_watch_free(x->watch);
    x->watch = NULL;
    unref(x);
}

static void hand_to_loop(struct watching *x)
{
    struct err e = {0};

    if (loop_post_sure(x->loop, after_work, x, &e) == 0)
        return;
    if (!x->is_broken)
        finish(x, NULL, &e);
    free_watch(x);
}

static void run(struct watching *x)
{
    struct err e = {0};

    if (fs_watch_run(x->watch, &x->state, &e) < 0) {
        x->is_broken = true;
        finish(x, NULL, &e);
    } else if (x->state == FS_WATCH_ENDED) {
        x->is_broken = true;
        finish(x, fs_watch_end(x->watch), NULL);
    }
}

static void run_work(void *arg)
{
    run(arg);
    hand_to_loop(arg);
}

static void say_started(struct watching *x)
{
    json_t *json = json_pack("{s:{s:o, s:I, s:O, s:I}}", "started", "path", jx_new_path(x->path),
                             "directories", (json_int_t)fs_watch_dirs(x->watch), "unwatched",
                             x->unwatched, "unwatched_count", (json_int_t)x->n_unwatched);

    push_take(x, json, NULL, EVENT_BYTES * (1 + json_array_size(x->unwatched)));
}

static void start_work(void *arg)
{
    struct watching *x = arg;
    const struct fs_watch_options o = {
        .recursive = x->recursive,
        .sink = {.event = on_event,
                 .is_gone = is_gone,
                 .is_excluded = x->exclude ? is_excluded : NULL,
                 .arg = x},
    };
    _cleanup_fs_caller_ struct fs_caller *c = NULL;
    const struct agent *a = x->agent;
    struct fs_watch *watch = NULL;
    struct err e = {0};

    if (fs_caller_new(a->root, x->user ? x->user : a->default_user, a->workdir, &c, &e) < 0 ||
        fs_watch_new(c, x->path, &o, &watch, &e) < 0) {
        x->is_broken = true;
        finish(x, NULL, &e);
    } else {
        x->watch = watch;
        say_started(x);
        run(x);
    }
    hand_to_loop(x);
}

/* ---- the loop -------------------------------------------------------------------------------- */

/* The loop's part is over; what was opened is given back by a worker, for that can take a while. */
static void tear_down(struct watching *x)
{
    x->armed = loop_watch_del(x->armed);
    x->timer = loop_timer_del(x->timer);
    if (loop_is_over(x->loop)) { /* the pool has gone, too */
        free_watch(x);
        return;
    }
    x->item.fn = free_watch;
    x->item.arg = x;
    pool_push(x->pool, &x->item);
}

static void start_run(struct watching *x)
{
    x->item.fn = run_work;
    x->item.arg = x;
    pool_push(x->pool, &x->item);
}

static void on_readable(struct loop *l, uint32_t events, void *arg)
{
    struct watching *x = arg;

    (void)l;
    (void)events;
    x->armed = loop_watch_del(x->armed);
    start_run(x);
}

static void on_batch(struct loop *l, void *arg)
{
    struct watching *x = arg;
    struct err e = {0};

    x->timer = NULL;
    if (x->state == FS_WATCH_PENDING) {
        start_run(x);
    } else if (loop_watch_add(l, fs_watch_fd(x->watch), EPOLLIN, on_readable, x, &x->armed, &e) <
               0) {
        finish(x, NULL, &e);
        tear_down(x);
    }
}

static void after_work(struct loop *l, void *arg)
{
    struct watching *x = arg;
    struct err e = {0};

    if (x->is_broken || is_gone(x) || loop_is_over(l)) {
        tear_down(x);
    } else if (loop_timer_add(l, clock_mono_ms() + BATCH_MS, on_batch, x, &x->timer, &e) < 0) {
        finish(x, NULL, &e);
        tear_down(x);
    }
}

/* While a worker has it, neither is set: after_work() will see that the client has gone. */
static void on_gone(struct loop *l, void *arg)
{
    struct watching *x = arg;

    (void)l;
    if (x->armed || x->timer)
        tear_down(x);
    unref(x);
}

/* ---- the source ------------------------------------------------------------------------------ */

static void watching_free(struct source *s)
{
    struct watching *x = (struct watching *)s;

    (void)pthread_mutex_lock(&x->lock);
    x->is_gone = true;
    x->source.waker.fn = NULL;
    (void)pthread_mutex_unlock(&x->lock); /* the reference goes to on_gone() */
    /* Without memory the next event, or the end of the program, gives it back. */
    if (loop_post_sure(x->loop, on_gone, x, NULL) < 0)
        unref(x);
}

static const struct source_ops watching_ops = {.next = watching_next, .free = watching_free};

struct watch_params {
    char *path;
    const char *user;
    bool recursive;
    char **exclude;
};

static const struct jx_field watch_fields[] = {
    JX(struct watch_params, path, jx_path, JX_REQUIRED),
    JX(struct watch_params, user, jx_str, JX_NULLABLE),
    JX(struct watch_params, recursive, jx_bool, 0),
    JX(struct watch_params, exclude, jx_strv, JX_NULLABLE),
    {0},
};

/* As ripgrep's -g '!GLOB': a line of a .gitignore at the watched directory. */
static int compile_exclude(char **globs, struct rules **ret, struct err *e)
{
    _cleanup_strv_ char **hiding = NULL;
    struct err why = {0};

    if (!globs || !globs[0])
        return 0;
    if (strv_len(globs) > EXCLUDE_MAX)
        return err_field(e, ERR_INVALID, "exclude", "at most %d globs", EXCLUDE_MAX);
    for (char **g = globs; *g; g++) {
        _cleanup_free_ char *line = NULL;

        if (asprintf(&line, "!%s", *g) < 0)
            return err_oom(e);
        if (strv_push(&hiding, line, e) < 0)
            return -ERR_EXHAUSTED;
    }
    if (rules_add_globs(ret, hiding, RULES_GLOBS, "exclude", &why) == 0)
        return 0;
    return err_field(e, (enum err_code)why.code, "exclude", "%s", why.message);
}

static int watching_new(const struct rpc_call *call, struct watch_params *p, struct watching **ret,
                        struct err *e)
{
    struct watching *x = calloc(1, sizeof(*x));
    int r;

    if (!x)
        return err_oom(e);
    *x = (struct watching){.source.ops = &watching_ops,
                           .loop = call->agent->loop,
                           .pool = call->agent->pool,
                           .agent = call->agent,
                           .params = json_incref(call->params),
                           .user = p->user,
                           .path = TAKE(p->path),
                           .recursive = p->recursive,
                           .unwatched = json_array(),
                           .modified = json_object(),
                           .refs = 1};
    (void)pthread_mutex_init(&x->lock, NULL);
    r = x->unwatched && x->modified ? compile_exclude(p->exclude, &x->exclude, e) : err_oom(e);
    if (r < 0) {
        unref(x);
        return r;
    }
    *ret = x;
    return 0;
}

int rpc_fs_watch(const struct rpc_call *call, struct source **ret, struct err *e)
{
    struct watch_params p = {.recursive = true};
    struct watching *x = NULL;
    int r;

    r = jx_decode(call->params, watch_fields, &p, e);
    if (r == 0)
        r = watching_new(call, &p, &x, e);
    free(p.path);
    strv_free(p.exclude);
    if (r < 0)
        return r;
    x->refs = 2;
    r = pool_run(x->pool, start_work, x, e);
    if (r < 0) {
        x->refs = 1;
        unref(x);
        return r;
    }
    *ret = &x->source;
    return 0;
}
