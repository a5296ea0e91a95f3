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

static int object_reply(json_t *v, json_t **ret, struct err *e)
{
    if (!v)
        return err_oom(e);
    *ret = v;
    return 0;
}

/* ---- Stat, List ------------------------------------------------------------------------------ */

struct stat_params {
    char *path;
    const char *user;
    struct fs_stat_options o;
};

static const struct jx_field stat_fields[] = {
    JX(struct stat_params, path, jx_path, JX_REQUIRED),
    JX(struct stat_params, user, jx_str, JX_NULLABLE),
    JX_AS("follow", struct stat_params, o.follow, jx_bool, 0),
    JX_AS("etag", struct stat_params, o.etag, jx_bool, 0),
    {0},
};

static int reply_stat(struct fs_caller *c, const char *path, const struct fs_stat_options *o,
                      json_t **ret, struct err *e)
{
    struct fs_info i;
    int r = fs_stat(c, path, o, &i, e);

    if (r < 0)
        return r;
    r = object_reply(fs_json_info(&i), ret, e);
    fs_info_done(&i);
    return r;
}

int rpc_fs_stat(const struct rpc_call *call, json_t **ret, struct err *e)
{
    _cleanup_fs_caller_ struct fs_caller *c = NULL;
    struct stat_params p = {0};
    int r;

    r = jx_decode(call->params, stat_fields, &p, e);
    if (r == 0)
        r = fs_json_caller(call, p.user, &c, e);
    if (r == 0)
        r = reply_stat(c, p.path, &p.o, ret, e);
    free(p.path);
    return r;
}

struct list_params {
    char *path;
    const char *user;
    char *cursor;
    struct fs_list_options o;
};

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
                                        [FS_LIST_BY_MTIME] = "mtime"};

    for (size_t i = 0; i < N_ELEMENTS(words); i++)
        if (str_eq(json_string_value(v), words[i])) {
            *(enum fs_list_sort *)out = (enum fs_list_sort)i;
            return 0;
        }
    return err_set(e, ERR_INVALID, "must be \"path\", \"name\", \"size\" or \"mtime\"");
}

static const struct jx_field list_fields[] = {
    JX(struct list_params, path, jx_path, JX_REQUIRED),
    JX(struct list_params, user, jx_str, JX_NULLABLE),
    JX_AS("depth", struct list_params, o.depth, jx_u32, 0),
    JX_AS("limit", struct list_params, o.limit, jx_u32, 0),
    JX(struct list_params, cursor, jx_path, JX_NULLABLE),
    JX_AS("etag", struct list_params, o.etag, jx_bool, 0),
    JX_AS("hidden", struct list_params, o.no_hidden, jx_no_hidden, 0),
    JX_AS("sort", struct list_params, o.sort, jx_sort, JX_NULLABLE),
    JX_AS("reverse", struct list_params, o.reverse, jx_bool, 0),
    JX_AS("directories_first", struct list_params, o.directories_first, jx_bool, 0),
    {0},
};

static json_t *new_listing(const struct fs_listing *l)
{
    json_t *entries = json_array();
    json_t *obj;

    for (size_t i = 0; entries && i < l->n_entries; i++) {
        if (json_array_append_new(entries, fs_json_info(&l->entries[i])) < 0) {
            json_decref(entries);
            return NULL;
        }
    }
    obj = entries ? json_pack("{s:o}", "entries", entries) : NULL;
    if (obj && json_object_set_new(obj, "next", l->next ? jx_new_path(l->next) : json_null()) < 0) {
        json_decref(obj);
        return NULL;
    }
    return obj;
}

static int reply_list(struct fs_caller *c, const struct list_params *p, json_t **ret, struct err *e)
{
    struct fs_listing l;
    int r = fs_list(c, p->path, &p->o, &l, e);

    if (r < 0)
        return r;
    r = object_reply(new_listing(&l), ret, e);
    fs_listing_done(&l);
    return r;
}

int rpc_fs_list(const struct rpc_call *call, json_t **ret, struct err *e)
{
    _cleanup_fs_caller_ struct fs_caller *c = NULL;
    struct list_params p = {.o = {.depth = 1, .limit = FS_LIST_DEFAULT}};
    int r;

    r = jx_decode(call->params, list_fields, &p, e);
    p.o.after = p.cursor;
    if (r == 0)
        r = fs_json_caller(call, p.user, &c, e);
    if (r == 0)
        r = reply_list(c, &p, ret, e);
    free(p.path);
    free(p.cursor);
    return r;
}

