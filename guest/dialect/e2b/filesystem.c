/* filesystem: the methods of filesystem.Filesystem that look at files and move them about. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/cleanup.h"
#include "common/jsonx.h"
#include "common/path.h"
#include "dialect/e2b/e2b.h"
#include "dialect/e2b/entry.h"
#include "dialect/e2b/file_paths.h"
#include "dialect/e2b/proto.h"
#include "fs/change.h"
#include "fs/walk.h"
#include "agent.h"

#define LIST_MAX_DEPTH 1000     /* directories that are open at once */
#define LIST_MAX_ENTRIES 100000 /* in one reply, which has no pages: about 400 bytes each */
#define LIST_MAX_BYTES (64u * 1024 * 1024) /* of names, paths, targets and metadata in it */

struct path_params {
    const char *path;
    uint32_t depth;
};

static const struct jx_field path_fields[] = {
    JX(struct path_params, path, jx_str, JX_NULLABLE),
    {0},
};

static const struct jx_field list_fields[] = {
    JX(struct path_params, path, jx_str, JX_NULLABLE),
    JX(struct path_params, depth, proto_jx_u32, JX_NULLABLE),
    {0},
};

static int decode_path(const struct rpc_call *call, const struct jx_field *fields,
                       struct path_params *p, struct files_call *f, struct err *e)
{
    int r;

    *p = (struct path_params){.path = ""};
    r = jx_decode_lax(call->params, fields, p, e);
    return r < 0 ? r : files_call_init(f, call->agent, e2b_headers(call)->user, p->path, e);
}

static int reply_entry(const struct rpc_call *call, const struct files_call *f, json_t **ret,
                       struct err *e)
{
    struct fs_owners owners = {0};
    json_t *entry = NULL;
    int r = entry_stat(f->caller, f->path, &owners, &entry, e);

    if (r < 0)
        return r;
    if (e2b_headers(call)->is_legacy)
        entry_simplify(entry);
    *ret = json_pack("{s:o}", "entry", entry);
    return *ret ? 0 : err_oom(e);
}

int e2b_filesystem_stat(const struct rpc_call *call, json_t **ret, struct err *e)
{
    _cleanup_files_call_ struct files_call f = {0};
    struct path_params p;
    int r = decode_path(call, path_fields, &p, &f, e);

    return r < 0 ? r : reply_entry(call, &f, ret, e);
}

/* ---- MakeDir --------------------------------------------------------------------------------- */

/* 0: nothing is there. */
static int refuse_existing(const struct files_call *f, struct err *e)
{
    _cleanup_close_ int fd = -1;
    struct err inner = {0};
    struct stat st;
    int r = fs_open(f->caller, f->path, O_PATH, 0, &fd, &inner);

    if (r < 0 && inner.sys == ENOENT)
        return 0;
    if (r < 0)
        return fault_of(e, ERR_INTERNAL, &inner, "error getting file info: stat %s", f->path);
    if (fstat(fd, &st) < 0)
        return fault_sys(e, ERR_INTERNAL, errno, "error getting file info: stat %s", f->path);
    if (S_ISDIR(st.st_mode))
        return err_set(e, ERR_EXISTS, "directory already exists: %s", f->path);
    return err_set(e, ERR_INVALID, "path already exists but it is not a directory: %s", f->path);
}

int e2b_filesystem_make_dir(const struct rpc_call *call, json_t **ret, struct err *e)
{
    _cleanup_files_call_ struct files_call f = {0};
    struct path_params p;
    int r = decode_path(call, path_fields, &p, &f, e);

    if (r == 0)
        r = refuse_existing(&f, e);
    if (r == 0)
        r = dirs_make(f.caller, f.path, &f.owner, e);
    return r < 0 ? r : reply_entry(call, &f, ret, e);
}

/* ---- Move ------------------------------------------------------------------------------------ */

struct move_params {
    const char *source;
    const char *destination;
};

static const struct jx_field move_fields[] = {
    JX(struct move_params, source, jx_str, JX_NULLABLE),
    JX(struct move_params, destination, jx_str, JX_NULLABLE),
    {0},
};

/* Copies if a rename is not possible, where envd fails. */
static int move_entry(const struct files_call *to, const char *source, struct err *e)
{
    const struct fs_move_options o = {.overwrite = true};
    struct err inner = {0};
    int r = fs_move(to->caller, source, to->path, &o, &inner);

    if (r == 0)
        return 0;
    if (inner.sys == ENOENT)
        return fault_sys(e, ERR_NOT_FOUND, ENOENT, "source file not found: rename %s %s", source,
                         to->path);
    if (inner.sys || inner.code != ERR_DENIED)
        return err_set(e, ERR_INTERNAL, "error renaming: %s", inner.message);
    if (e)
        *e = inner;
    return r;
}

int e2b_filesystem_move(const struct rpc_call *call, json_t **ret, struct err *e)
{
    struct move_params p = {.source = "", .destination = ""};
    _cleanup_files_call_ struct files_call f = {0};
    _cleanup_free_ char *source = NULL;
    int r = jx_decode_lax(call->params, move_fields, &p, e);

    if (r == 0)
        r = files_call_init(&f, call->agent, e2b_headers(call)->user, p.destination, e);
    if (r == 0)
        r = files_call_path(&f, p.source, &source, e);
    if (r == 0)
        r = dirs_make_parents(f.caller, f.path, &f.owner, e);
    if (r == 0)
        r = move_entry(&f, source, e);
    return r < 0 ? r : reply_entry(call, &f, ret, e);
}

