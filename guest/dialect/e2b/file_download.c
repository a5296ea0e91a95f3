/*
 * file_download: GET /files: a file's bytes, by sendfile where that is possible; compressed when that is
 * what the client asks for. A worker looks and opens, the connection's thread replies.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/buf.h"
#include "common/cleanup.h"
#include "common/path.h"
#include "dialect/e2b/file_paths.h"
#include "dialect/e2b/file_query.h"
#include "dialect/e2b/rest_routes.h"
#include "dialect/e2b/media.h"
#include "fs/open.h"
#include "http/body.h"
#include "http/file_body.h"
#include "api/files/files.h"
#include "http/gzip.h"
#include "http/range.h"
#include "http/respond.h"
#include "api/dialect.h"

struct file_get {
    struct ask ask;
    struct file_query query;
    /* the worker's, then the connection's thread's: */
    char *path; /* resolved */
    bool has_body;
    struct fs_file file; /* its descriptor is the body's */
    struct file_body body;
};

static void free_get(void *state)
{
    struct file_get *g = state;

    if (g->has_body)
        file_body_done(&g->body);
    file_query_done(&g->query);
    free(g->path);
    free(g);
}

static int get_begin(struct request *q, struct err *e)
{
    struct file_get *g = calloc(1, sizeof(*g));

    if (!g)
        return err_oom(e);
    q->state = g;
    q->free_state = free_get;
    return file_query_read(q, "read", &g->query, e);
}

/* ---- by a worker ----------------------------------------------------------------------------- */

/* Before it is opened: opening a device can already do something. */
static int check_is_file(const struct files_call *f, const char *path, struct err *e)
{
    _cleanup_close_ int fd = -1;
    struct err inner = {0};
    struct stat st;
    int r = fs_open(f->caller, path, O_PATH, 0, &fd, &inner);

    if (r < 0 && inner.sys == ENOENT)
        return err_set(e, ERR_NOT_FOUND, "path '%s' does not exist", path);
    if (r < 0)
        return fault_of(e, ERR_INTERNAL, &inner, "error checking if path exists '%s': stat %s",
                        path, path);
    if (fstat(fd, &st) == 0 && S_ISDIR(st.st_mode))
        return err_set(e, ERR_INVALID, "path '%s' is a directory", path);
    return 0;
}

static int open_body(struct request *q, struct file_get *g, struct err *e)
{
    _cleanup_files_call_ struct files_call f = {0};
    const char *path = g->query.path ? g->query.path : "";
    struct err inner = {0};
    int r = files_rest_init(&f, request_agent(q), g->query.username, e);

    if (r < 0)
        return r;
    r = files_call_path(&f, path, &g->path, e);
    if (r < 0)
        return err_wrap(e, r, "error expanding and resolving path '%.200s'", path);
    r = check_is_file(&f, g->path, e);
    if (r < 0)
        return r;
    r = fs_file_open(f.caller, g->path, false, &g->file, &inner);
    if (r < 0)
        return fault_of(e, ERR_INTERNAL, &inner, "error opening file '%s': open %s", g->path,
                        g->path);
    g->has_body = true;
    return file_body_init_take(&g->body, g->file.fd,
                               g->file.is_sized ? (uint64_t)g->file.st.st_size : UINT64_MAX,
                               FILES_TYPE, e);
}

static void open_job(struct request *q)
{
    struct file_get *g = q->state;

    g->ask.r = open_body(q, g, &g->ask.error);
    request_answer(q, &g->ask);
}

/* ---- compressed ------------------------------------------------------------------------------ */

struct packed {
    int fd; /* a duplicate */
    bool is_sized;
    char *head; /* of a file that is made up as it is read: what was read already */
    size_t head_len, head_at;
    uint64_t at;
    struct gzip *gzip;
};

static int read_plain(void *arg, void *data, size_t size, size_t *ret_len, struct err *e)
{
    struct packed *p = arg;
    size_t left = p->head_len - p->head_at;
    ssize_t n;

    if (left) {
        *ret_len = left < size ? left : size;
        (void)memcpy(data, p->head + p->head_at, *ret_len);
        p->head_at += *ret_len;
        return 0;
    }
    if (!p->is_sized)
        return file_body_read(p->fd, data, size, ret_len, e);
    n = pread(p->fd, data, size, (off_t)p->at);
    if (n < 0)
        return err_sys(e, errno, "read");
    p->at += (uint64_t)n;
    *ret_len = (size_t)n;
    return 0;
}

