/* filesystem_watch: the methods of filesystem.Filesystem that watch: as a stream, or by polling. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include "common/cleanup.h"
#include "common/io.h"
#include "common/jsonx.h"
#include "common/str.h"
#include "dialect/e2b/e2b.h"
#include "dialect/e2b/fault.h"
#include "dialect/e2b/file_paths.h"
#include "dialect/e2b/methods.h"
#include "dialect/e2b/watchers.h"
#include "agent.h"

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

int e2b_filesystem_get_watcher_events(const struct rpc_call *call, json_t **ret, struct err *e)
{
    struct id_params p = {.id = ""};
    _cleanup_json_ json_t *events = NULL;
    int r = jx_decode_lax(call->params, id_fields, &p, e);

    if (r == 0)
        r = watchers_take(e2b_watchers(e2b_of(call->agent)), p.id, &events, e);
    if (r < 0)
        return r;
    *ret = json_array_size(events) ? json_pack("{s:O}", "events", events) : json_object();
    return *ret ? 0 : err_oom(e);
}

int e2b_filesystem_remove_watcher(const struct rpc_call *call, json_t **ret, struct err *e)
{
    struct id_params p = {.id = ""};
    int r = jx_decode_lax(call->params, id_fields, &p, e);

    if (r == 0)
        r = watchers_remove(e2b_watchers(e2b_of(call->agent)), p.id, e);
    if (r < 0)
        return r;
    *ret = json_object();
    return *ret ? 0 : err_oom(e);
}
