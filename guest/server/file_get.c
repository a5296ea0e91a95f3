/*
 * file_get: a file's bytes: whole or a range, only if changed, by sendfile where the disk is a
 * local one, else read ahead by a worker. Opening is a worker's as well.
 */
#include <inttypes.h>
#include <linux/magic.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/str.h"
#include "fs/open.h"
#include "server/feed.h"
#include "server/files.h"
#include "server/range.h"
#include "server/respond.h"

#include "common/banned.h"

struct file_get {
    _Atomic int refs; /* the request's and the worker's */
    _Atomic bool is_done;
    bool is_asked;
    char *user;
    char *cwd;
    int r;
    struct err error;
    bool has_file;
    bool is_local; /* sendfile does not wait for another machine or process */
    struct fs_file file;
};

static void get_unref(struct file_get *g)
{
    if (--g->refs > 0)
        return;
    if (g->has_file)
        fs_file_done(&g->file);
    free(g->user);
    free(g->cwd);
    free(g);
}

static bool is_local_disk(int fd)
{
    static const long types[] = {
        EXT4_SUPER_MAGIC, TMPFS_MAGIC,          OVERLAYFS_SUPER_MAGIC,
        XFS_SUPER_MAGIC,  BTRFS_SUPER_MAGIC,    RAMFS_MAGIC,
        SQUASHFS_MAGIC,   EROFS_SUPER_MAGIC_V1, F2FS_SUPER_MAGIC,
    };
    struct statfs st;

    if (fstatfs(fd, &st) < 0)
        return false;
    for (size_t i = 0; i < N_ELEMENTS(types); i++)
        if ((long)st.f_type == types[i])
            return true;
    return false;
}

static int get_begin(struct request *q, struct err *e)
{
    static const char *const known[] = {"user", "cwd", NULL};
    struct file_get *g = calloc(1, sizeof(*g));
    int r;

    if (!g)
        return err_oom(e);
    g->refs = 1;
    q->state = g;
    if (!*q->rest)
        return err_field(e, ERR_INVALID, "path", "a path is needed: /v1/files/{path}");
    r = files_check_query(q, known, e);
    if (r == 0)
        r = request_query(q, "user", &g->user, e);
    if (r == 0)
        r = request_query(q, "cwd", &g->cwd, e);
    return r;
}

static void open_file(struct request *q)
{
    struct file_get *g = q->state;
    struct fs_caller *c = NULL;

    g->r = files_caller_new(q, g->user, g->cwd, &c, &g->error);
    if (g->r == 0)
        g->r = fs_file_open(c, q->rest, true, &g->file, &g->error);
    if (g->r == 0) {
        g->has_file = true;
        g->is_local = is_local_disk(g->file.fd);
    }
    fs_caller_unref(c);
    g->is_done = true;
    request_wake(q);
    get_unref(g);
}

/* ---- bodies read by a worker ---- */

struct reader {
    int fd;
    uint64_t left; /* UINT64_MAX: to the end */
};

static int read_file(void *from, void *data, size_t size, size_t *ret_len, struct err *e)
{
    struct reader *r = from;
    ssize_t n;

    if (size > r->left)
        size = (size_t)r->left;
    n = size ? read(r->fd, data, size) : 0;
    if (n < 0)
        return err_sys(e, errno, "read");
    if (r->left != UINT64_MAX) {
        if (!n && r->left)
            return err_set(e, ERR_DATA_LOSS, "the file has become shorter");
        r->left -= (uint64_t)n;
    }
    *ret_len = (size_t)n;
    return 0;
}

static void close_file(void *from)
{
    struct reader *r = from;

    fd_close(r->fd);
    free(r);
}

static const struct feed_ops file_feed = {.read = read_file, .close = close_file};

static int worker_response(struct request *q, struct file_get *g, const struct range *range,
                           struct MHD_Response **ret, struct err *e)
{
    struct reader *reader = malloc(sizeof(*reader));
    bool is_sized = g->file.is_sized;

    if (!reader)
        return err_oom(e);
    *reader = (struct reader){.fd = fcntl(g->file.fd, F_DUPFD_CLOEXEC, 3),
                              .left = is_sized ? range->len : UINT64_MAX};
    if (reader->fd < 0 || (is_sized && lseek(reader->fd, (off_t)range->first, SEEK_SET) < 0)) {
        int sys = errno;

        close_file(reader);
        return err_sys(e, sys, "read");
    }
    return feed_response_take(q, is_sized ? range->len : MHD_SIZE_UNKNOWN, &file_feed, reader, ret,
                              e);
}

static int sendfile_response(struct file_get *g, const struct range *range,
                             struct MHD_Response **ret, struct err *e)
{
    int fd = fcntl(g->file.fd, F_DUPFD_CLOEXEC, 3);

    if (fd < 0)
        return err_sys(e, errno, "dup");
    *ret = MHD_create_response_from_fd_at_offset64(range->len, fd, range->first);
    if (!*ret) {
        fd_close(fd);
        return err_oom(e);
    }
    return 0;
}

/* ---- the reply ---- */

static int empty_response(struct MHD_Response **ret, struct err *e)
{
    *ret = MHD_create_response_from_buffer(0, (void *)"", MHD_RESPMEM_PERSISTENT);
    return *ret ? 0 : err_oom(e);
}