static int read_packed(void *from, void *data, size_t size, size_t *ret_len, struct err *e)
{
    struct packed *p = from;

    return gzip_read(p->gzip, data, size, ret_len, e);
}

static void close_packed(void *from)
{
    struct packed *p = from;

    gzip_free(p->gzip);
    fd_close(p->fd);
    free(p->head);
    free(p);
}

static const struct feed_ops packed_ops = {.pump = {.read = read_packed, .close = close_packed}};

static int packed_body(struct request *q, struct file_body *b, struct reply **ret, struct err *e)
{
    struct packed *p = calloc(1, sizeof(*p));
    int r;

    if (!p)
        return err_oom(e);
    p->is_sized = b->is_sized;
    p->fd = fcntl(b->fd, F_DUPFD_CLOEXEC, 3);
    if (p->fd < 0) {
        free(p);
        return err_sys(e, errno, "dup");
    }
    p->head = TAKE(b->head);
    p->head_len = p->head ? b->head_len : 0;
    r = gzip_new(read_plain, p, &p->gzip, e);
    if (r < 0) {
        close_packed(p);
        return r;
    }
    return feed_response_take(q, REPLY_SIZE_UNKNOWN, &packed_ops, p, ret, e);
}

/* ---- conditions ------------------------------------------------------------------------------ */

/* Whether the file is as old as the header says, or older. A date that is none says nothing. */
static bool is_since(struct request *q, const char *name, const struct file_get *g, bool *ret_known)
{
    const char *text = request_header(q, name);
    time_t date = 0;

    *ret_known = text && range_parse_date(text, &date);
    return *ret_known && g->file.st.st_mtim.tv_sec <= date;
}

/* There are no tags: only "*" is one that the file has. */
static bool is_any(const char *list)
{
    return list && strcmp(list, "*") == 0;
}

static int check_conditions(struct request *q, const struct file_get *g)
{
    const char *match = request_header(q, "If-Match");
    const char *none_match = request_header(q, "If-None-Match");
    bool known;

    if (match && !is_any(match))
        return HTTP_PRECONDITION_FAILED;
    if (!match && !is_since(q, "If-Unmodified-Since", g, &known) && known)
        return HTTP_PRECONDITION_FAILED;
    if (none_match)
        return is_any(none_match) ? HTTP_NOT_MODIFIED : HTTP_OK;
    return is_since(q, "If-Modified-Since", g, &known) ? HTTP_NOT_MODIFIED : HTTP_OK;
}

/* A range counts unless it was meant for another version, and it can be told. */
static const char *range_of(struct request *q, const struct file_get *g)
{
    const char *if_range = request_header(q, "If-Range");
    time_t date = 0;

    if (!g->file.is_sized)
        return NULL;
    if (if_range && (!range_parse_date(if_range, &date) || date != g->file.st.st_mtim.tv_sec))
        return NULL;
    return request_header(q, "Range");
}

/* ---- the reply ------------------------------------------------------------------------------- */

static int add_headers(struct file_get *g, enum coding coding, struct reply *response,
                       struct err *e)
{
    _cleanup_free_ char *disposition = media_disposition(path_name(g->path));
    char date[RANGE_DATE_BYTES];

    if (!disposition) {
        reply_free(response);
        return err_oom(e);
    }
    reply_add_header(response, "Vary", "Accept-Encoding");
    reply_add_header(response, "Content-Disposition", disposition);
    if (!reply_has_header(response, "Content-Type"))
        reply_add_header(response, "Content-Type", media_type(g->path));
    if (coding == CODING_GZIP) {
        reply_add_header(response, "Content-Encoding", "gzip");
        return 0;
    }
    range_format_date(g->file.st.st_mtim.tv_sec, date);
    reply_add_header(response, "Last-Modified", date);
    reply_add_header(response, "Accept-Ranges", g->file.is_sized ? "bytes" : "none");
    return 0;
}

