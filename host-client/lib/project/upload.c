#include "lib/project/upload.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/path.h"
#include "common/str.h"
#include "lib/project/gitfiles.h"
#include "lib/project/upload_stream.h"

#define MAX_NAMED 20

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
