#include "api/files/file_sink.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "common/cleanup.h"
#include "common/jsonx.h"
#include "api/files/files.h"
#include "http/respond.h"
#include "http/sfield.h"
#include "api/dialect.h"

/* ---- by a worker ----------------------------------------------------------------------------- */

static void set_problem(struct file_sink *s, const char *type, int status)
{
    s->problem.type = type;
    s->status = status;
}

/* body: bytes of this request, UINT64_MAX when it does not say. */
static bool body_fits(const struct file_sink *s, const struct resume *u, uint64_t body)
{
    uint64_t left;

    if (!u->has_length)
        return true;
    if (u->offset > u->length)
        return false;
    left = u->length - u->offset;
    if (body == UINT64_MAX)
        return true;
    return s->is_incomplete ? body <= left : body == left;
}

/* The length of an upload may come late, but it never changes, and its bytes never pass it. */
static int check_length(struct file_sink *s, struct err *e)
{
    struct resume *u = s->resume;

    if (s->has_length && !u->has_length) {
        u->has_length = true;
        u->length = s->length;
    }
    if ((!s->has_length || s->length == u->length) && body_fits(s, u, s->request->declared))
        return 0;
    set_problem(s, "inconsistent-upload-length", HTTP_BAD_REQUEST);
    return err_field(e, ERR_INVALID, "Upload-Length",
                     "the upload has %" PRIu64 " of %" PRIu64 " bytes: this does not fit",
                     u->offset, u->length);
}

static int check_open(struct file_sink *s, struct err *e)
{
    const struct resume *u = s->resume;

    if (u->state == RESUME_DONE) {
        set_problem(s, "completed-upload", HTTP_BAD_REQUEST);
        return err_field(e, ERR_PRECONDITION, "upload", "the upload is complete");
    }
    if (u->state == RESUME_FAILED) {
        s->status = HTTP_GONE;
        *e = u->error;
        return err_wrap(e, -u->error.code, "the upload has failed");
    }
    s->upload_offset = u->offset;
    if (s->offset == u->offset)
        return 0;
    set_problem(s, "mismatching-upload-offset", HTTP_CONFLICT);
    s->problem.has_offsets = true;
    s->problem.expected_offset = u->offset;
    s->problem.provided_offset = s->offset;
    return err_field(e, ERR_ABORTED, "Upload-Offset", "the upload has %" PRIu64 " bytes",
                     u->offset);
}

static int open_again(struct file_sink *s, struct err *e)
{
    int r = resume_hold(s->resumes, s->request, s->id, &s->resume, e);

    if (r < 0)
        return r;
    r = check_open(s, e);
    if (r == 0)
        r = check_length(s, e);
    if (r < 0)
        return r;
    if (s->options.sha256)
        fs_write_expect(s->resume->write, s->sha256);
    resume_note_piece(s->resumes, s->resume, s->has_content_digest);
    s->path = strdup(s->resume->path);
    s->write = s->resume->write;
    s->start = s->resume->offset;
    return 0;
}

static int open_new(struct file_sink *s, struct err *e)
{
    int r;

    r = files_caller_new(s->request, s->user, s->cwd, &s->caller, e);
    if (r == 0 && (s->if_match || s->if_none_match))
        r = fs_check_condition(s->caller, s->path, &s->options.condition, s->current, e);
    if (r == 0)
        r = fs_write_begin(s->caller, s->path, &s->options, &s->write, e);
    if (r < 0 || !s->is_resumable)
        return r;
    r = resume_new(s->resumes, s->request, s->path, s->caller, s->write, &s->resume, e);
    if (r < 0)
        return r;
    s->caller = NULL;
    if (s->max_age_s && (int64_t)s->max_age_s * 1000 < s->resume->age_ms)
        s->resume->age_ms = (int64_t)s->max_age_s * 1000;
    (void)snprintf(s->upload_id, sizeof(s->upload_id), "%s", s->resume->id);
    r = check_length(s, e);
    if (r < 0)
        return r;
    resume_keep(s->resumes, s->resume, s->user);
    resume_note_piece(s->resumes, s->resume, s->has_content_digest);
    return 0;
}

static int sink_begin(void *sink, struct err *e)
{
    struct file_sink *s = sink;

    sha256_init(&s->content);
    return s->id ? open_again(s, e) : open_new(s, e);
}

static int sink_fail_too_long(struct file_sink *s, struct err *e)
{
    struct resume *u = s->resume;

    set_problem(s, "inconsistent-upload-length", HTTP_BAD_REQUEST);
    (void)err_field(e, ERR_INVALID, "Upload-Length",
                    "more than the %" PRIu64 " bytes that were announced", u->length);
    u->state = RESUME_FAILED;
    u->error = *e;
    return -ERR_INVALID;
}

static int sink_write(void *sink, const void *data, size_t len, struct err *e)
{
    struct file_sink *s = sink;
    const struct resume *u = s->resume;

    if (u && u->has_length && len > u->length - fs_write_offset(s->write))
        return sink_fail_too_long(s, e);
    if (s->has_content_digest)
        sha256_update(&s->content, len, data);
    return fs_write_data(s->write, data, len, e);
}

