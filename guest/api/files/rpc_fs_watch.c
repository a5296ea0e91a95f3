/* rpc_fs_watch: Fs/Watch. */
#include <stdlib.h>
#include <string.h>

#include "agent.h"
#include "api/rpc.h"
#include "common/cleanup.h"
#include "common/jsonx.h"
#include "common/str.h"
#include "fs/watcher.h"
#include "search/ignore.h"

#define QUEUE_MAX_BYTES (1024u * 1024) /* of events that wait for the client */
#define EVENT_BYTES 300                /* about the size of an event besides its paths */
#define BATCH_MS 10
#define EXCLUDE_MAX 100

struct watch_source {
    struct source source; /* first: the server has a pointer to it */
    struct fs_watcher *watcher;
    char *path; /* as asked */
    bool is_end_told;
};

/* ---- messages -------------------------------------------------------------------------------- */

static const char *const watch_type_words[] = {
    [FS_WATCH_CREATED] = "created",     [FS_WATCH_REMOVED] = "removed",
    [FS_WATCH_RENAMED] = "renamed",     [FS_WATCH_MODIFIED] = "modified",
    [FS_WATCH_WRITTEN] = "written",     [FS_WATCH_ATTRIBUTES] = "attributes",
    [FS_WATCH_UNWATCHED] = "unwatched", [FS_WATCH_OVERFLOW] = "overflow",
};

static json_t *watch_new_event(const struct fs_watch_event *ev)
{
    json_t *obj = json_pack("{s:s, s:o, s:b}", "type", watch_type_words[ev->type], "path",
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

static json_t *watch_new_overflow(bool is_slow)
{
    return json_pack("{s:{s:s, s:s}}", "event", "type", "overflow", "reason",
                     is_slow ? "slow_client" : "kernel");
}

static json_t *watch_new_started(const struct watch_source *x)
{
    const struct fs_watcher_start *start = fs_watcher_started(x->watcher);
    _cleanup_json_ json_t *unwatched = json_array();

    LIST_EACH (struct fs_watcher_event, link, u, &start->unwatched)
        (void)json_array_append_new(unwatched,
                                    json_pack("{s:o, s:o}", "path", jx_new_path(u->ev.path),
                                              "error", jx_new_error(u->ev.error)));
    return json_pack("{s:{s:o, s:I, s:O, s:I}}", "started", "path", jx_new_path(x->path),
                     "directories", (json_int_t)start->n_dirs, "unwatched", unwatched,
                     "unwatched_count", (json_int_t)start->n_unwatched);
}

/* ---- the source ------------------------------------------------------------------------------ */

static int watch_source_next(struct source *s, json_t **ret_msg, struct err *e)
{
    struct watch_source *x = (struct watch_source *)s;
    struct fs_watcher_event *event = NULL;
    int r = fs_watcher_next(x->watcher, &event, e);

    if (r < 0)
        return r;
    if (r == FS_WATCHER_NOTHING)
        return SOURCE_WAIT;
    if (r == FS_WATCHER_ENDED && x->is_end_told)
        return SOURCE_END;
    if (r == FS_WATCHER_STARTED) {
        *ret_msg = watch_new_started(x);
    } else if (r == FS_WATCHER_ENDED) {
        x->is_end_told = true;
        *ret_msg = json_pack("{s:{s:s}}", "end", "reason", fs_watcher_end(x->watcher));
    } else {
        *ret_msg = event->ev.type == FS_WATCH_OVERFLOW ? watch_new_overflow(event->is_slow)
                                                       : watch_new_event(&event->ev);
        fs_watcher_event_free(x->watcher, event);
    }
    return *ret_msg ? SOURCE_MESSAGE : err_oom(e);
}

static void watch_source_free(struct source *s)
{
    struct watch_source *x = (struct watch_source *)s;

    fs_watcher_drop(x->watcher);
    free(x->path);
    free(x);
}

static const struct source_ops watch_source_ops = {.next = watch_source_next,
                                                   .free = watch_source_free};

static void watch_source_wake(void *source)
{
    source_wake(source);
}

/* ---- the request ----------------------------------------------------------------------------- */

struct watch_params {
    char *path;
    const char *user;
    bool recursive;
    char **exclude;
};

static const struct jx_field fs_watch_fields[] = {
    JX(struct watch_params, path, jx_path, JX_REQUIRED),
    JX(struct watch_params, user, jx_str, JX_NULLABLE),
    JX(struct watch_params, recursive, jx_bool, 0),
    JX(struct watch_params, exclude, jx_strv, JX_NULLABLE),
    {0},
};

/* As ripgrep's -g '!GLOB': a line of a .gitignore at the watched directory. */
static int watch_compile_exclude(char **globs, struct rules **ret, struct err *e)
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

static bool watch_is_excluded(void *exclude, const char *rel, bool is_dir)
{
    return rules_match_globs(exclude, rel, strlen(rel), is_dir) == IGNORE_HIDE;
}

static void watch_free_exclude(void *exclude)
{
    rules_free(exclude);
}

static int watch_start(const struct rpc_call *call, const struct watch_params *p,
                       struct watch_source *x, struct err *e)
{
    const struct agent *a = call->agent;
    struct rules *exclude = NULL;
    struct fs_watcher_options o = {
        .loop = a->loop,
        .pool = a->pool,
        .recursive = p->recursive,
        .batch_ms = BATCH_MS,
        .queue_bytes = QUEUE_MAX_BYTES,
        .event_bytes = EVENT_BYTES,
        .arg_free = watch_free_exclude,
        .wake = watch_source_wake,
        .wake_arg = &x->source,
    };
    int r = watch_compile_exclude(p->exclude, &exclude, e);

    if (r < 0)
        return r;
    o.arg = exclude;
    o.is_excluded = exclude ? watch_is_excluded : NULL;
    r = fs_watcher_new(&o, &x->watcher, e);
    if (r < 0) {
        rules_free(exclude);
        return r;
    }
    return fs_watcher_start_later(x->watcher, a->root, p->user ? p->user : a->default_user,
                                  a->workdir, p->path, e);
}

int rpc_fs_watch(const struct rpc_call *call, struct source **ret, struct err *e)
{
    struct watch_source *x = calloc(1, sizeof(*x));
    struct watch_params p = {.recursive = true};
    int r;

    if (!x)
        return err_oom(e);
    x->source.ops = &watch_source_ops;
    r = jx_decode(call->params, fs_watch_fields, &p, e);
    if (r == 0)
        r = watch_start(call, &p, x, e);
    x->path = p.path;
    strv_free(p.exclude);
    if (r < 0)
        watch_source_free(&x->source);
    else
        *ret = &x->source;
    return r;
}
