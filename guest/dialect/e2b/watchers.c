/*
 * watchers: directories that E2B's clients watch, as FilesystemEvent messages: one for each event
 * of the kernel. WatchDir's stream is woken; CreateWatcher's live in a table from then to
 * RemoveWatcher, and are polled by id. A client that leaves more than WATCHERS_QUEUE_BYTES, or a
 * kernel that drops events, ends the watcher: every later question gets the same error.
 * Thread-safe.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include "agent.h"
#include "common/cleanup.h"
#include "common/io.h"
#include "common/jsonx.h"
#include "common/path.h"
#include "common/str.h"
#include "dialect/e2b/e2b.h"
#include "dialect/e2b/entry.h"
#include "dialect/e2b/file_paths.h"
#include "fs/watcher.h"

#define WATCHERS_MAX 256
#define WATCHERS_ID_BYTES 24 /* "w", twenty lower-case letters and digits, a NUL */
#define WATCHERS_QUEUE_BYTES (8u * 1024 * 1024)
#define ID_LETTERS 20
#define BATCH_MS 5
#define EVENT_BYTES 40   /* about the size of an event besides its name */
#define ENTRY_BYTES 1024 /* about the size of an entry */

/* ---- one ------------------------------------------------------------------------------------- */

struct watchers_options {
    const char *path; /* absolute, a directory */
    bool recursive;
    bool include_entry;
    int64_t keepalive_ms;         /* of silence; 0: no signs of life */
    void (*wake)(void *wake_arg); /* or NULL */
    void *wake_arg;
};

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

/* Blocks. Success: it is watching. c: the agent itself. */
static int watchers_watch(const struct agent *a, struct fs_caller *c,
                          const struct watchers_options *o, struct fs_watcher **ret, struct err *e)
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

/* As fs_watcher_next(), with the event as a FilesystemEvent (the caller's) and errors in envd's
 * words. */
static int watchers_next(struct fs_watcher *w, json_t **ret_event, struct err *e)
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

/* All events until now as an array, which is empty if there were none; or the watcher's own end. Blocks. */
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

/* Takes w in any case. -ERR_EXHAUSTED: there are WATCHERS_MAX already. */
static int watchers_add_take(struct watchers *all, struct fs_watcher *w, char id[WATCHERS_ID_BYTES],
                             struct err *e)
{
    struct slot *slot = NULL;
    int r = watchers_make_id(id, e);

    if (r == 0) {
        _cleanup_unlock_ pthread_mutex_t *locked = mutex_lock(&all->lock);

        slot = watchers_find_slot(all, "");
        if (slot) {
            (void)memcpy(slot->id, id, WATCHERS_ID_BYTES);
            slot->watcher = w;
        }
    }
    if (slot)
        return 0;
    fs_watcher_drop(w);
    return r < 0 ? r : err_set(e, ERR_EXHAUSTED, "there are %d watchers already", WATCHERS_MAX);
}

/* The watcher of this id: a reference; or, taken out of the table, its own. NULL: there is none. */
static struct fs_watcher *watchers_get(struct watchers *all, const char *id, bool takes_out)
{
    _cleanup_unlock_ pthread_mutex_t *locked = mutex_lock(&all->lock);
    struct slot *slot = *id ? watchers_find_slot(all, id) : NULL;
    struct fs_watcher *w = slot ? slot->watcher : NULL;

    if (!w || !takes_out)
        return w ? fs_watcher_ref(w) : NULL;
    *slot = (struct slot){0};
    return w;
}

/* ---- the methods ------------------------------------------------------------------------------ */

struct watch_params {
    const char *path;
    bool recursive;
    bool include_entry;
    bool allow_network_mounts;
};

static const struct jx_field watch_fields[] = {
    JX(struct watch_params, path, jx_str, JX_NULLABLE),
    JX(struct watch_params, recursive, jx_bool, JX_NULLABLE),
    JX_AS("includeEntry", struct watch_params, include_entry, jx_bool, JX_NULLABLE),
    JX(struct watch_params, include_entry, jx_bool, JX_NULLABLE),
    JX_AS("allowNetworkMounts", struct watch_params, allow_network_mounts, jx_bool, JX_NULLABLE),
    JX(struct watch_params, allow_network_mounts, jx_bool, JX_NULLABLE),
    {0},
};

/* On a network mount, inotify does not report changes that other machines make. */
static bool is_network_mount(int fd)
{
    static const unsigned types[] = {0x6969, 0xFF534D42, 0x517B, 0xFE534D42, 0x65735546};
    struct statfs st;

    if (fstatfs(fd, &st) < 0)
        return false;
    for (size_t i = 0; i < N_ELEMENTS(types); i++)
        if ((unsigned)st.f_type == types[i])
            return true;
    return false;
}

static int check_dir(const struct files_call *f, bool allow_network_mounts, struct err *e)
{
    _cleanup_close_ int fd = -1;
    struct err inner = {0};
    struct stat st;
    int r = fs_open(f->caller, f->path, O_PATH, 0, &fd, &inner);

    if (r < 0 && inner.sys == ENOENT)
        return fault_sys(e, ERR_NOT_FOUND, ENOENT, "path %s not found: stat %s", f->path, f->path);
    if (r < 0)
        return fault_of(e, ERR_INTERNAL, &inner, "error statting path %s: stat %s", f->path,
                        f->path);
    if (fstat(fd, &st) == 0 && !S_ISDIR(st.st_mode))
        return err_set(e, ERR_INVALID, "path %s not a directory", f->path);
    if (!allow_network_mounts && is_network_mount(fd))
        return err_set(e, ERR_INVALID, "cannot watch path on network filesystem: %s", f->path);
    return 0;
}