/* ---- MakeDir, Move, Copy, Remove ------------------------------------------------------------- */

struct make_dir_params {
    char *path;
    const char *user;
    struct fs_mode mode;
    bool parents;
};

static const struct jx_field make_dir_fields[] = {
    JX(struct make_dir_params, path, jx_path, JX_REQUIRED),
    JX(struct make_dir_params, user, jx_str, JX_NULLABLE),
    JX(struct make_dir_params, mode, jx_fs_mode, JX_NULLABLE),
    JX(struct make_dir_params, parents, jx_bool, 0),
    {0},
};

int rpc_fs_make_dir(const struct rpc_call *call, json_t **ret, struct err *e)
{
    _cleanup_fs_caller_ struct fs_caller *c = NULL;
    struct make_dir_params p = {.mode = {.mode = FS_NEW_DIR_MODE}, .parents = true};
    bool created = false;
    int r;

    r = jx_decode(call->params, make_dir_fields, &p, e);
    if (r == 0)
        r = fs_json_caller(call, p.user, &c, e);
    if (r == 0)
        r = fs_make_dir(c, p.path, p.mode.mode, p.parents, &created, e);
    if (r == 0)
        r = object_reply(json_pack("{s:b}", "created", created), ret, e);
    free(p.path);
    return r;
}

struct move_params {
    char *from;
    char *to;
    const char *user;
    struct fs_move_options o;
};

static const struct jx_field move_fields[] = {
    JX(struct move_params, from, jx_path, JX_REQUIRED),
    JX(struct move_params, to, jx_path, JX_REQUIRED),
    JX(struct move_params, user, jx_str, JX_NULLABLE),
    JX_AS("if_match", struct move_params, o.condition.if_match, jx_str, JX_NULLABLE),
    JX_AS("if_none_match", struct move_params, o.condition.if_none_match, jx_str, JX_NULLABLE),
    JX_AS("to_if_match", struct move_params, o.to_condition.if_match, jx_str, JX_NULLABLE),
    JX_AS("to_if_none_match", struct move_params, o.to_condition.if_none_match, jx_str,
          JX_NULLABLE),
    JX_AS("overwrite", struct move_params, o.overwrite, jx_bool, 0),
    JX_AS("parents", struct move_params, o.make_parents, jx_bool, 0),
    {0},
};

int rpc_fs_move(const struct rpc_call *call, json_t **ret, struct err *e)
{
    _cleanup_fs_caller_ struct fs_caller *c = NULL;
    struct move_params p = {0};
    int r;

    r = jx_decode(call->params, move_fields, &p, e);
    if (r == 0)
        r = fs_json_caller(call, p.user, &c, e);
    if (r == 0)
        r = fs_move(c, p.from, p.to, &p.o, e);
    if (r == 0)
        r = object_reply(json_object(), ret, e);
    free(p.from);
    free(p.to);
    return r;
}

struct copy_params {
    char *from;
    char *to;
    const char *user;
    struct fs_copy_options o;
};

static const struct jx_field copy_fields[] = {
    JX(struct copy_params, from, jx_path, JX_REQUIRED),
    JX(struct copy_params, to, jx_path, JX_REQUIRED),
    JX(struct copy_params, user, jx_str, JX_NULLABLE),
    JX_AS("if_match", struct copy_params, o.condition.if_match, jx_str, JX_NULLABLE),
    JX_AS("if_none_match", struct copy_params, o.condition.if_none_match, jx_str, JX_NULLABLE),
    JX_AS("to_if_match", struct copy_params, o.to_condition.if_match, jx_str, JX_NULLABLE),
    JX_AS("to_if_none_match", struct copy_params, o.to_condition.if_none_match, jx_str,
          JX_NULLABLE),
    JX_AS("recursive", struct copy_params, o.recursive, jx_bool, 0),
    JX_AS("overwrite", struct copy_params, o.overwrite, jx_bool, 0),
    JX_AS("parents", struct copy_params, o.make_parents, jx_bool, 0),
    {0},
};

int rpc_fs_copy(const struct rpc_call *call, json_t **ret, struct err *e)
{
    _cleanup_fs_caller_ struct fs_caller *c = NULL;
    struct copy_params p = {0};
    struct fs_copy_result res = {0};
    int r;

    r = jx_decode(call->params, copy_fields, &p, e);
    if (r == 0)
        r = fs_json_caller(call, p.user, &c, e);
    if (r == 0)
        r = fs_copy(c, p.from, p.to, &p.o, &res, e);
    if (r == 0)
        r = object_reply(json_pack("{s:I, s:I}", "entries", (json_int_t)res.entries, "bytes",
                                   (json_int_t)res.bytes),
                         ret, e);
    free(p.from);
    free(p.to);
    return r;
}

