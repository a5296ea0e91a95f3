/*
 * file_get: GET, HEAD, DELETE and OPTIONS of /v1/files/{path}. GET answers with a file's bytes: whole, or the ranges
 * that are asked for, only if the conditions hold. A worker opens it, decides and hashes; the connection's thread
 * replies.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/files/file_sink.h"
#include "api/files/files.h"
#include "api/dialect.h"
#include "common/cleanup.h"
#include "common/wire/wire.h"
#include "fs/change.h"
#include "fs/etag.h"
#include "fs/open.h"
#include "fs/stat.h"
#include "http/sfield.h"
#include "http/file_body.h"
#include "http/range.h"
#include "http/respond.h"
#include "http/route.h"

/* The fields that GET and DELETE have in common. */
struct file_ask {
    struct ask ask;
    char *user;
    char *cwd;
    char *if_match;
    char *if_none_match;
    bool is_recursive; /* DELETE */
};

static void file_ask_done(struct file_ask *a)
{
    free(a->user);
    free(a->cwd);
    free(a->if_match);
    free(a->if_none_match);
}

static int file_ask_read(struct request *q, struct file_ask *a, struct err *e)
{
    static const char *const get[] = {"path", "user", "cwd", NULL};
    static const char *const delete[] = {"path", "user", "cwd", "recursive", NULL};
    int r;

    if ((r = files_check_file_query(q, q->verb == VERB_DELETE ? delete : get, e)) < 0 ||
        (r = request_query_bool(q, "recursive", &a->is_recursive, e)) < 0 ||
        (r = request_query(q, "user", &a->user, e)) < 0 ||
        (r = request_query(q, "cwd", &a->cwd, e)) < 0 || (r = files_take_path(q, a->cwd, e)) < 0 ||
        (r = files_header(q, "If-Match", &a->if_match, e)) < 0)
        return r;
    return files_header(q, "If-None-Match", &a->if_none_match, e);
}

/* ---- GET, HEAD ------------------------------------------------------------------------------- */

struct file_get {
    struct file_ask head;
    char *if_range;
    char *range;
    bool wants_repr_digest;
    bool wants_content_digest;
    /* the worker's, then the connection's thread's: */
    bool has_body;
    struct fs_file file; /* its descriptor is the body's */
    struct file_body body;
    int status;
    struct range_set ranges; /* of a 206 */
    char repr_digest[DIGEST_TEXT_BYTES];
    char content_digest[DIGEST_TEXT_BYTES];
    json_t *listing; /* in the place of a body */
};

static void free_get(void *state)
{
    struct file_get *g = state;

    if (g->has_body)
        file_body_done(&g->body);
    file_ask_done(&g->head);
    json_decref(g->listing);
    free(g->if_range);
    free(g->range);
    free(g);
}

static int get_begin(struct request *q, struct err *e)
{
    const char *repr = request_header(q, "Want-Repr-Digest");
    const char *content = request_header(q, "Want-Content-Digest");
    struct file_get *g = calloc(1, sizeof(*g));
    int r;

    if (!g)
        return err_oom(e);
    q->state = g;
    q->free_state = free_get;
    g->wants_repr_digest = repr && digest_is_wanted(repr);
    g->wants_content_digest = content && digest_is_wanted(content);
    r = file_ask_read(q, &g->head, e);
    if (r == 0 && q->verb == VERB_GET)
        r = files_header(q, "If-Range", &g->if_range, e);
    if (r == 0 && q->verb == VERB_GET)
        r = files_header(q, "Range", &g->range, e);
    return r;
}

/* ---- by a worker ----------------------------------------------------------------------------- */

/* A date does not say that the bytes are the same, nor does another tag: then the whole is sent. */
static bool range_counts(const struct file_get *g)
{
    const char *tag = g->file.etag;

    if (!g->range || !g->file.is_sized)
        return false;
    return !g->if_range || (g->if_range[0] == '"' && fs_etag_in_list(g->if_range, tag, false));
}

static int get_decide(struct file_get *g, struct err *e)
{
    const struct fs_condition match = {.if_match = g->head.if_match};
    const struct fs_condition none_match = {.if_none_match = g->head.if_none_match};
    const char *tag = g->file.etag;
    int r = fs_check_tag(&match, true, tag, e);

    if (r < 0)
        return r;
    if (fs_check_tag(&none_match, true, tag, NULL) < 0) {
        g->status = HTTP_NOT_MODIFIED;
        return 0;
    }
    g->status = HTTP_OK;
    if (!range_counts(g))
        return 0;
    switch (range_parse(g->range, file_body_size(&g->body), &g->ranges)) {
    case RANGE_WHOLE:
        break;
    case RANGE_PART:
        g->status = HTTP_PARTIAL_CONTENT;
        break;
    case RANGE_NONE:
        g->status = HTTP_RANGE_NOT_SATISFIABLE;
        break;
    }
    return 0;
}

