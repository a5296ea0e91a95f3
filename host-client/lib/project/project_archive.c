#include "lib/project/project_archive.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/buf.h"
#include "common/cleanup.h"
#include "common/clock.h"
#include "common/io.h"
#include "common/jsonx.h"
#include "common/path.h"
#include "common/str.h"
#include "lib/project/gitfiles.h"
#include "lib/project/sync_list.h"
#include "lib/util/beneath.h"
#include "lib/util/archive_lib.h"

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

/* An archive replaces a link; a PUT writes through it. */
static bool is_replaceable(struct client *c, const char *path)
{
    _cleanup_json_ json_t *params = json_pack("{s:o}", "path", jx_new_path(path));
    _cleanup_json_ json_t *reply = NULL;
    struct err e = {0};
    int r = params ? client_call(c, RPC_fs_stat, params, 0, &reply, &e) : err_oom(&e);

    if (r < 0)
        return r == -ERR_NOT_FOUND;
    return str_eq(json_string_value(json_object_get(reply, "type")), "file");
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
    if (!path || asprintf(&query, "mode=%04o&fresh=true%s%s", (unsigned)(st->st_mode & 0777),
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

/* ---- the stream ---- */

#define CHUNK_BYTES (64 * 1024)
#define PROGRESS_STEP_BYTES (1024 * 1024)

struct upload_stream {
    struct bh_ctx *ctx;
    struct gitfiles *files;
    struct archive *archive;
    struct archive_entry *entry;
    struct buf out;    /* produced, not yet taken */
    size_t out_taken;  /* taken of out */
    struct err failed; /* error of the write callback */
    int fd;            /* the large file being sent, or -1 */
    int64_t left;      /* bytes left of it */
    char *name;        /* its name */
    char *small;       /* UPLOAD_SMALL_BYTES */
    bool is_finished;
    uint64_t done, reported;
};

static la_ssize_t take_output(struct archive *a, void *arg, const void *data, size_t len)
{
    struct upload_stream *s = arg;

    (void)a;
    return buf_add(&s->out, data, len, &s->failed) < 0 ? -1 : (la_ssize_t)len;
}

static int archive_failed(struct upload_stream *s, struct err *e)
{
    const char *why = archive_error_string(s->archive);

    if (s->failed.code)
        return err_set(e, (enum err_code)s->failed.code, "%s", s->failed.message);
    return err_set(e, ERR_INTERNAL, "packing the upload: %s", why ? why : "libarchive failed");
}

/* Names are bytes, whatever the locale. */
static int open_upload_archive(struct upload_stream *s, struct err *e)
{
    (void)archive_write_set_format_pax(s->archive);
    if (archive_write_add_filter_zstd(s->archive) != ARCHIVE_OK ||
        archive_write_set_options(s->archive, "zstd:compression-level=3,pax:hdrcharset=BINARY") !=
            ARCHIVE_OK ||
        archive_write_set_bytes_per_block(s->archive, 0) != ARCHIVE_OK ||
        archive_write_open(s->archive, s, NULL, take_output, NULL) != ARCHIVE_OK)
        return archive_failed(s, e);
    return 0;
}

int upload_stream_new(struct bh_ctx *ctx, struct gitfiles *files, struct upload_stream **ret,
                      struct err *e)
{
    struct upload_stream *s;
    int r = archive_lib_load(e);

    if (r < 0)
        return r;
    s = calloc(1, sizeof(*s));
    if (!s)
        return err_oom(e);
    s->ctx = ctx;
    s->files = files;
    s->fd = -1;
    buf_init(&s->out, UPLOAD_OUT_BYTES);
    s->archive = archive_write_new();
    s->entry = archive_entry_new();
    s->small = malloc(UPLOAD_SMALL_BYTES);
    r = s->archive && s->entry && s->small ? open_upload_archive(s, e) : err_oom(e);
    if (r < 0) {
        s = upload_stream_free(s);
        return r;
    }
    *ret = s;
    return 0;
}

struct upload_stream *upload_stream_free(struct upload_stream *s)
{
    if (!s)
        return NULL;
    if (s->archive)
        (void)archive_write_free(s->archive);
    if (s->entry)
        archive_entry_free(s->entry);
    fd_close(s->fd);
    buf_done(&s->out);
    free(s->name);
    free(s->small);
    free(s);
    return NULL;
}

static int write_header(struct upload_stream *s, const char *name, const struct stat *st,
                        const char *target, int64_t size, struct err *e)
{
    struct archive_entry *a = archive_entry_clear(s->entry);

    archive_entry_copy_pathname(a, name);
    archive_entry_set_filetype(a, st->st_mode & S_IFMT);
    archive_entry_set_perm(a, st->st_mode & 0777);
    archive_entry_set_mtime(a, st->st_mtim.tv_sec, st->st_mtim.tv_nsec);
    archive_entry_set_size(a, size);
    if (target)
        archive_entry_copy_symlink(a, target);
    if (archive_write_header(s->archive, a) < ARCHIVE_WARN)
        return archive_failed(s, e);
    return 0;
}

static int write_data(struct upload_stream *s, const char *data, size_t len, struct err *e)
{
    if (len && archive_write_data(s->archive, data, len) != (la_ssize_t)len)
        return archive_failed(s, e);
    s->done += len;
    if (s->done - s->reported >= PROGRESS_STEP_BYTES) {
        ctx_progress(s->ctx, "upload", s->done, s->files->bytes, false, "uploading");
        s->reported = s->done;
    }
    return 0;
}

static int send_link(struct upload_stream *s, int fd, const char *name, const struct stat *st,
                     struct err *e)
{
    char target[4097];
    ssize_t n = readlinkat(fd, "", target, sizeof(target) - 1);

    if (n < 0)
        return err_at(e, err_sys(e, errno, "read '%s'", name), name);
    target[n] = '\0';
    return write_header(s, name, st, target, 0, e);
}

/* The header has the size of the bytes that were read, which is right even while the file is
 * being written. */
static int send_small(struct upload_stream *s, int fd, const char *name, const struct stat *st,
                      struct err *e)
{
    size_t len;
    int r = io_read_full(fd, s->small, UPLOAD_SMALL_BYTES, &len, e);

    if (r < 0)
        return err_at(e, err_wrap(e, r, "'%s'", name), name);
    r = write_header(s, name, st, NULL, (int64_t)len, e);
    return r < 0 ? r : write_data(s, s->small, len, e);
}

/* Writes the header; later calls send the bytes, a piece each. */
static int begin_large(struct upload_stream *s, int *fd, const char *name, const struct stat *st,
                       struct err *e)
{
    int r = write_header(s, name, st, NULL, st->st_size, e);

    if (r < 0)
        return r;
    free(s->name);
    s->name = strdup(name);
    if (!s->name)
        return err_oom(e);
    s->left = st->st_size;
    s->fd = TAKE_FD(*fd);
    return 0;
}

/* A file that has moved, or that a link hides now, counts as never listed. */
static bool is_gone(int sys)
{
    return sys == ENOENT || sys == ENOTDIR || sys == ELOOP;
}

static int send_file(struct upload_stream *s, const struct gitfiles_entry *en, struct err *e)
{
    _cleanup_close_ int fd = beneath_open(s->files->roots[en->root], en->path, O_RDONLY);
    struct stat st;

    if (fd < 0)
        return is_gone(errno) ? 0 : err_at(e, err_sys(e, errno, "read '%s'", en->name), en->name);
    if (fstat(fd, &st) < 0)
        return err_sys(e, errno, "stat '%s'", en->name);
    if (!S_ISREG(st.st_mode))
        return 0; /* its type has changed since it was listed */
    if (st.st_size <= UPLOAD_SMALL_BYTES)
        return send_small(s, fd, en->name, &st, e);
    return begin_large(s, &fd, en->name, &st, e);
}

static int send_entry(struct upload_stream *s, const struct gitfiles_entry *en, struct err *e)
{
    /* O_PATH first: only a regular file may be opened for reading. */
    _cleanup_close_ int fd = beneath_open(s->files->roots[en->root], en->path, O_PATH);
    struct stat st;

    if (fd < 0)
        return is_gone(errno) ? 0 : err_at(e, err_sys(e, errno, "open '%s'", en->name), en->name);
    if (fstat(fd, &st) < 0)
        return err_sys(e, errno, "stat '%s'", en->name);
    if (S_ISREG(st.st_mode))
        return send_file(s, en, e);
    if (S_ISLNK(st.st_mode))
        return send_link(s, fd, en->name, &st, e);
    return S_ISDIR(st.st_mode) ? write_header(s, en->name, &st, NULL, 0, e) : 0;
}

static int send_next(struct upload_stream *s, struct err *e)
{
    struct gitfiles_entry en;
    int r = gitfiles_next(s->files, &en, e);

    if (r > 0)
        return send_entry(s, &en, e);
    if (r < 0)
        return r;
    s->is_finished = true;
    return archive_write_close(s->archive) == ARCHIVE_OK ? 0 : archive_failed(s, e);
}

static int send_piece(struct upload_stream *s, struct err *e)
{
    size_t want = s->left < CHUNK_BYTES ? (size_t)s->left : CHUNK_BYTES;
    size_t len;
    int r = io_read_full(s->fd, s->small, want, &len, e);

    if (r < 0)
        return err_at(e, err_wrap(e, r, "'%s'", s->name), s->name);
    if (len < want)
        return err_field(e, ERR_ABORTED, s->name, "'%s' became shorter while it was read", s->name);
    s->left -= (int64_t)len;
    if (!s->left)
        fd_close(TAKE_FD(s->fd));
    return write_data(s, s->small, len, e);
}

int64_t upload_stream_read(void *stream, char *out, size_t max, struct err *e)
{
    struct upload_stream *s = stream;
    size_t n;
    int r = 0;

    while (s->out_taken == s->out.len && !s->is_finished && r == 0) {
        buf_clear(&s->out);
        s->out_taken = 0;
        r = s->fd >= 0 ? send_piece(s, e) : send_next(s, e);
    }
    if (r < 0)
        return r;
    n = s->out.len - s->out_taken;
    if (n > max)
        n = max;
    if (n)
        memcpy(out, s->out.data + s->out_taken, n);
    s->out_taken += n;
    return (int64_t)n;
}

/* ---- out of a box ---- */

/* A socket pair: unlike a pipe's, its writer gets no SIGPIPE when the reader gives up. */
struct flow {
    int read_fd;
    int write_fd;
    const struct fetch *f;
    int r;
    struct err e;
};

static void *extract_thread(void *arg)
{
    struct flow *flow = arg;

    flow->r = extract_stream(flow->read_fd, &flow->f->to, &flow->e);
    fd_close(TAKE_FD(flow->read_fd)); /* the writer gets an error and stops */
    return NULL;
}

static int to_thread(void *arg, const char *data, size_t len)
{
    const struct flow *flow = arg;

    while (len) {
        ssize_t n = send(flow->write_fd, data, len, MSG_NOSIGNAL);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return 1;
        data += n;
        len -= (size_t)n;
    }
    return 0;
}

static int receive_archive(struct client *c, struct flow *flow, struct err *e)
{
    const struct fetch *f = flow->f;
    const char *query = f->to.is_zstd ? "format=tar.zst" : "format=tar";

    if (f->names)
        return client_post_archive(c, f->path, query, f->names, f->names_bytes, to_thread, flow, 0,
                                   e);
    return client_get_archive(c, f->path, query, to_thread, flow, 0, e);
}

int fetch_run(struct client *c, const struct fetch *f, struct err *e)
{
    struct flow flow = {.f = f};
    pthread_t thread;
    int p[2];
    int r;

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, p) < 0)
        return err_sys(e, errno, "socketpair");
    flow.read_fd = p[0];
    flow.write_fd = p[1];
    r = pthread_create(&thread, NULL, extract_thread, &flow);
    if (r) {
        fd_close(p[0]);
        fd_close(p[1]);
        return err_sys(e, r, "start a thread");
    }
    r = receive_archive(c, &flow, e);
    fd_close(TAKE_FD(flow.write_fd));
    (void)pthread_join(thread, NULL);
    if (flow.r < 0 && (r == 0 || r == -ERR_CANCELED)) {
        if (e)
            *e = flow.e;
        return flow.r;
    }
    return r;
}