struct remove_params {
    char *path;
    const char *user;
    struct fs_remove_options o;
};

static const struct jx_field remove_fields[] = {
    JX(struct remove_params, path, jx_path, JX_REQUIRED),
    JX(struct remove_params, user, jx_str, JX_NULLABLE),
    JX_AS("if_match", struct remove_params, o.condition.if_match, jx_str, JX_NULLABLE),
    JX_AS("if_none_match", struct remove_params, o.condition.if_none_match, jx_str, JX_NULLABLE),
    JX_AS("recursive", struct remove_params, o.recursive, jx_bool, 0),
    JX_AS("missing_ok", struct remove_params, o.missing_ok, jx_bool, 0),
    {0},
};

int rpc_fs_remove(const struct rpc_call *call, json_t **ret, struct err *e)
{
    _cleanup_fs_caller_ struct fs_caller *c = NULL;
    struct remove_params p = {0};
    uint64_t removed = 0;
    int r;

    r = jx_decode(call->params, remove_fields, &p, e);
    if (r == 0)
        r = fs_json_caller(call, p.user, &c, e);
    if (r == 0)
        r = fs_remove(c, p.path, &p.o, &removed, e);
    if (r == 0)
        r = object_reply(json_pack("{s:I}", "removed", (json_int_t)removed), ret, e);
    free(p.path);
    return r;
}

/* ---- SetAttr --------------------------------------------------------------------------------- */

struct set_attr_params {
    char *path;
    const char *user;
    struct fs_mode mode;
    const char *owner;
    const char *group;
    struct fs_time mtime;
    struct fs_attrs o;
};

static const struct jx_field set_attr_fields[] = {
    JX(struct set_attr_params, path, jx_path, JX_REQUIRED),
    JX(struct set_attr_params, user, jx_str, JX_NULLABLE),
    JX(struct set_attr_params, mode, jx_fs_mode, JX_NULLABLE),
    JX(struct set_attr_params, owner, jx_str, JX_NULLABLE),
    JX(struct set_attr_params, group, jx_str, JX_NULLABLE),
    JX(struct set_attr_params, mtime, jx_fs_time, JX_NULLABLE),
    JX_AS("if_match", struct set_attr_params, o.condition.if_match, jx_str, JX_NULLABLE),
    JX_AS("if_none_match", struct set_attr_params, o.condition.if_none_match, jx_str, JX_NULLABLE),
    JX_AS("follow", struct set_attr_params, o.follow, jx_bool, 0),
    {0},
};

static int set_attr(struct fs_caller *c, struct set_attr_params *p, json_t **ret, struct err *e)
{
    struct fs_attrs *a = &p->o;
    int r = p->owner ? fs_uid_from_name(p->owner, &a->uid, e) : 0;

    a->set_mode = p->mode.is_set;
    a->mode = p->mode.mode;
    a->set_uid = p->owner != NULL;
    a->set_gid = p->group != NULL;
    a->set_mtime = p->mtime.is_set;
    a->mtime = p->mtime.t;
    if (r == 0 && p->group)
        r = fs_gid_from_name(p->group, &a->gid, e);
    if (r == 0)
        r = fs_set_attr(c, p->path, a, e);
    if (r < 0)
        return r;
    return reply_stat(c, p->path, &(struct fs_stat_options){.follow = a->follow}, ret, e);
}

int rpc_fs_set_attr(const struct rpc_call *call, json_t **ret, struct err *e)
{
    _cleanup_fs_caller_ struct fs_caller *c = NULL;
    struct set_attr_params p = {.o = {.follow = true}};
    int r;

    r = jx_decode(call->params, set_attr_fields, &p, e);
    if (r == 0)
        r = fs_json_caller(call, p.user, &c, e);
    if (r == 0)
        r = set_attr(c, &p, ret, e);
    free(p.path);
    return r;
}

/* ---- Edit ------------------------------------------------------------------------------------ */

struct edit_params {
    char *path;
    const char *user;
    json_t *edits;
    struct fs_edit_options o;
};