static int reply_unsatisfiable(struct request *q, const struct file_get *g, struct err *e)
{
    char text[64];
    int r;

    (void)snprintf(text, sizeof(text), "bytes */%" PRIu64, file_body_size(&g->body));
    r = request_reply_header(q, "Content-Range", text, e);
    if (r < 0)
        return r;
    q->error_status = HTTP_RANGE_NOT_SATISFIABLE;
    return err_set(e, ERR_RANGE, "invalid range: failed to overlap");
}

static int reply_part(struct request *q, struct file_get *g, struct err *e)
{
    struct reply *response = NULL;
    int status = check_conditions(q, g);
    struct range_set ranges;
    int r;

    if (status == HTTP_PRECONDITION_FAILED) {
        q->error_status = status;
        return err_set(e, ERR_ABORTED, "precondition failed");
    }
    if (status == HTTP_NOT_MODIFIED) {
        r = file_body_whole(q, &g->body, &response, e); /* no body, but the length of a 200 */
    } else {
        enum range_kind kind = range_parse(range_of(q, g), file_body_size(&g->body), &ranges);

        if (kind == RANGE_NONE && !file_body_size(&g->body))
            kind = RANGE_WHOLE; /* nothing is all there is: 200, as with envd, and not 416 */
        switch (kind) {
        case RANGE_NONE:
            return reply_unsatisfiable(q, g, e);
        case RANGE_PART:
            status = HTTP_PARTIAL_CONTENT;
            r = file_body_ranges(q, &g->body, &ranges, &response, e);
            break;
        case RANGE_WHOLE:
        default:
            r = file_body_whole(q, &g->body, &response, e);
            break;
        }
    }
    if (r == 0)
        r = add_headers(g, CODING_IDENTITY, response, e);
    return r < 0 ? r : respond_queue(q, status, response, e);
}

static int reply_whole(struct request *q, struct file_get *g, enum coding coding, struct err *e)
{
    struct reply *response = NULL;
    int r = coding == CODING_GZIP ? packed_body(q, &g->body, &response, e)
                                  : file_body_whole(q, &g->body, &response, e);

    if (r == 0)
        r = add_headers(g, coding, response, e);
    return r < 0 ? r : respond_queue(q, HTTP_OK, response, e);
}

static bool is_conditional(struct request *q)
{
    static const char *const names[] = {"Range",    "If-Modified-Since",
                                        "If-Match", "If-None-Match",
                                        "If-Range", "If-Unmodified-Since"};

    for (size_t i = 0; i < N_ELEMENTS(names); i++)
        if (request_header(q, names[i]))
            return true;
    return false;
}

static int get_finish(struct request *q, struct err *e)
{
    struct file_get *g = q->state;
    bool is_part = is_conditional(q);
    enum coding coding;
    int r = request_ask(q, &g->ask, open_job, e);

    if (r == REQUEST_PARKED)
        return 0;
    if (r < 0)
        return r;
    coding = accept_coding(request_header(q, "Accept-Encoding"), !is_part);
    if (coding == CODING_NONE) {
        q->error_status = HTTP_NOT_ACCEPTABLE;
        return err_set(e, ERR_INVALID,
                       is_part ? "identity encoding not acceptable for Range or conditional request"
                               : "error parsing Accept-Encoding: no acceptable encoding found, "
                                 "supported: [gzip]");
    }
    return is_part ? reply_part(q, g, e) : reply_whole(q, g, coding, e);
}

static int drop_get_body(struct request *q, const char *data, size_t *len, struct err *e)
{
    if (q->bytes_in + *len > REQUEST_DRAIN_BYTES) {
        q->error_status = HTTP_CONTENT_TOO_LARGE;
        return err_set(e, ERR_EXHAUSTED, "the body of a GET is larger than %d bytes",
                       REQUEST_DRAIN_BYTES);
    }
    return e2b_drop_body(q, data, len, e);
}

const struct request_ops e2b_file_get_ops = {
    .begin = get_begin, .body = drop_get_body, .finish = get_finish};