/* ---- Remove ---------------------------------------------------------------------------------- */

int e2b_filesystem_remove(const struct rpc_call *call, json_t **ret, struct err *e)
{
    const struct fs_remove_options o = {.recursive = true, .missing_ok = true};
    _cleanup_files_call_ struct files_call f = {0};
    struct path_params p;
    struct err inner = {0};
    uint64_t removed;
    int r = decode_path(call, path_fields, &p, &f, e);

    if (r < 0)
        return r;
    r = fs_remove(f.caller, f.path, &o, &removed, &inner);
    if (r < 0 && inner.sys != ENOTDIR && inner.sys != ENOENT)
        return err_set(e, inner.sys || inner.code != ERR_DENIED ? ERR_INTERNAL : ERR_DENIED,
                       "error removing file or directory: %s", inner.message);
    return e2b_reply_empty(ret, e);
}

/* ---- ListDir --------------------------------------------------------------------------------- */

static int open_dir(const struct files_call *f, int *ret_fd, struct err *e)
{
    _cleanup_close_ int fd = -1;
    struct err inner = {0};
    struct stat st;
    int r = fs_open(f->caller, f->path, O_PATH, 0, &fd, &inner);

    if (r < 0 && inner.sys == ENOENT)
        return fault_sys(e, ERR_NOT_FOUND, ENOENT, "path not found: lstat %s", f->path);
    if (r < 0 && inner.sys == ELOOP)
        return err_set(e, ERR_PRECONDITION, "cyclic symlink or chain >255 links at \"%s\"",
                       f->path);
    if (r < 0)
        return fault_of(e, ERR_INTERNAL, &inner, "error resolving symlink: lstat %s", f->path);
    if (fstat(fd, &st) == 0 && !S_ISDIR(st.st_mode))
        return err_set(e, ERR_INVALID, "path is not a directory: %s", f->path);
    r = fs_open(f->caller, f->path, O_RDONLY | O_DIRECTORY, 0, ret_fd, &inner);
    return r < 0 ? fault_of(e, ERR_INTERNAL, &inner, "error reading directory %s: open", f->path)
                 : 0;
}

struct listed {
    bool is_legacy; /* the client */
    struct fs_owners owners;
    json_t *entries;
    size_t bytes;
};

/* The size of its texts. Any user who may write there chooses names and metadata. */
static size_t entry_weight(json_t *v)
{
    size_t sum = json_string_length(v);
    const char *name;
    json_t *value;

    json_object_foreach (v, name, value)
        sum += strlen(name) + entry_weight(value);
    return sum;
}

static int add_entry(const struct files_call *f, const struct fs_walk_item *it, struct listed *list,
                     struct err *e)
{
    _cleanup_free_ char *joined = path_join(f->path, it->path);
    _cleanup_free_ char *shown = joined ? path_clean(joined) : NULL;
    json_t *entry = NULL;
    int r;

    if (!shown)
        return err_oom(e);
    if (it->kind == FS_WALK_ERROR && it->error.sys == ENOENT)
        return 0; /* gone meanwhile */
    if (it->kind == FS_WALK_ERROR)
        return err_set(e, ERR_INTERNAL, "error reading directory %s: %s", f->path,
                       it->error.message);
    if (json_array_size(list->entries) == LIST_MAX_ENTRIES)
        return err_set(e, ERR_EXHAUSTED, "%s has more than %d entries: ask for less depth", f->path,
                       LIST_MAX_ENTRIES);
    r = entry_at(f->caller, it->dirfd, it->name, shown, &list->owners, &entry, e);
    if (r < 0)
        return r == -ERR_NOT_FOUND ? 0 : r;
    if (list->is_legacy)
        entry_simplify(entry);
    list->bytes += entry_weight(entry);
    if (json_array_append_new(list->entries, entry) < 0)
        return err_oom(e);
    if (list->bytes > LIST_MAX_BYTES)
        return err_set(e, ERR_EXHAUSTED,
                       "the entries of %s have more than %u bytes: ask for less depth", f->path,
                       LIST_MAX_BYTES);
    return 0;
}

static int list_below(const struct files_call *f, uint32_t depth, struct listed *listed,
                      struct err *e)
{
    const struct fs_walk_options o = {.max_depth = depth < LIST_MAX_DEPTH ? depth : LIST_MAX_DEPTH,
                                      .deep_is_error = depth > LIST_MAX_DEPTH};
    const struct fs_walk_item *it;
    struct fs_walk *w = NULL;
    int fd = -1;
    int r = open_dir(f, &fd, e);

    if (r == 0)
        r = fs_walk_new_take(fd, &o, &w, e);
    while (r == 0 && (r = fs_walk_next(w, &it, e)) > 0)
        r = it->depth == 0 || it->kind == FS_WALK_LEAVE ? 0 : add_entry(f, it, listed, e);
    fs_walk_free(w);
    return r;
}

int e2b_filesystem_list_dir(const struct rpc_call *call, json_t **ret, struct err *e)
{
    _cleanup_files_call_ struct files_call f = {0};
    _cleanup_json_ json_t *entries = NULL;
    struct listed listed = {.is_legacy = e2b_headers(call)->is_legacy};
    struct path_params p;
    int r = decode_path(call, list_fields, &p, &f, e);

    if (r < 0)
        return r;
    listed.entries = entries = json_array();
    r = entries ? list_below(&f, p.depth ? p.depth : 1, &listed, e) : err_oom(e);
    return r < 0 ? r : e2b_reply_list("entries", entries, ret, e);
}