static int hash_range(const struct file_get *g, const struct range *range,
                      char out[DIGEST_TEXT_BYTES], struct err *e)
{
    uint8_t digest[DIGEST_BYTES];
    int r = fs_hash(g->body.fd, range->first, range->len, digest, e);

    if (r == 0)
        digest_write(digest, out);
    return r;
}

static int add_digests(struct file_get *g, struct err *e)
{
    const struct range all = {.first = 0, .len = (uint64_t)g->file.st.st_size};
    const struct range *content = g->ranges.n == 1 ? &g->ranges.v[0] : &all;
    bool is_whole = g->status == HTTP_OK;
    int r = 0;

    if (!g->file.is_sized)
        return 0;
    if (g->wants_repr_digest)
        r = hash_range(g, &all, g->repr_digest, e);
    if (r == 0 && g->wants_content_digest &&
        (is_whole || (g->status == HTTP_PARTIAL_CONTENT && g->ranges.n == 1)))
        r = hash_range(g, content, g->content_digest, e);
    return r;
}

/* A client that takes no JSON wants a file's bytes: a directory is an error for it. */
static bool takes_listing(struct request *q)
{
    static const char *const types[] = {"*/*", "application/*", WIRE_TYPE_JSON};
    const char *accept = request_header(q, "Accept");

    for (size_t i = 0; accept && i < N_ELEMENTS(types); i++)
        if (strcasestr(accept, types[i]))
            return true;
    return !accept;
}

/* If path is a directory, and a dialect lists those: *ret is its list. */
static int list_if_directory(struct request *q, struct fs_caller *c, json_t **ret, struct err *e)
{
    const struct fs_stat_options follow = {.follow = true};
    const struct dialect_slot *s = request_agent(q)->dialects;
    struct fs_info info = {0};
    bool is_directory;

    while (s->row && !s->row->list_directory)
        s++;
    if (!s->row || request_dialect(q) != &native_dialect || !takes_listing(q) ||
        fs_stat(c, q->rest, &follow, &info, NULL) < 0)
        return 0;
    is_directory = S_ISDIR(info.st.st_mode);
    fs_info_done(&info);
    return is_directory ? s->row->list_directory(c, q->rest, ret, e) : 0;
}

static int open_body(struct request *q, struct file_get *g, struct err *e)
{
    _cleanup_fs_caller_ struct fs_caller *c = NULL;
    struct err why = {0};
    int r;

    r = files_caller_new(q, g->head.user, g->head.cwd, &c, e);
    if (r < 0)
        return r;
    r = fs_file_open(c, q->rest, true, &g->file, &why);
    if (r == -ERR_PRECONDITION) {
        int listed = list_if_directory(q, c, &g->listing, e);

        if (listed < 0 || g->listing)
            return listed;
    }
    if (r < 0 && e)
        *e = why;
    if (r < 0)
        return r;
    g->has_body = true;
    r = file_body_init_take(&g->body, g->file.fd,
                            g->file.is_sized ? (uint64_t)g->file.st.st_size : UINT64_MAX,
                            FILES_TYPE, e);
    if (r == 0)
        r = get_decide(g, e);
    return r < 0 ? r : add_digests(g, e);
}

static void open_job(struct request *q)
{
    struct file_get *g = q->state;

    g->head.ask.r = open_body(q, g, &g->head.ask.error);
    request_answer(q, &g->head.ask);
}

/* ---- the reply ------------------------------------------------------------------------------- */

static void add_headers(const struct file_get *g, struct reply *response)
{
    const struct fs_file *f = &g->file;
    char text[FS_ETAG_BYTES + 8];
    char date[RANGE_DATE_BYTES];

    if (f->etag[0]) {
        (void)snprintf(text, sizeof(text), "\"%s\"", f->etag);
        reply_add_header(response, "ETag", text);
    }
    range_format_date(f->st.st_mtim.tv_sec, date);
    reply_add_header(response, "Last-Modified", date);
    reply_add_header(response, "Accept-Ranges", f->is_sized ? "bytes" : "none");
    if (!reply_has_header(response, "Content-Type"))
        reply_add_header(response, "Content-Type", FILES_TYPE);
    reply_add_header(response, "Cache-Control", "no-cache");
    (void)snprintf(text, sizeof(text), "%04o", (unsigned)(f->st.st_mode & 07777));
    reply_add_header(response, "Bellhop-Mode", text);
    if (g->repr_digest[0])
        reply_add_header(response, "Repr-Digest", g->repr_digest);
    if (g->content_digest[0])
        reply_add_header(response, "Content-Digest", g->content_digest);
}