static int check_content(struct file_sink *s, struct err *e)
{
    uint8_t got[DIGEST_BYTES];

    if (!s->has_content_digest)
        return 0;
    sha256_digest(&s->content, sizeof(got), got);
    if (memcmp(got, s->content_digest, sizeof(got)) == 0)
        return 0;
    return err_field(e, ERR_DATA_LOSS, "digest",
                     "the bytes received do not have the announced SHA-256");
}

/* All bytes are there: the result is kept for later requests, also when it is an error. */
static int sink_complete(struct file_sink *s, struct err *e)
{
    struct resume *u = s->resume;
    int r = fs_write_commit(s->write, &s->result, e);

    if (r < 0)
        (void)snprintf(s->current, sizeof(s->current), "%s", fs_write_current(s->write));
    if (!u)
        return r;
    s->is_complete = true;
    u->state = r < 0 ? RESUME_FAILED : RESUME_DONE;
    u->result = s->result;
    if (r < 0)
        u->error = *e;
    return r;
}

static int sink_commit(void *sink, struct err *e)
{
    struct file_sink *s = sink;
    struct resume *u = s->resume;
    int r = check_content(s, e);

    if (r == 0 && s->options.part.is_part && !s->options.part.at_end &&
        fs_write_offset(s->write) != s->options.max_bytes)
        r = err_field(e, ERR_INVALID, "Content-Range", "the body has another length");
    if (r < 0)
        return r;
    s->is_committed = true;
    if (u) {
        u->offset = fs_write_offset(s->write);
        s->upload_offset = u->offset;
        s->upload_age_ms = u->age_ms;
        /* The reply will tell the id. */
        u->is_known = u->is_known || s->is_incomplete;
    }
    if (!u || !s->is_incomplete) {
        if (u && u->has_length && u->offset != u->length) {
            set_problem(s, "inconsistent-upload-length", HTTP_BAD_REQUEST);
            return err_field(e, ERR_INVALID, "Upload-Length",
                             "the upload ends after %" PRIu64 " of %" PRIu64 " bytes", u->offset,
                             u->length);
        }
        return sink_complete(s, e);
    }
    return 0;
}

static void sink_release_resume(struct file_sink *s)
{
    struct resume *u = s->resume;

    if (u->state == RESUME_OPEN && s->write) {
        /* An incomplete body can't be checked against its digest: drop it. */
        if (!s->is_committed && s->has_content_digest)
            (void)fs_write_cut(s->write, s->start, NULL);
        u->offset = fs_write_offset(s->write);
        resume_note_piece(s->resumes, u, false);
    }
    s->resume = NULL;
    resume_release(s->resumes, u);
}

static void sink_close(void *sink)
{
    struct file_sink *s = sink;

    if (s->resume)
        sink_release_resume(s);
    else
        s->write = fs_write_free(s->write);
    s->write = NULL;
    s->caller = fs_caller_unref(s->caller);
}

static void free_sink(void *sink)
{
    struct file_sink *s = sink;

    request_unref(s->request);
    free(s->path);
    free(s->user);
    free(s->cwd);
    free(s->if_match);
    free(s->if_none_match);
    free(s->id);
    free(s);
}

/* ---- by the request's thread ----------------------------------------------------------------- */

struct file_sink *file_sink_new(struct request *q, struct err *e)
{
    struct file_sink *s = calloc(1, sizeof(*s));

    if (!s) {
        (void)err_oom(e);
        return NULL;
    }
    s->request = request_ref(q);
    s->resumes = request_agent(q)->resumes;
    return s;
}

struct file_sink *file_sink_free(struct file_sink *s)
{
    if (s)
        free_sink(s);
    return NULL;
}

const struct pump_ops *file_sink_ops(const struct file_sink *s)
{
    static const struct pump_ops whole = {.begin = sink_begin,
                                          .write = sink_write,
                                          .commit = sink_commit,
                                          .close = sink_close,
                                          .free = free_sink};
    static const struct pump_ops piece = {.begin = sink_begin,
                                          .write = sink_write,
                                          .commit = sink_commit,
                                          .close = sink_close,
                                          .free = free_sink,
                                          .keeps = true};

    return s->is_resumable ? &piece : &whole;
}

static int read_digests(struct file_sink *s, struct request *q, struct err *e)
{
    _cleanup_free_ char *content = NULL;
    _cleanup_free_ char *repr = NULL;
    const char *old = request_header(q, "Digest");
    bool has_repr = false;
    int r;

    if ((r = files_header(q, "Content-Digest", &content, e)) < 0 ||
        (r = files_header(q, "Repr-Digest", &repr, e)) < 0)
        return r;
    if (content)
        r = digest_read("Content-Digest", content, s->content_digest, &s->has_content_digest, e);
    if (r == 0 && repr)
        r = digest_read("Repr-Digest", repr, s->sha256, &has_repr, e);
    else if (r == 0 && old)
        r = digest_read_old(old, s->sha256, &has_repr, e);
    if (r == 0 && has_repr)
        s->options.sha256 = s->sha256;
    return r;
}