/* What the conditions make of it: 0 to go on, or the status to reply with. */
static int check_conditions(struct request *q, const struct file_get *g, struct err *e)
{
    const char *match = request_header(q, "If-Match");
    const char *none_match = request_header(q, "If-None-Match");

    if (match && !fs_etag_in_list(match, g->file.etag, false))
        return err_field(e, ERR_ABORTED, "if_match", "the file is not the expected one");
    if (none_match && fs_etag_in_list(none_match, g->file.etag, true))
        return MHD_HTTP_NOT_MODIFIED;
    return 0;
}

static const char *wanted_range(struct request *q, const struct file_get *g)
{
    const char *if_range = request_header(q, "If-Range");

    if (!g->file.is_sized || q->verb != VERB_GET)
        return NULL;
    if (if_range && (!g->file.etag[0] || !fs_etag_in_list(if_range, g->file.etag, false)))
        return NULL; /* a date, or another file by now: the whole of it */
    return request_header(q, "Range");
}

static void add_headers(const struct file_get *g, struct MHD_Response *response)
{
    char text[FS_ETAG_BYTES + 8];
    char date[RANGE_DATE_BYTES];

    if (g->file.etag[0]) {
        (void)snprintf(text, sizeof(text), "\"%s\"", g->file.etag);
        respond_add_header(response, "ETag", text);
    }
    range_format_date(g->file.st.st_mtim.tv_sec, date);
    respond_add_header(response, "Last-Modified", date);
    respond_add_header(response, "Accept-Ranges", g->file.is_sized ? "bytes" : "none");
    respond_add_header(response, "Content-Type", "application/octet-stream");
    respond_add_header(response, "Cache-Control", "no-cache");
    (void)snprintf(text, sizeof(text), "%04o", (unsigned)(g->file.st.st_mode & 07777));
    respond_add_header(response, "Bellhop-Mode", text);
}

static int reply_unsatisfiable(struct request *q, const struct file_get *g, struct err *e)
{
    struct err error = {0};
    char *text = NULL;
    char range[64];
    size_t len;
    struct MHD_Response *response;
    int r;

    (void)err_field(&error, ERR_RANGE, "Range", "the file has %" PRIu64 " bytes",
                    (uint64_t)g->file.st.st_size);
    r = respond_error_text(&error, &text, &len, e);
    if (r < 0)
        return r;
    response = MHD_create_response_from_buffer(len, text, MHD_RESPMEM_MUST_FREE);
    if (!response) {
        free(text);
        return err_oom(e);
    }
    (void)snprintf(range, sizeof(range), "bytes */%" PRIu64, (uint64_t)g->file.st.st_size);
    respond_add_header(response, "Content-Range", range);
    respond_add_header(response, "Content-Type", "application/json");
    return respond_queue(q, MHD_HTTP_RANGE_NOT_SATISFIABLE, response, e);
}

static int reply_file(struct request *q, struct file_get *g, struct err *e)
{
    struct range range = {.first = 0, .len = (uint64_t)g->file.st.st_size};
    struct MHD_Response *response = NULL;
    enum range_kind kind;
    char text[96];
    int status, r;

    status = check_conditions(q, g, e);
    if (status < 0)
        return status;
    kind = range_parse(wanted_range(q, g), (uint64_t)g->file.st.st_size, &range);
    if (!status && kind == RANGE_NONE)
        return reply_unsatisfiable(q, g, e);
    if (g->file.is_sized && !range.len)
        r = empty_response(&response, e);
    else if (g->file.is_sized && g->is_local)
        r = sendfile_response(g, &range, &response, e);
    else
        r = worker_response(q, g, &range, &response, e);
    if (r < 0)
        return r;
    add_headers(g, response);
    if (!status && kind == RANGE_PART) {
        status = MHD_HTTP_PARTIAL_CONTENT;
        (void)snprintf(text, sizeof(text), "bytes %" PRIu64 "-%" PRIu64 "/%" PRIu64, range.first,
                       range.first + range.len - 1, (uint64_t)g->file.st.st_size);
        respond_add_header(response, "Content-Range", text);
    }
    if (g->is_local && g->file.is_sized && q->verb != VERB_HEAD && status != MHD_HTTP_NOT_MODIFIED)
        q->bytes_out += range.len; /* what a worker reads is counted as it goes */
    return respond_queue(q, status ? status : MHD_HTTP_OK, response, e);
}

static int get_finish(struct request *q, struct err *e)
{
    struct file_get *g = q->state;

    if (!g->is_asked) {
        int r;

        g->is_asked = true;
        g->refs++;
        r = request_run(q, open_file, e);
        if (r < 0) {
            g->refs--;
            return r;
        }
    }
    while (!g->is_done)
        if (request_park(q))
            return 0;
    if (g->r < 0) {
        *e = g->error;
        return g->r;
    }
    return reply_file(q, g, e);
}

static void get_done(struct request *q)
{
    struct file_get *g = q->state;

    if (g)
        get_unref(g);
}

const struct request_ops file_get_ops = {
    .begin = get_begin, .finish = get_finish, .done = get_done};
