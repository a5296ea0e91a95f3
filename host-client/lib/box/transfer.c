/* transfer: trees of files between this machine and a box: upload, download, sync. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/buf.h"
#include "common/cleanup.h"
#include "common/io.h"
#include "common/jsonx.h"
#include "common/path.h"
#include "common/str.h"
#include "lib/box/box.h"
#include "lib/project/project_archive.h"
#include "lib/util/context.h"
#include "lib/project/sync.h"
#include "lib/util/socket.h"

#define GONE_TRIES 10
#define GONE_PAUSE_MS 100

/* The error of a transfer, which is the cause if the box was stopped or removed meanwhile. The store
 * may have that only a moment after the guest agent has ended. */
static int explain_failure(struct bh_box *box, int64_t mark, int r, struct err *e)
{
    int gone = 0;

    if (box->url || (r != -ERR_UNAVAILABLE && r != -ERR_DATA_LOSS))
        return r;
    for (int i = 0; gone == 0 && i < GONE_TRIES; i++) {
        if (i && socket_wait_canceled(box->ctx->cancel_fd, GONE_PAUSE_MS))
            break;
        gone = agent_ops(box)->check_gone(box, mark, e);
    }
    return gone < 0 ? gone : r;
}

static char *join_lines(char *const *list)
{
    struct buf b;

    buf_init(&b, 16 * 1024 * 1024);
    for (; list && *list; list++)
        if (buf_addf(&b, NULL, "%s\n", *list) < 0)
            break;
    return b.len ? buf_take(&b) : NULL;
}

static int upload_to_box(struct bh_box *box, const struct bh_upload_options *o,
                         struct bh_upload_result *ret, struct err *e)
{
    _cleanup_free_ char *dest = NULL;
    _cleanup_close_ int held = -1;
    struct upload_request req = {.ctx = box->ctx,
                                 .source = o->source,
                                 .git = o->git ? o->git : "as-is",
                                 .as = o->as,
                                 .with_secrets = o->with_secrets};
    struct upload_result done = {0};
    int64_t mark;
    int r;

    if (!o->source || !*o->source)
        return err_field(e, ERR_INVALID, "source", "source is required");
    r = upload_check(o->source, e);
    if (r < 0)
        return err_at(e, r, "source");
    r = agent_begin_on_path(box, o->dest && *o->dest ? o->dest : ".", &req.client, &dest, e);
    mark = agent_ops(box)->get_mark(box);
    if (r == 0)
        r = box_hold(box, &held, e);
    if (r < 0)
        return r;
    req.dest = dest;
    r = explain_failure(box, mark, upload_run(&req, &done, e), e);
    if (r == 0 && ret) {
        ret->files = done.files;
        ret->bytes = done.bytes;
        ret->left_out = join_lines(done.left_out);
    }
    upload_result_done(&done);
    return r;
}

int bh_upload(struct bh_box *box, const struct bh_upload_options *opts,
              struct bh_upload_result *ret_result, struct bh_error *err)
{
    struct bh_upload_options o;
    struct err e = {0};
    int r = options_copy(&o, sizeof(o), opts, &e);

    if (r == 0)
        r = upload_to_box(box, &o, ret_result, &e);
    return ctx_fail(err, r, &e);
}

static int stat_type(struct client *c, const char *path, bool follow, mode_t *ret, struct err *e)
{
    static const struct {
        const char *name;
        mode_t type;
    } types[] = {{"file", S_IFREG}, {"directory", S_IFDIR}, {"symlink", S_IFLNK}};
    _cleanup_json_ json_t *params =
        json_pack("{s:o, s:b}", "path", jx_new_path(path), "follow", (int)follow);
    _cleanup_json_ json_t *reply = NULL;
    const char *word;
    int r = params ? client_call(c, RPC_fs_stat, params, 0, &reply, e) : err_oom(e);

    if (r < 0)
        return r;
    word = json_string_value(json_object_get(reply, "type"));
    for (size_t i = 0; i < N_ELEMENTS(types); i++) {
        if (str_eq(word, types[i].name)) {
            *ret = types[i].type;
            return 0;
        }
    }
    return err_field(e, ERR_INVALID, "path", "'%s' is neither a file, a directory nor a link",
                     path);
}

/* As in the agent's archives: a link to a directory stands for that directory, any other link
 * for itself. */
