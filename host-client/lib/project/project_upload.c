#include "lib/project/project_upload.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/jsonx.h"
#include "common/path.h"
#include "common/str.h"
#include "lib/project/gitfiles.h"
#include "lib/project/sync_list.h"
#include "lib/project/upload_stream.h"

#define MAX_NAMED 20
#define LARGE_FILE_BYTES (16 * 1024 * 1024) /* from here on an upload that goes on after a cut */

void upload_result_done(struct upload_result *r)
{
    if (!r)
        return;
    r->left_out = strv_free(r->left_out);
}

int upload_check(const char *source, struct err *e)
{
    struct stat st;

    if (stat(source, &st) < 0)
        return err_at(e, err_sys(e, errno, "the project '%s'", source), "project");
    if (!S_ISDIR(st.st_mode) && !S_ISREG(st.st_mode))
        return err_field(e, ERR_INVALID, "project", "'%s' is neither a directory nor a file",
                         source);
    if (access(source, S_ISDIR(st.st_mode) ? R_OK | X_OK : R_OK) < 0)
        return err_at(e, err_sys(e, errno, "the project '%s'", source), "project");
    return 0;
}

static int make_query(const struct upload_request *req, char **ret, struct err *e)
{
    int n = asprintf(ret, "mode=merge&any_ratio=true%s%s", req->user ? "&user=" : "",
                     req->user ? req->user : "");

    return n < 0 ? err_oom(e) : 0;
}

static void say_what_comes(const struct upload_request *req, const struct gitfiles *files)
{
    char size[32];

    (void)str_format_size(files->bytes, size, sizeof(size));
    ctx_progress(req->ctx, "upload", 0, files->bytes, false, "uploading %llu files, %s",
                 (unsigned long long)files->files, size);
}

/* Files kept back are reported, whoever listens. */
static void say_what_stays(const struct upload_request *req, const struct gitfiles *files)
{
    size_t n = strv_len(files->left_out);

    for (size_t i = 0; i < n && i < MAX_NAMED; i++)
        ctx_progress(req->ctx, "warning", 0, 0, true, "not uploaded, it looks like a secret: %s",
                     files->left_out[i]);
    if (n > MAX_NAMED)
        ctx_progress(req->ctx, "warning", 0, 0, true, "%zu more files that look like secrets",
                     n - MAX_NAMED);
    if (files->note)
        ctx_progress(req->ctx, "warning", 0, 0, true, "%s: %s", req->source, files->note);
}

static int send_files(const struct upload_request *req, struct gitfiles *files, struct err *e)
{
    struct upload_stream *stream = NULL;
    _cleanup_free_ char *query = NULL;
    _cleanup_free_ char *dest = path_clean(req->dest);
    int r = dest ? make_query(req, &query, e) : err_oom(e);

    if (r < 0)
        return r;
    r = upload_stream_new(req->ctx, files, &stream, e);
    if (r < 0)
        return r;
    say_what_stays(req, files);
    say_what_comes(req, files);
    r = client_put_archive(req->client, dest, query, upload_stream_read, stream,
                           req->deadline_mono_ms, NULL, e);
    upload_stream_free(stream);
    return r;
}

/* ---- one large file ---- */

struct large_file {
    const struct upload_request *req;
    uint64_t bytes;
    uint64_t reported;
};

static void report_sent(void *arg, uint64_t n_bytes)
{
    struct large_file *l = arg;

    if (n_bytes < l->reported)
        l->reported = n_bytes; /* the connection broke, and a part is sent again */
    if (n_bytes - l->reported < LARGE_FILE_BYTES / 4)
        return;
    ctx_progress(l->req->ctx, "upload", n_bytes, l->bytes, false, "uploading");
    l->reported = n_bytes;
}

/* A sparse file is smaller as a compressed archive. */
static bool is_large_file(const struct stat *st, const struct gitfiles *files)
{
    return S_ISREG(st->st_mode) && files->files == 1 && st->st_size >= LARGE_FILE_BYTES &&
           st->st_blocks >= st->st_size / 512 / 2;
}