int file_sink_headers(struct file_sink *s, struct request *q, struct err *e)
{
    const char *coding = request_header(q, "Content-Encoding");
    int r;

    if (coding && strcasecmp(coding, "identity") != 0) {
        q->error_status = HTTP_UNSUPPORTED_MEDIA_TYPE;
        return err_field(e, ERR_UNIMPLEMENTED, "Content-Encoding",
                         "files are sent as they are, not '%.40s'", coding);
    }
    if ((r = read_digests(s, q, e)) < 0 || (r = files_header(q, "If-Match", &s->if_match, e)) < 0 ||
        (r = files_header(q, "If-None-Match", &s->if_none_match, e)) < 0)
        return r;
    s->options.condition = (struct fs_condition){s->if_match, s->if_none_match};
    return 0;
}

bool file_sink_number(struct request *q, const char *name, uint64_t *ret)
{
    const char *value = request_header(q, name);
    struct sf_value v;

    if (!value || sf_item(value, &v, NULL) < 0 || v.type != SF_INTEGER || v.integer < 0)
        return false;
    *ret = (uint64_t)v.integer;
    return true;
}

int file_sink_upload_headers(struct file_sink *s, struct request *q, bool *ret_is_there,
                             struct err *e)
{
    const char *value = request_header(q, "Upload-Complete");
    struct sf_value v;

    *ret_is_there = value && sf_item(value, &v, NULL) == 0 && v.type == SF_BOOL;
    if (!*ret_is_there)
        return 0;
    s->is_incomplete = !v.boolean;
    s->has_length = file_sink_number(q, "Upload-Length", &s->length);
    if (s->is_incomplete || q->declared == UINT64_MAX)
        return 0;
    if (s->has_length && s->length != s->offset + q->declared) {
        q->problem.type = "inconsistent-upload-length";
        return err_field(e, ERR_INVALID, "Upload-Length",
                         "%" PRIu64 " is not what this body makes it", s->length);
    }
    s->has_length = true;
    s->length = s->offset + q->declared;
    return 0;
}

int file_sink_explain(const struct file_sink *s, struct request *q, int r, struct err *e)
{
    char text[32];

    if (r >= 0 || r == -ERR_CANCELED || q->n_reply_headers)
        return r; /* nobody is left to be told, or he was */
    q->problem = s->problem;
    q->error_status = s->status;
    (void)files_add_tag(q, r, s->current, e);
    if (s->problem.has_offsets) {
        (void)snprintf(text, sizeof(text), "%" PRIu64, s->problem.expected_offset);
        (void)request_reply_header(q, "Upload-Offset", text, NULL);
    }
    if (r == -ERR_RANGE && strcmp(e->field, "offset") == 0) {
        (void)snprintf(text, sizeof(text), "bytes */%.20s", e->detail);
        (void)request_reply_header(q, "Content-Range", text, NULL);
        q->error_status = HTTP_RANGE_NOT_SATISFIABLE;
    }
    if (s->is_complete)
        (void)request_reply_header(q, "Upload-Complete", "?1", NULL);
    return r;
}

int file_sink_reply(const struct file_sink *s, struct request *q, struct err *e)
{
    const struct fs_write_result *res = &s->result;
    const char *path = s->path ? s->path : "";
    _cleanup_json_ json_t *v =
        json_pack("{s:o, s:I, s:I, s:s, s:b, s:b}", "path", jx_new_path(path), "bytes",
                  (json_int_t)res->bytes, "size", (json_int_t)res->size, "etag", res->etag,
                  "created", (int)res->created, "in_place", (int)res->in_place);
    struct reply *response;
    char etag[FS_ETAG_BYTES + 4], offset[32];
    char *text;
    size_t len;
    int r;

    if (!v || (s->options.part.is_part &&
               json_object_set_new(v, "offset", json_integer((json_int_t)res->offset)) < 0))
        return err_oom(e);
    r = jx_dump(v, &text, &len, e);
    if (r < 0)
        return r;
    response = reply_new_take(text, len);
    if (!response) {
        free(text);
        return err_oom(e);
    }
    if (res->etag[0]) {
        (void)snprintf(etag, sizeof(etag), "\"%s\"", res->etag);
        reply_add_header(response, "ETag", etag);
    }
    reply_add_header(response, "Content-Type", "application/json");
    if (res->in_place)
        reply_add_header(response, "Bellhop-In-Place", "true");
    if (s->is_complete) {
        (void)snprintf(offset, sizeof(offset), "%" PRIu64, s->upload_offset);
        reply_add_header(response, "Upload-Complete", "?1");
        reply_add_header(response, "Upload-Offset", offset);
    }
    q->bytes_out += len;
    return respond_queue(q, res->created ? HTTP_CREATED : HTTP_OK, response, e);
}

void file_sink_add_limit(struct reply *response, int64_t age_ms)
{
    char limit[32];

    (void)snprintf(limit, sizeof(limit), "max-age=%lld", (long long)age_ms / 1000);
    reply_add_header(response, "Upload-Limit", limit);
}
