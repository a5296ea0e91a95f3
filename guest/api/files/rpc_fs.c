/* The Fs service. JSON to guest/fs and back; guest/fs has the contracts. */
#include <stdlib.h>
#include <string.h>

#include "agent.h"
#include "api/files/files.h"
#include "api/rpc.h"
#include "common/cleanup.h"
#include "common/jsonx.h"
#include "common/str.h"
#include "fs/change.h"
#include "fs/edit.h"
#include "fs/stat.h"
#include "fs/watcher.h"
#include "fs/write.h"
#include "search/ignore.h"

/* The common fields of the requests, and the options of the module's call. */
struct fs_request {
    struct fs_caller *caller;
    const char *user;
    char *path; /* owned, as `to` */
    char *to;   /* of Move and Copy; the cursor of List */
    struct fs_mode mode;
    bool parents;
    const char *owner, *group;
    json_t *edits;
    union {
        struct fs_stat_options stat;
        struct fs_list_options list;
        struct fs_move_options move;
        struct fs_copy_options copy;
        struct fs_remove_options remove;
        struct fs_attrs attrs;
        struct fs_edit_options edit;
    };
};

#define FIELD(name, member, fn, flags) JX_AS(name, struct fs_request, member, fn, flags)
#define PATH_FIELDS FIELD("path", path, jx_path, JX_REQUIRED), USER_FIELD
#define USER_FIELD FIELD("user", user, jx_str, JX_NULLABLE)
#define FROM_TO_FIELDS \
    FIELD("from", path, jx_path, JX_REQUIRED), FIELD("to", to, jx_path, JX_REQUIRED), USER_FIELD
#define CONDITION_FIELDS(prefix, condition) \
    FIELD(prefix "if_match", condition.if_match, jx_str, JX_NULLABLE), \
        FIELD(prefix "if_none_match", condition.if_none_match, jx_str, JX_NULLABLE)

static void fs_request_done(struct fs_request *p)
{
    fs_caller_unref(p->caller);
    free(p->path);
    free(p->to);
}
#define _cleanup_fs_request_ _cleanup_(fs_request_done)

static int fs_request_read(const struct rpc_call *call, const struct jx_field *fields,
                           struct fs_request *p, struct err *e)
{
    int r = jx_decode(call->params, fields, p, e);

    return r < 0 ? r : fs_json_caller(call, p->user, &p->caller, e);
}

/* ---- Stat, List ------------------------------------------------------------------------------ */

static const struct jx_field stat_fields[] = {
    PATH_FIELDS,
    FIELD("follow", stat.follow, jx_bool, 0),
    FIELD("etag", stat.etag, jx_bool, 0),
    {0},
};

static int reply_stat(const struct fs_request *p, const struct fs_stat_options *o, json_t **ret,
                      struct err *e)
{
    struct fs_info i;
    int r = fs_stat(p->caller, p->path, o, &i, e);

    if (r < 0)
        return r;
    r = rpc_reply_take(fs_json_info(&i), ret, e);
    fs_info_done(&i);
    return r;
}

int rpc_fs_stat(const struct rpc_call *call, json_t **ret, struct err *e)
{
    _cleanup_fs_request_ struct fs_request p = {0};
    int r = fs_request_read(call, stat_fields, &p, e);

    return r < 0 ? r : reply_stat(&p, &p.stat, ret, e);
}

static int jx_no_hidden(json_t *v, void *out, struct err *e)
{
    bool hidden;
    int r = jx_bool(v, &hidden, e);

    if (r == 0)
        *(bool *)out = !hidden;
    return r;
}

static int jx_sort(json_t *v, void *out, struct err *e)
{
    static const char *const words[] = {[FS_LIST_BY_PATH] = "path",
                                        [FS_LIST_BY_NAME] = "name",
                                        [FS_LIST_BY_SIZE] = "size",
                                        [FS_LIST_BY_MTIME] = "mtime",
                                        NULL};

    if (jx_one_of(v, words, out, NULL) == 0)
        return 0;
    return err_set(e, ERR_INVALID, "must be \"path\", \"name\", \"size\" or \"mtime\"");
}

static const struct jx_field list_fields[] = {
    PATH_FIELDS,
    FIELD("depth", list.depth, jx_u32, 0),
    FIELD("limit", list.limit, jx_u32, 0),
    FIELD("cursor", to, jx_path, JX_NULLABLE),
    FIELD("etag", list.etag, jx_bool, 0),
    FIELD("hidden", list.no_hidden, jx_no_hidden, 0),
    FIELD("sort", list.sort, jx_sort, JX_NULLABLE),
    FIELD("reverse", list.reverse, jx_bool, 0),
    FIELD("directories_first", list.directories_first, jx_bool, 0),
    {0},
};

static json_t *new_listing(const struct fs_listing *l)
{
    _cleanup_json_ json_t *entries = json_array();

    for (size_t i = 0; i < l->n_entries; i++)
        if (json_array_append_new(entries, fs_json_info(&l->entries[i])) < 0)
            return NULL;
    return json_pack("{s:O, s:o}", "entries", entries, "next",
                     l->next ? jx_new_path(l->next) : json_null());
}