static int find_type(struct client *c, const char *path, mode_t *ret, struct err *e)
{
    mode_t type, behind = S_IFLNK;
    int r = stat_type(c, path, false, &type, e);

    if (r == 0 && type == S_IFLNK)
        (void)stat_type(c, path, true, &behind, NULL); /* a dangling link is no error */
    if (r == 0)
        *ret = behind == S_IFDIR ? S_IFDIR : type;
    return r;
}

int bh_download(struct bh_box *box, const char *path, const char *local_dir, struct bh_error *err)
{
    _cleanup_free_ char *full = NULL;
    _cleanup_free_ char *clean = NULL;
    _cleanup_close_ int held = -1;
    struct client *c = NULL;
    struct fetch f = {.to = {.dir = local_dir}};
    mode_t type = 0;
    struct err e = {0};
    int r = agent_begin_on_path(box, path, &c, &full, &e);
    int64_t mark = agent_ops(box)->get_mark(box);

    if (r == 0)
        r = box_hold(box, &held, &e);
    if (r == 0)
        r = find_type(c, full, &type, &e);
    if (r == 0) {
        clean = path_clean(full);
        r = clean ? io_mkdir_p(local_dir, 0755, &e) : err_oom(&e);
        (void)err_at(&e, r, "dir");
    }
    if (r == 0) {
        /* A directory goes below its own name, as with cp -r. A file is the only entry
         * accepted. */
        if (type != S_IFDIR)
            f.to.only = path_name(clean);
        else if (strcmp(clean, "/") != 0)
            f.to.prefix = path_name(clean);
        f.to.only_type = type;
        f.path = full;
        r = explain_failure(box, mark, fetch_run(c, &f, &e), &e);
        if (r == -ERR_DATA_LOSS)
            (void)err_at(&e, r, "path");
    }
    return ctx_fail(err, r, &e);
}

static int check_local_dir(const struct bh_sync_options *o, char **ret, struct err *e)
{
    struct stat st;
    int r;

    if (!o->local || !*o->local)
        return err_field(e, ERR_INVALID, "local", "local is required");
    if (o->to_local && !o->dry_run) {
        r = io_mkdir_p(o->local, 0755, e);
        if (r < 0)
            return err_at(e, r, "local");
    }
    *ret = realpath(o->local, NULL);
    if (!*ret || stat(*ret, &st) < 0)
        return err_at(e, err_sys(e, errno, "the directory '%s'", o->local), "local");
    return S_ISDIR(st.st_mode)
               ? 0
               : err_field(e, ERR_INVALID, "local", "'%s' is not a directory", o->local);
}

static int sync_trees(struct bh_box *box, const struct bh_sync_options *o,
                      struct bh_sync_result *ret, struct err *e)
{
    _cleanup_free_ char *local = NULL, *full = NULL, *remote = NULL;
    _cleanup_close_ int held = -1;
    struct sync_result done = {0};
    struct sync_request req = {.ctx = box->ctx,
                               .box_id = box->row.id,
                               .to_local = o->to_local,
                               .dry_run = o->dry_run,
                               .delete_extra = o->delete_extra,
                               .checksum = o->checksum,
                               .with_git = o->with_git,
                               .with_secrets = o->with_secrets,
                               .max_files = o->max_files,
                               .excludes = o->excludes,
                               .change = o->change,
                               .change_arg = o->change_arg};
    int64_t mark;
    int r = check_local_dir(o, &local, e);

    if (r == 0)
        r = agent_begin_on_path(box, o->remote && *o->remote ? o->remote : ".", &req.client, &full,
                                e);
    mark = agent_ops(box)->get_mark(box);
    if (r == 0)
        r = box_hold(box, &held, e);
    if (r < 0)
        return r;
    remote = path_clean(full);
    if (!remote)
        return err_oom(e);
    req.local = local;
    req.remote = remote;
    r = explain_failure(box, mark, sync_run(&req, &done, e), e);
    if (r == 0 && ret) {
        ret->sent = done.sent;
        ret->sent_bytes = done.sent_bytes;
        ret->removed = done.removed;
        ret->touched = done.touched;
        ret->unchanged = done.unchanged;
        ret->kept = done.kept;
    }
    return r;
}

int bh_sync(struct bh_box *box, const struct bh_sync_options *opts,
            struct bh_sync_result *ret_result, struct bh_error *err)
{
    struct bh_sync_options o;
    struct err e = {0};
    int r = options_copy(&o, sizeof(o), opts, &e);

    if (r == 0)
        r = sync_trees(box, &o, ret_result, &e);
    return ctx_fail(err, r, &e);
}
