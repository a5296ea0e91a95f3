#include "dialect/e2b/watchers.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent.h"
#include "common/cleanup.h"
#include "common/io.h"
#include "common/jsonx.h"
#include "common/path.h"
#include "dialect/e2b/entry.h"

#define ID_LETTERS 20
#define BATCH_MS 5
#define EVENT_BYTES 40   /* about the size of an event besides its name */
#define ENTRY_BYTES 1024 /* about the size of an entry */

/* ---- one ------------------------------------------------------------------------------------- */

/* For looking at the names of a watched directory; the watcher's. */
struct entry_look {
    struct fs_caller *caller; /* a reference */
    char *path;
    struct fs_owners owners;
};

static void entry_look_free(void *arg)
{
    struct entry_look *k = arg;

    fs_caller_unref(k->caller);
    free(k->path);
    free(k);
}

/* The entry that an event names, as it is now; NULL if it has gone meanwhile. */
static void *entry_look_at(void *arg, const struct fs_watch_event *ev)
{
    struct entry_look *k = arg;
    _cleanup_free_ char *joined = NULL;
    _cleanup_free_ char *path = NULL;
    json_t *entry = NULL;

    if (ev->type == FS_WATCH_REMOVED)
        return NULL;
    joined = path_join(k->path, ev->path);
    path = joined ? path_clean(joined) : NULL;
    if (path)
        (void)entry_stat(k->caller, path, &k->owners, &entry, NULL);
    return entry;
}

static void entry_decref(void *entry)
{
    json_decref(entry);
}

int watchers_watch(const struct agent *a, struct fs_caller *c, const struct watchers_options *o,
                   struct fs_watcher **ret, struct err *e)
{
    struct entry_look *k = calloc(1, sizeof(*k));
    const struct fs_watcher_options wo = {
        .loop = a->loop,
        .pool = a->pool,
        .recursive = o->recursive,
        .raw = true,
        .strict = true,
        .batch_ms = BATCH_MS,
        .queue_bytes = WATCHERS_QUEUE_BYTES,
        .event_bytes = EVENT_BYTES,
        .extra_bytes = ENTRY_BYTES,
        .keepalive_ms = o->keepalive_ms,
        .look = o->include_entry ? entry_look_at : NULL,
        .extra_free = entry_decref,
        .arg = k,
        .arg_free = entry_look_free,
        .wake = o->wake,
        .wake_arg = o->wake_arg,
    };
    struct fs_watcher *w = NULL;
    struct err inner = {0};

    if (!k)
        return err_oom(e);
    k->caller = fs_caller_ref(c);
    k->path = strdup(o->path);
    if (!k->path || fs_watcher_new(&wo, &w, NULL) < 0) {
        entry_look_free(k);
        return err_oom(e);
    }
    if (fs_watcher_start(w, c, o->path, &inner) < 0) {
        fs_watcher_drop(w);
        return err_set(e, ERR_INTERNAL, "error adding path %s to watcher: %s", o->path,
                       inner.message);
    }
    *ret = w;
    return 0;
}

static json_t *watchers_new_event(const struct fs_watcher_event *x)
{
    static const char *const types[] = {
        [FS_WATCH_CREATED] = "EVENT_TYPE_CREATE",
        [FS_WATCH_ATTRIBUTES] = "EVENT_TYPE_CHMOD",
        [FS_WATCH_MODIFIED] = "EVENT_TYPE_WRITE",
        [FS_WATCH_REMOVED] = "EVENT_TYPE_REMOVE",
    };
    bool is_renamed = x->ev.type == FS_WATCH_REMOVED && x->ev.is_moved;

    return json_pack("{s:o, s:s, s:O*}", "name", entry_new_text(x->ev.path), "type",
                     is_renamed ? "EVENT_TYPE_RENAME" : types[x->ev.type], "entry", x->extra);
}

int watchers_next(struct fs_watcher *w, json_t **ret_event, struct err *e)
{
    struct fs_watcher_event *event = NULL;
    struct err inner = {0};
    int r = fs_watcher_next(w, &event, &inner);

    if (r < 0)
        return err_set(e, ERR_INTERNAL, "watcher error: fsnotify: %s", inner.message);
    if (r != FS_WATCHER_EVENT)
        return r;
    *ret_event = watchers_new_event(event);
    fs_watcher_event_free(w, event);
    return *ret_event ? r : err_oom(e);
}