int rpc_fs_list(const struct rpc_call *call, json_t **ret, struct err *e)
{
    _cleanup_fs_request_ struct fs_request p = {.list = {.depth = 1, .limit = FS_LIST_DEFAULT}};
    struct fs_listing l;
    int r = fs_request_read(call, list_fields, &p, e);

    p.list.after = p.to;
    if (r == 0)
        r = fs_list(p.caller, p.path, &p.list, &l, e);
    if (r < 0)
        return r;
    r = rpc_reply_take(new_listing(&l), ret, e);
    fs_listing_done(&l);
    return r;
}

/* ---- MakeDir, Move, Copy, Remove ------------------------------------------------------------- */

static const struct jx_field make_dir_fields[] = {
    PATH_FIELDS,
    FIELD("mode", mode, jx_fs_mode, JX_NULLABLE),
    FIELD("parents", parents, jx_bool, 0),
    {0},
};

int rpc_fs_make_dir(const struct rpc_call *call, json_t **ret, struct err *e)
{
    _cleanup_fs_request_ struct fs_request p = {.mode = {.mode = FS_NEW_DIR_MODE}, .parents = true};
    bool created = false;
    int r = fs_request_read(call, make_dir_fields, &p, e);

    if (r == 0)
        r = fs_make_dir(p.caller, p.path, p.mode.mode, p.parents, &created, e);
    return r < 0 ? r : rpc_reply_take(json_pack("{s:b}", "created", created), ret, e);
}

static const struct jx_field move_fields[] = {
    FROM_TO_FIELDS,
    CONDITION_FIELDS("", move.condition),
    CONDITION_FIELDS("to_", move.to_condition),
    FIELD("overwrite", move.overwrite, jx_bool, 0),
    FIELD("parents", move.make_parents, jx_bool, 0),
    {0},
};

int rpc_fs_move(const struct rpc_call *call, json_t **ret, struct err *e)
{
    _cleanup_fs_request_ struct fs_request p = {0};
    int r = fs_request_read(call, move_fields, &p, e);

    if (r == 0)
        r = fs_move(p.caller, p.path, p.to, &p.move, e);
    return r < 0 ? r : rpc_reply_take(json_object(), ret, e);
}

static const struct jx_field copy_fields[] = {
    FROM_TO_FIELDS,
    CONDITION_FIELDS("", copy.condition),
    CONDITION_FIELDS("to_", copy.to_condition),
    FIELD("recursive", copy.recursive, jx_bool, 0),
    FIELD("overwrite", copy.overwrite, jx_bool, 0),
    FIELD("parents", copy.make_parents, jx_bool, 0),
    {0},
};

int rpc_fs_copy(const struct rpc_call *call, json_t **ret, struct err *e)
{
    _cleanup_fs_request_ struct fs_request p = {0};
    struct fs_copy_result res = {0};
    int r = fs_request_read(call, copy_fields, &p, e);

    if (r == 0)
        r = fs_copy(p.caller, p.path, p.to, &p.copy, &res, e);
    return r < 0 ? r
                 : rpc_reply_take(json_pack("{s:I, s:I}", "entries", (json_int_t)res.entries,
                                            "bytes", (json_int_t)res.bytes),
                                  ret, e);
}

static const struct jx_field remove_fields[] = {
    PATH_FIELDS,
    CONDITION_FIELDS("", remove.condition),
    FIELD("recursive", remove.recursive, jx_bool, 0),
    FIELD("missing_ok", remove.missing_ok, jx_bool, 0),
    {0},
};

int rpc_fs_remove(const struct rpc_call *call, json_t **ret, struct err *e)
{
    _cleanup_fs_request_ struct fs_request p = {0};
    uint64_t removed = 0;
    int r = fs_request_read(call, remove_fields, &p, e);

    if (r == 0)
        r = fs_remove(p.caller, p.path, &p.remove, &removed, e);
    return r < 0 ? r : rpc_reply_take(json_pack("{s:I}", "removed", (json_int_t)removed), ret, e);
}

/* ---- SetAttr --------------------------------------------------------------------------------- */

static const struct jx_field set_attr_fields[] = {
    PATH_FIELDS,
    FIELD("mode", attrs.mode, jx_fs_mode, JX_NULLABLE),
    FIELD("owner", owner, jx_str, JX_NULLABLE),
    FIELD("group", group, jx_str, JX_NULLABLE),
    FIELD("mtime", attrs.mtime, jx_fs_time, JX_NULLABLE),
    CONDITION_FIELDS("", attrs.condition),
    FIELD("follow", attrs.follow, jx_bool, 0),
    {0},
};