/* An archive replaces a link, and each name of a file by itself. A PUT writes through both. */
static bool is_replaceable(struct client *c, const char *path)
{
    _cleanup_json_ json_t *params = json_pack("{s:o}", "path", jx_new_path(path));
    _cleanup_json_ json_t *reply = NULL;
    struct err e = {0};
    int r = params ? client_call(c, RPC_fs_stat, params, 0, &reply, &e) : err_oom(&e);

    if (r < 0)
        return r == -ERR_NOT_FOUND;
    return str_eq(json_string_value(json_object_get(reply, "type")), "file") &&
           json_integer_value(json_object_get(reply, "links")) == 1;
}

/* As an archive would leave it. The bytes are in place: a failure is not the upload's. */
static void set_time(struct client *c, const char *path, const struct timespec *mtime)
{
    char text[64];
    _cleanup_json_ json_t *params = NULL;

    sync_time_format(mtime, text, sizeof(text));
    params = json_pack("{s:o, s:s}", "path", jx_new_path(path), "mtime", text);
    (void)client_call(c, RPC_fs_set_attr, params, 0, NULL, NULL);
}

/* 0: sent; 1: this way does not work for the target, and nothing has changed. */
static int send_large_file(const struct upload_request *req, const struct gitfiles *files,
                           const char *source, const struct stat *st, struct err *e)
{
    _cleanup_free_ char *dest = path_clean(req->dest);
    _cleanup_free_ char *path = NULL;
    _cleanup_free_ char *query = NULL;
    _cleanup_close_ int fd = open(source, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    struct large_file l = {.req = req, .bytes = files->bytes};
    struct client_upload u = {.fd = fd,
                              .name = path_name(source),
                              .progress = report_sent,
                              .arg = &l,
                              .deadline_mono_ms = req->deadline_mono_ms};
    bool has_begun = false;
    int r;

    if (fd < 0)
        return err_sys(e, errno, "read '%s'", source);
    path = dest ? path_join(dest, req->as ? req->as : path_name(source)) : NULL;
    if (!path || asprintf(&query, "mode=%04o%s%s", (unsigned)(st->st_mode & 0777),
                          req->user ? "&user=" : "", req->user ? req->user : "") < 0)
        return err_oom(e);
    if (!is_replaceable(req->client, path))
        return 1;
    say_what_comes(req, files);
    u.path = path;
    u.query = query;
    r = client_upload(req->client, &u, &has_begun, e);
    if (r == 0)
        set_time(req->client, path, &st->st_mtim);
    return r == 0 || has_begun || r == -ERR_CANCELED ? r : 1;
}

int upload_run(const struct upload_request *req, struct upload_result *ret, struct err *e)
{
    _cleanup_free_ char *source = NULL;
    struct gitfiles_options o = {.ctx = req->ctx,
                                 .git = req->git ? req->git : "full",
                                 .as = req->as,
                                 .with_secrets = req->with_secrets,
                                 .deadline_mono_ms = req->deadline_mono_ms};
    struct gitfiles files = {0};
    struct stat st;
    int r = upload_check(req->source, e);

    if (r < 0)
        return r;
    source = realpath(req->source, NULL);
    if (!source || stat(source, &st) < 0)
        return err_at(e, err_sys(e, errno, "'%s'", req->source), "project");
    if (S_ISREG(st.st_mode))
        o.git = "as-is";
    o.source = source;
    r = gitfiles_list(&o, &files, e);
    if (r < 0)
        return r;
    r = is_large_file(&st, &files) ? send_large_file(req, &files, source, &st, e) : 1;
    if (r > 0)
        r = send_files(req, &files, e);
    if (r == 0) {
        ctx_progress(req->ctx, "upload", files.bytes, files.bytes, true, "uploaded %llu files",
                     (unsigned long long)files.files);
        if (ret) {
            *ret = (struct upload_result){
                .files = files.files, .bytes = files.bytes, .left_out = files.left_out};
            files.left_out = NULL;
        }
    }
    gitfiles_done(&files);
    return r;
}