static const struct jx_field edit_fields[] = {
    JX(struct edit_params, path, jx_path, JX_REQUIRED),
    JX(struct edit_params, user, jx_str, JX_NULLABLE),
    JX_AS("if_match", struct edit_params, o.condition.if_match, jx_str, JX_NULLABLE),
    JX_AS("if_none_match", struct edit_params, o.condition.if_none_match, jx_str, JX_NULLABLE),
    JX(struct edit_params, edits, jx_array, JX_REQUIRED),
    JX_AS("create", struct edit_params, o.create, jx_bool, 0),
    JX_AS("dry_run", struct edit_params, o.dry_run, jx_bool, 0),
    {0},
};

struct edit_one {
    struct jx_bytes old;
    struct jx_bytes new;
    bool all;
    uint32_t count;
};

static const struct jx_field edit_one_fields[] = {
    JX(struct edit_one, old, jx_bytes, JX_REQUIRED),
    JX(struct edit_one, new, jx_bytes, JX_REQUIRED),
    JX(struct edit_one, all, jx_bool, 0),
    JX(struct edit_one, count, jx_u32, 0),
    {0},
};

struct edit_list {
    struct edit_one *owned;
    struct fs_edit *v;
    size_t n;
};

static void edit_list_done(struct edit_list *l)
{
    for (size_t i = 0; i < l->n; i++) {
        jx_bytes_done(&l->owned[i].old);
        jx_bytes_done(&l->owned[i].new);
    }
    free(l->owned);
    free(l->v);
}

/* "old.text" within the third edit is "edits[2].old.text". */
static int name_edit(const struct err *inner, size_t i, struct err *e)
{
    char field[ERR_FIELD_BYTES];

    (void)snprintf(field, sizeof(field), "edits[%zu]%s%s", i, inner->field[0] ? "." : "",
                   inner->field);
    return err_field(e, (enum err_code)inner->code, field, "edits[%zu]: %s", i, inner->message);
}

static int decode_edits(json_t *array, struct edit_list *l, struct err *e)
{
    size_t n = json_array_size(array);

    if (n == 0 || n > FS_EDIT_MAX_EDITS)
        return err_field(e, ERR_INVALID, "edits", "from 1 to %d edits", FS_EDIT_MAX_EDITS);
    l->owned = calloc(n, sizeof(*l->owned));
    l->v = calloc(n, sizeof(*l->v));
    if (!l->owned || !l->v)
        return err_oom(e);
    for (; l->n < n;) {
        struct edit_one *one = &l->owned[l->n++];
        struct err inner = {0};

        if (jx_decode(json_array_get(array, l->n - 1), edit_one_fields, one, &inner) < 0)
            return name_edit(&inner, l->n - 1, e);
        if (json_is_integer(json_object_get(json_array_get(array, l->n - 1), "count")) &&
            !one->count) {
            (void)err_field(&inner, ERR_INVALID, "count", "field 'count' is at least 1");
            return name_edit(&inner, l->n - 1, e);
        }
        l->v[l->n - 1] = (struct fs_edit){.old_data = one->old.data,
                                          .old_len = one->old.len,
                                          .new_data = one->new.data,
                                          .new_len = one->new.len,
                                          .all = one->all,
                                          .count = one->count};
    }
    return 0;
}

static json_t *new_edit_reply(const struct fs_edit_result *res)
{
    json_t *obj = json_pack("{s:I, s:b, s:b, s:I, s:s}", "replaced", (json_int_t)res->replaced,
                            "created", res->created, "in_place", res->in_place, "bytes",
                            (json_int_t)res->bytes, "etag", res->etag);
    json_t *diff = res->diff ? jx_new_bytes(res->diff, res->diff_len) : json_null();

    if (obj && json_object_set_new(obj, "diff", diff) == 0)
        return obj;
    json_decref(obj);
    return NULL;
}

static int reply_edit(struct fs_caller *c, const struct edit_params *p, json_t **ret, struct err *e)
{
    struct fs_edit_result res;
    int r = fs_edit_file(c, p->path, &p->o, &res, e);

    if (r < 0)
        return r;
    r = object_reply(new_edit_reply(&res), ret, e);
    free(res.diff);
    return r;
}

int rpc_fs_edit(const struct rpc_call *call, json_t **ret, struct err *e)
{
    _cleanup_fs_caller_ struct fs_caller *c = NULL;
    struct edit_params p = {0};
    struct edit_list l = {0};
    int r;

    r = jx_decode(call->params, edit_fields, &p, e);
    if (r == 0)
        r = decode_edits(p.edits, &l, e);
    p.o.edits = l.v;
    p.o.n_edits = l.n;
    if (r == 0)
        r = fs_json_caller(call, p.user, &c, e);
    if (r == 0)
        r = reply_edit(c, &p, ret, e);
    edit_list_done(&l);
    free(p.path);
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