/* o: set but for the path and the fields of the request. */
static int new_watcher(const struct rpc_call *call, struct watchers_options *o,
                       struct fs_watcher **ret, struct err *e)
{
    _cleanup_files_call_ struct files_call f = {0};
    struct watch_params p = {.path = ""};
    int r = jx_decode_lax(call->params, watch_fields, &p, e);

    if (r == 0)
        r = files_call_init(&f, call->agent, e2b_headers(call)->user, p.path, e);
    if (r == 0)
        r = check_dir(&f, p.allow_network_mounts, e);
    if (r < 0)
        return r;
    o->path = f.path;
    o->recursive = p.recursive;
    o->include_entry = p.include_entry && !e2b_headers(call)->is_legacy;
    return watchers_watch(call->agent, f.caller, o, ret, e);
}

/* ---- WatchDir -------------------------------------------------------------------------------- */

struct watch_dir_stream {
    struct source source; /* first: the server has a pointer to it */
    struct fs_watcher *watcher;
    bool is_started;
};

static int stream_next(struct source *s, json_t **ret_msg, struct err *e)
{
    struct watch_dir_stream *x = (struct watch_dir_stream *)s;
    json_t *event = NULL;
    int r;

    if (!x->is_started) {
        x->is_started = true;
        *ret_msg = json_pack("{s:{}}", "start");
        return *ret_msg ? SOURCE_MESSAGE : err_oom(e);
    }
    r = watchers_next(x->watcher, &event, e);
    if (r == FS_WATCHER_NOTHING)
        return SOURCE_WAIT;
    if (r < 0)
        return r;
    *ret_msg = event ? json_pack("{s:o}", "filesystem", event) : json_pack("{s:{}}", "keepalive");
    return *ret_msg ? SOURCE_MESSAGE : err_oom(e);
}

static void stream_free(struct source *s)
{
    struct watch_dir_stream *x = (struct watch_dir_stream *)s;

    fs_watcher_drop(x->watcher);
    free(x);
}

static const struct source_ops stream_ops = {.next = stream_next, .free = stream_free};

static void wake_stream(void *arg)
{
    source_wake(arg);
}

int e2b_filesystem_watch_dir(const struct rpc_call *call, struct source **ret, struct err *e)
{
    struct watch_dir_stream *x = calloc(1, sizeof(*x));
    struct watchers_options o = {
        .keepalive_ms = e2b_headers(call)->keepalive_ms, .wake = wake_stream, .wake_arg = x};
    int r;

    if (!x)
        return err_oom(e);
    x->source.ops = &stream_ops;
    r = new_watcher(call, &o, &x->watcher, e);
    if (r < 0) {
        free(x);
        return r;
    }
    *ret = &x->source;
    return 0;
}

/* ---- CreateWatcher and those that ask -------------------------------------------------------- */

int e2b_filesystem_create_watcher(const struct rpc_call *call, json_t **ret, struct err *e)
{
    struct watchers *all = e2b_watchers(e2b_of(call->agent));
    struct watchers_options o = {0};
    struct fs_watcher *w = NULL;
    char id[WATCHERS_ID_BYTES];
    int r = new_watcher(call, &o, &w, e);

    if (r == 0)
        r = watchers_add_take(all, w, id, e);
    if (r < 0)
        return r;
    *ret = json_pack("{s:s}", "watcherId", id);
    return *ret ? 0 : err_oom(e);
}

struct id_params {
    const char *id;
};

static const struct jx_field id_fields[] = {
    JX_AS("watcherId", struct id_params, id, jx_str, JX_NULLABLE),
    JX_AS("watcher_id", struct id_params, id, jx_str, JX_NULLABLE),
    {0},
};

/* The watcher that the call names, as watchers_get() gives it. */
static int find_watcher(const struct rpc_call *call, bool takes_out, struct fs_watcher **ret,
                        struct err *e)
{
    struct id_params p = {.id = ""};
    int r = jx_decode_lax(call->params, id_fields, &p, e);

    if (r < 0)
        return r;
    *ret = watchers_get(e2b_watchers(e2b_of(call->agent)), p.id, takes_out);
    return *ret ? 0 : err_set(e, ERR_NOT_FOUND, "watcher with id %.64s not found", p.id);
}

int e2b_filesystem_get_watcher_events(const struct rpc_call *call, json_t **ret, struct err *e)
{
    _cleanup_json_ json_t *events = NULL;
    struct fs_watcher *w = NULL;
    int r = find_watcher(call, false, &w, e);

    if (r < 0)
        return r;
    r = watchers_take_all(w, &events, e);
    fs_watcher_unref(w);
    return r < 0 ? r : e2b_reply_list("events", events, ret, e);
}

int e2b_filesystem_remove_watcher(const struct rpc_call *call, json_t **ret, struct err *e)
{
    struct fs_watcher *w = NULL;
    int r = find_watcher(call, true, &w, e);

    if (r < 0)
        return r;
    fs_watcher_drop(w);
    return e2b_reply_empty(ret, e);
}