static int reply_unsatisfiable(struct request *q, const struct file_get *g, struct err *e)
{
    uint64_t size = file_body_size(&g->body);
    char text[64];
    int r;

    (void)snprintf(text, sizeof(text), "bytes */%" PRIu64, size);
    r = request_reply_header(q, "Content-Range", text, e);
    if (r < 0)
        return r;
    q->error_status = HTTP_RANGE_NOT_SATISFIABLE;
    return err_detail_u64(
        e, err_field(e, ERR_RANGE, "Range", "the file has %" PRIu64 " bytes", size), "size", size);
}

static int reply_file(struct request *q, struct file_get *g, struct err *e)
{
    struct reply *response = NULL;
    int r;

    if (g->status == HTTP_RANGE_NOT_SATISFIABLE)
        return reply_unsatisfiable(q, g, e);
    if (g->status == HTTP_PARTIAL_CONTENT)
        r = file_body_ranges(q, &g->body, &g->ranges, &response, e);
    else /* 304 too: it has no body, but the length that a 200 would have */
        r = file_body_whole(q, &g->body, &response, e);
    if (r < 0)
        return r;
    add_headers(g, response);
    return respond_queue(q, g->status, response, e);
}

static int get_finish(struct request *q, struct err *e)
{
    struct file_get *g = q->state;
    int r = request_ask(q, &g->head.ask, open_job, e);

    if (r == REQUEST_PARKED)
        return 0;
    if (r < 0)
        return files_add_tag(q, r, g->has_body ? g->file.etag : "", e);
    return g->listing ? respond_json(q, HTTP_OK, g->listing, e) : reply_file(q, g, e);
}

const struct request_ops file_get_ops = {.begin = get_begin, .finish = get_finish};

/* ---- DELETE ---------------------------------------------------------------------------------- */

static void free_delete(void *state)
{
    file_ask_done(state);
    free(state);
}

static int delete_begin(struct request *q, struct err *e)
{
    struct file_ask *d = calloc(1, sizeof(*d));

    if (!d)
        return err_oom(e);
    q->state = d;
    q->free_state = free_delete;
    return file_ask_read(q, d, e);
}

static void delete_job(struct request *q)
{
    struct file_ask *d = q->state;
    const struct fs_remove_options o = {.recursive = d->is_recursive,
                                        .condition = {d->if_match, d->if_none_match}};
    struct fs_caller *c = NULL;
    uint64_t removed;

    d->ask.r = files_caller_new(q, d->user, d->cwd, &c, &d->ask.error);
    if (d->ask.r == 0)
        d->ask.r = fs_remove(c, q->rest, &o, &removed, &d->ask.error);
    fs_caller_unref(c);
    request_answer(q, &d->ask);
}

static int delete_finish(struct request *q, struct err *e)
{
    struct file_ask *d = q->state;
    int r = request_ask(q, &d->ask, delete_job, e);

    if (r == REQUEST_PARKED)
        return 0;
    if (r < 0)
        return files_add_tag(q, r, e->detail_name[0] ? e->detail : "", e);
    return respond_empty(q, HTTP_NO_CONTENT, e);
}

const struct request_ops file_delete_ops = {.begin = delete_begin, .finish = delete_finish};

/* Answers OPTIONS: the methods, and that uploads can be resumed. */
static int options_finish(struct request *q, struct err *e)
{
    struct reply *response = reply_new_empty();
    char allow[64];

    if (!response)
        return err_oom(e);
    route_allow(q->route_verbs, allow, sizeof(allow));
    reply_add_header(response, "Allow", allow);
    reply_add_header(response, "Accept-Patch", UPLOADS_TYPE ", " FILES_TYPE);
    reply_add_header(response, "Accept-Ranges", "bytes");
    file_sink_add_limit(response, (int64_t)RESUME_AGE_S * 1000);
    return respond_queue(q, HTTP_NO_CONTENT, response, e);
}

const struct request_ops file_options_ops = {.finish = options_finish};