static int watchers_take_all(struct fs_watcher *w, json_t **ret, struct err *e)
{
    _cleanup_json_ json_t *all = json_array();
    json_t *event = NULL;
    int r = all ? FS_WATCHER_EVENT : err_oom(e);

    fs_watcher_catch_up(w);
    while (r > 0 && (r = watchers_next(w, &event, e)) == FS_WATCHER_EVENT)
        if (json_array_append_new(all, event) < 0)
            r = err_oom(e);
    if (r < 0)
        return r;
    *ret = TAKE(all);
    return 0;
}

/* ---- the table ------------------------------------------------------------------------------- */

struct slot {
    char id[WATCHERS_ID_BYTES]; /* "": free */
    struct fs_watcher *watcher;
};

struct watchers {
    pthread_mutex_t lock; /* guards the slots */
    struct slot slots[WATCHERS_MAX];
};

int watchers_new(struct watchers **ret, struct err *e)
{
    struct watchers *all = calloc(1, sizeof(*all));

    if (!all)
        return err_oom(e);
    (void)pthread_mutex_init(&all->lock, NULL);
    *ret = all;
    return 0;
}

struct watchers *watchers_free(struct watchers *all)
{
    if (!all)
        return NULL;
    for (size_t i = 0; i < WATCHERS_MAX; i++)
        fs_watcher_drop(all->slots[i].watcher);
    (void)pthread_mutex_destroy(&all->lock);
    free(all);
    return NULL;
}

static int watchers_make_id(char id[WATCHERS_ID_BYTES], struct err *e)
{
    static const char letters[] = "0123456789abcdefghijklmnopqrstuvwxyz";
    unsigned char random[ID_LETTERS];
    int r = io_random(random, sizeof(random), e);

    if (r < 0)
        return r;
    id[0] = 'w';
    for (size_t i = 0; i < ID_LETTERS; i++)
        id[i + 1] = letters[random[i] % (sizeof(letters) - 1)];
    id[ID_LETTERS + 1] = '\0';
    return 0;
}

/* Called with the lock. "" finds a free one. */
static struct slot *watchers_find_slot(struct watchers *all, const char *id)
{
    for (size_t i = 0; i < WATCHERS_MAX; i++)
        if (strcmp(all->slots[i].id, id) == 0)
            return &all->slots[i];
    return NULL;
}

static int watchers_refuse_id(const char *id, struct err *e)
{
    return err_set(e, ERR_NOT_FOUND, "watcher with id %.64s not found", id);
}

int watchers_add_take(struct watchers *all, struct fs_watcher *w, char id[WATCHERS_ID_BYTES],
                      struct err *e)
{
    struct slot *slot = NULL;
    int r = watchers_make_id(id, e);

    if (r == 0) {
        (void)pthread_mutex_lock(&all->lock);
        slot = watchers_find_slot(all, "");
        if (slot) {
            (void)memcpy(slot->id, id, WATCHERS_ID_BYTES);
            slot->watcher = w;
        }
        (void)pthread_mutex_unlock(&all->lock);
    }
    if (slot)
        return 0;
    fs_watcher_drop(w);
    return r < 0 ? r : err_set(e, ERR_EXHAUSTED, "there are %d watchers already", WATCHERS_MAX);
}

int watchers_take(struct watchers *all, const char *id, json_t **ret, struct err *e)
{
    struct fs_watcher *w = NULL;
    struct slot *slot;
    int r;

    (void)pthread_mutex_lock(&all->lock);
    slot = *id ? watchers_find_slot(all, id) : NULL;
    if (slot)
        w = fs_watcher_ref(slot->watcher);
    (void)pthread_mutex_unlock(&all->lock);
    if (!w)
        return watchers_refuse_id(id, e);
    r = watchers_take_all(w, ret, e);
    fs_watcher_unref(w);
    return r;
}

int watchers_remove(struct watchers *all, const char *id, struct err *e)
{
    struct fs_watcher *w = NULL;
    struct slot *slot;

    (void)pthread_mutex_lock(&all->lock);
    slot = *id ? watchers_find_slot(all, id) : NULL;
    if (slot) {
        w = slot->watcher;
        *slot = (struct slot){0};
    }
    (void)pthread_mutex_unlock(&all->lock);
    if (!w)
        return watchers_refuse_id(id, e);
    fs_watcher_drop(w);
    return 0;
}