int rpc_fs_set_attr(const struct rpc_call *call, json_t **ret, struct err *e)
{
    _cleanup_fs_request_ struct fs_request p = {.attrs = {.follow = true}};
    struct fs_attrs *a = &p.attrs;
    int r = fs_request_read(call, set_attr_fields, &p, e);

    a->set_uid = p.owner != NULL;
    a->set_gid = p.group != NULL;
    if (r == 0 && p.owner)
        r = fs_uid_from_name(p.owner, &a->uid, e);
    if (r == 0 && p.group)
        r = fs_gid_from_name(p.group, &a->gid, e);
    if (r == 0)
        r = fs_set_attr(p.caller, p.path, a, e);
    if (r < 0)
        return r;
    return reply_stat(&p, &(struct fs_stat_options){.follow = a->follow}, ret, e);
}

/* ---- Edit ------------------------------------------------------------------------------------ */

static const struct jx_field edit_fields[] = {
    PATH_FIELDS,
    CONDITION_FIELDS("", edit.condition),
    FIELD("edits", edits, jx_array, JX_REQUIRED),
    FIELD("create", edit.create, jx_bool, 0),
    FIELD("dry_run", edit.dry_run, jx_bool, 0),
    {0},
};

_Static_assert(JX_ARE_BYTES(struct fs_edit, old_data, old_len), "decoded as jx_bytes");
_Static_assert(JX_ARE_BYTES(struct fs_edit, new_data, new_len), "decoded as jx_bytes");

static const struct jx_field edit_one_fields[] = {
    JX_AS("old", struct fs_edit, old_data, jx_bytes, JX_REQUIRED),
    JX_AS("new", struct fs_edit, new_data, jx_bytes, JX_REQUIRED),
    JX(struct fs_edit, all, jx_bool, 0),
    JX(struct fs_edit, count, jx_u32, 0),
    {0},
};

/* "old.text" within the third edit is "edits[2].old.text". */
static int name_edit(const struct err *inner, size_t i, struct err *e)
{
    char field[ERR_FIELD_BYTES];

    (void)snprintf(field, sizeof(field), "edits[%zu]%s%s", i, inner->field[0] ? "." : "",
                   inner->field);
    return err_field(e, (enum err_code)inner->code, field, "edits[%zu]: %s", i, inner->message);
}

static int decode_edits(json_t *array, struct fs_edit *v, struct err *e)
{
    json_t *one;
    size_t i;

    json_array_foreach (array, i, one) {
        struct err inner = {0};
        int r = jx_decode(one, edit_one_fields, &v[i], &inner);

        if (r == 0 && json_is_integer(json_object_get(one, "count")) && !v[i].count)
            r = err_field(&inner, ERR_INVALID, "count", "field 'count' is at least 1");
        if (r < 0)
            return name_edit(&inner, i, e);
    }
    return 0;
}

static json_t *new_edit_reply(const struct fs_edit_result *res)
{
    return json_pack("{s:I, s:b, s:b, s:I, s:s, s:o}", "replaced", (json_int_t)res->replaced,
                     "created", res->created, "in_place", res->in_place, "bytes",
                     (json_int_t)res->bytes, "etag", res->etag, "diff",
                     res->diff ? jx_new_bytes(res->diff, res->diff_len) : json_null());
}

static int edit_file(const struct rpc_call *call, struct fs_request *p, json_t **ret, struct err *e)
{
    struct fs_edit_result res;
    int r = fs_json_caller(call, p->user, &p->caller, e);

    if (r == 0)
        r = fs_edit_file(p->caller, p->path, &p->edit, &res, e);
    if (r < 0)
        return r;
    r = rpc_reply_take(new_edit_reply(&res), ret, e);
    free(res.diff);
    return r;
}

int rpc_fs_edit(const struct rpc_call *call, json_t **ret, struct err *e)
{
    _cleanup_fs_request_ struct fs_request p = {0};
    struct fs_edit *edits;
    size_t n;
    int r = jx_decode(call->params, edit_fields, &p, e);

    if (r < 0)
        return r;
    n = json_array_size(p.edits);
    if (n == 0 || n > FS_EDIT_MAX_EDITS)
        return err_field(e, ERR_INVALID, "edits", "from 1 to %d edits", FS_EDIT_MAX_EDITS);
    edits = calloc(n, sizeof(*edits));
    if (!edits)
        return err_oom(e);
    p.edit.edits = edits;
    p.edit.n_edits = n;
    r = decode_edits(p.edits, edits, e);
    if (r == 0)
        r = edit_file(call, &p, ret, e);
    for (size_t i = 0; i < n; i++) {
        free((char *)(uintptr_t)edits[i].old_data);
        free((char *)(uintptr_t)edits[i].new_data);
    }
    free(edits);
    return r;
}

/* ==== Watch ==== */

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

static int watch_compile_exclude(char **globs, struct rules **ret, struct err *e)
{
    struct rules *rules = NULL;
    struct err why = {0};

    if (strv_len(globs) > EXCLUDE_MAX)
        return err_field(e, ERR_INVALID, "exclude", "at most %d globs", EXCLUDE_MAX);
    if (rules_add_globs(&rules, globs, RULES_EXCLUDES, "exclude", &why) < 0) {
        rules_free(rules);
        return err_field(e, (enum err_code)why.code, "exclude", "%s", why.message);
    }
    *ret = rules;
    return 0;
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
        .wake = source_wake,
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
