/*
 * client_upload: a large file by the resumable upload (draft-ietf-httpbis-resumable-upload, interop
 * version 8; see docs/protocol-files.md). The agent collects the bytes beside the target and puts
 * them in place at the end, so that the target is the old file or the whole new one. After a broken
 * connection the agent is asked how many bytes it has, and the rest is sent.
 *
 * The bytes are a snapshot of the length that the local file had at first: a file that grows
 * meanwhile, as a log does, is sent to that length.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/str.h"
#include "lib/agent/client_internal.h"
#include "lib/util/socket.h"

#define UPLOAD_RETRIES 8 /* without UPLOAD_PROGRESS_BYTES more than before */
#define UPLOAD_PROGRESS_BYTES (1024 * 1024)
/* No retry after that time, and a second for each UPLOAD_LEAST_RATE bytes that have arrived. */
#define UPLOAD_RETRY_MS (10 * 60 * 1000)
#define UPLOAD_LEAST_RATE (64 * 1024)
#define UPLOAD_RETRY_FIRST_MS 50
#define UPLOAD_RETRY_MOST_MS 1000
#define UPLOAD_CANCEL_MS 2000
#define UPLOAD_CANCEL_TRIES 3
/* The agent keeps an unfinished upload so long without a request: all retries without progress take
 * less (8 pauses of a second, 9 attempts to connect of 10 seconds). */
#define UPLOAD_MAX_AGE "120"
#define UPLOAD_PREFIX "/v1/uploads/"
#define UPLOAD_HEADER_BYTES 128

struct sender {
    struct client *c;
    const struct client_upload *u;
    struct stat began; /* the local file, when the upload began */
    char *url;         /* of the upload; NULL: it is not begun */
    uint64_t offset;   /* bytes that the agent has */
    uint64_t at;       /* the next byte to read */
    bool is_done;
    bool is_final; /* an error that another attempt would meet again */
};

/* All bytes must be of one version of the local file; one that has only grown has them still. */
static int check_unchanged(struct sender *s, struct err *e)
{
    const struct timespec *was = &s->began.st_mtim;
    struct stat st;
    int r;

    if (fstat(s->u->fd, &st) < 0)
        r = err_at(e, err_sys(e, errno, "stat '%s'", s->u->name), s->u->name);
    else if (st.st_size < s->began.st_size)
        r = err_field(e, ERR_ABORTED, s->u->name,
                      "'%s' became shorter while it was read: it has %lld of %lld bytes",
                      s->u->name, (long long)st.st_size, (long long)s->began.st_size);
    else if (st.st_size == s->began.st_size &&
             (st.st_mtim.tv_sec != was->tv_sec || st.st_mtim.tv_nsec != was->tv_nsec))
        r = err_field(e, ERR_ABORTED, s->u->name, "'%s' changed while it was read", s->u->name);
    else
        return 0;
    s->is_final = true;
    return r;
}

/* The last piece completes the upload: the check comes before it. */
static int64_t read_piece(void *arg, char *out, size_t max, struct err *e)
{
    struct sender *s = arg;
    uint64_t left = (uint64_t)s->began.st_size - s->at;
    ssize_t n;

    if (left == 0)
        return 0;
    do
        n = pread(s->u->fd, out, left < max ? (size_t)left : max, (off_t)s->at);
    while (n < 0 && errno == EINTR);
    if (n < 0) {
        s->is_final = true;
        return err_at(e, err_sys(e, errno, "read '%s'", s->u->name), s->u->name);
    }
    if (n == 0 || (uint64_t)n == left) {
        int r = check_unchanged(s, e);

        if (r < 0)
            return r;
    }
    s->at += (uint64_t)n;
    if (s->u->progress)
        s->u->progress(s->u->arg, s->at);
    return n;
}

/* "/v1/uploads/ID" */
static bool is_upload(const char *location)
{
    const char *id = location + strlen(UPLOAD_PREFIX);

    return str_has_prefix(location, UPLOAD_PREFIX) && *id &&
           strlen(location) < UPLOAD_HEADER_BYTES - 1 && /* else it may be cut off */
           strspn(id, "0123456789abcdefghijklmnopqrstuvwxyz-_") == strlen(id);
}

static bool read_number(const struct http_response *res, const char *name, uint64_t *ret)
{
    char text[UPLOAD_HEADER_BYTES];

    return http_header(res, name, text, sizeof(text)) &&
           str_parse_u64(text, 0, INT64_MAX, ret, NULL) == 0;
}

/* PUT with no byte yet: the agent checks the target and names the upload. */
static int upload_begin(struct sender *s, struct err *e)
{
    char length[UPLOAD_HEADER_BYTES], location[UPLOAD_HEADER_BYTES];
    const char *headers[] = {"Content-Type: application/octet-stream",
                             "Upload-Complete: ?0",
                             WIRE_HEADER_UPLOAD_AGE ": " UPLOAD_MAX_AGE,
                             length,
                             s->c->auth,
                             NULL};
    _cleanup_free_ char *url = NULL;
    struct http_response res = {0};
    struct http_request req = {.method = "PUT",
                               .headers = headers,
                               .body = "",
                               .answer_timeout_ms = s->c->work_ms,
                               .deadline_mono_ms = s->u->deadline_mono_ms};
    int r = client_new_url(s->c, FILES_ROUTE, s->u->path, s->u->query, &url, e);

    if (r < 0)
        return r;
    (void)snprintf(length, sizeof(length), "Upload-Length: %lld", (long long)s->began.st_size);
    req.url = url;
    r = client_send(s->c, &req, &res, e);
    if (r < 0)
        return r;
    if (!http_header(&res, "Location", location, sizeof(location)) || !is_upload(location))
        r = err_set(e, ERR_UNIMPLEMENTED, "the guest agent knows no resumable upload");
    else if (asprintf(&s->url, "%s%s", s->c->base, client_route(s->c, location)) < 0) {
        s->url = NULL;
        r = err_oom(e);
    }
    s->offset = 0;
    http_response_done(&res);
    return r;
}

/*
 * Sets the offset, and is_done if the agent says that the upload is complete. It is believed only
 * with all bytes: it could have put half a file in place.
 */
static int take_offset(struct sender *s, const struct http_response *res, struct err *e)
{
    uint64_t size = (uint64_t)s->began.st_size, offset;
    char complete[8];

    if (!read_number(res, "Upload-Offset", &offset) || offset > size)
        return err_set(e, ERR_DATA_LOSS, "the guest agent's answer to an upload has no offset");
    s->offset = offset;
    if (!http_header(res, "Upload-Complete", complete, sizeof(complete)) || !str_eq(complete, "?1"))
        return 0;
    if (offset < size) {
        s->is_final = true;
        return err_set(e, ERR_DATA_LOSS,
                       "the guest agent has completed an upload of %" PRIu64 " bytes with %" PRIu64,
                       size, offset);
    }
    s->is_done = true;
    return 0;
}

/* Asks for the offset. GET, not HEAD: the error of a failed upload is in the body. */
static int upload_query(struct sender *s, struct err *e)
{
    const char *headers[] = {s->c->auth, NULL};
    struct http_response res = {0};
    struct http_request req = {.method = "GET",
                               .url = s->url,
                               .headers = headers,
                               .answer_timeout_ms = s->c->answer_ms,
                               .deadline_mono_ms = s->u->deadline_mono_ms};
    int r = client_send(s->c, &req, &res, e);

    if (r < 0)
        return r;
    r = take_offset(s, &res, e);
    http_response_done(&res);
    return r;
}

static int upload_send_rest(struct sender *s, struct err *e)
{
    char offset[UPLOAD_HEADER_BYTES];
    const char *headers[] = {"Content-Type: application/partial-upload", "Upload-Complete: ?1",
                             offset, s->c->auth, NULL};
    struct http_response res = {0};
    struct http_request req = {.method = "PATCH",
                               .url = s->url,
                               .headers = headers,
                               .read = read_piece,
                               .read_arg = s,
                               .read_len = s->began.st_size - (int64_t)s->offset,
                               .answer_timeout_ms = s->c->work_ms,
                               .deadline_mono_ms = s->u->deadline_mono_ms};
    int r = check_unchanged(s, e);

    if (r < 0)
        return r;
    (void)snprintf(offset, sizeof(offset), "Upload-Offset: %" PRIu64, s->offset);
    s->at = s->offset;
    r = client_send(s->c, &req, &res, e);
    if (r < 0)
        return r;
    r = take_offset(s, &res, e);
    if (r == 0 && !s->is_done)
        r = err_set(e, ERR_DATA_LOSS, "the guest agent did not complete an upload");
    http_response_done(&res);
    return r;
}

/* Without it the agent keeps the bytes for UPLOAD_MAX_AGE. The context may be canceled, so this
 * takes its own connection. */
static void upload_cancel(struct sender *s)
{
    const char *headers[] = {s->c->auth, NULL};
    struct http *own = s->c->http, *fresh = NULL;
    struct http_response res = {0};
    struct http_request req = {.method = "DELETE",
                               .url = s->url,
                               .headers = headers,
                               .deadline_mono_ms = clock_mono_ms() + UPLOAD_CANCEL_MS};

    if (http_new(-1, &fresh, NULL) < 0)
        return;
    s->c->http = fresh;
    for (int i = 0; i < UPLOAD_CANCEL_TRIES; i++) {
        int r = client_send(s->c, &req, &res, NULL);

        if (r != -ERR_UNAVAILABLE && r != -ERR_DATA_LOSS)
            break;
    }
    s->c->http = own;
    http_response_done(&res);
    (void)http_free(fresh);
}

/* ERR_ABORTED: the offset was wrong. ERR_NOT_FOUND: the agent was replaced, and the upload starts
 * again. */
static bool is_worth_a_retry(const struct sender *s, int r)
{
    return !s->is_final && (r == -ERR_UNAVAILABLE || r == -ERR_DATA_LOSS || r == -ERR_INTERNAL ||
                            r == -ERR_ABORTED || r == -ERR_NOT_FOUND);
}

/* Sends the rest until the upload is complete; asks for the offset after each cut. Each bound is for
 * an agent that lets the upload go on a little with each attempt. */
static int upload_run_rest(struct sender *s, struct err *e)
{
    int64_t until_ms = clock_mono_ms() + (s->u->retry_ms ? s->u->retry_ms : UPLOAD_RETRY_MS);
    unsigned n_failures = 0;
    int64_t pause_ms = UPLOAD_RETRY_FIRST_MS;
    uint64_t best = 0;
    int r = 0;

    while (!s->is_done) {
        r = upload_send_rest(s, e);
        while (r < 0) {
            if (!is_worth_a_retry(s, r))
                return r;
            if (n_failures++ == UPLOAD_RETRIES ||
                clock_mono_ms() >= until_ms + (int64_t)(best / UPLOAD_LEAST_RATE) * 1000)
                return err_wrap(e, r, "the upload of '%s' does not get on", s->u->name);
            if (socket_wait_canceled(s->c->cancel_fd, (int)pause_ms))
                return err_set(e, ERR_CANCELED, "canceled");
            pause_ms = pause_ms * 2 > UPLOAD_RETRY_MOST_MS ? UPLOAD_RETRY_MOST_MS : pause_ms * 2;
            if (r == -ERR_NOT_FOUND)
                free(TAKE(s->url));
            r = s->url ? upload_query(s, e) : upload_begin(s, e);
        }
        if (s->offset >= best + UPLOAD_PROGRESS_BYTES) {
            best = s->offset;
            n_failures = 0;
            pause_ms = UPLOAD_RETRY_FIRST_MS;
        }
    }
    return 0;
}

int client_upload(struct client *c, const struct client_upload *u, bool *ret_begun, struct err *e)
{
    struct sender s = {.c = c, .u = u};
    int r;

    *ret_begun = false;
    if (fstat(u->fd, &s.began) < 0)
        return err_at(e, err_sys(e, errno, "stat '%s'", u->name), u->name);
    r = upload_begin(&s, e);
    if (r == 0) {
        *ret_begun = true;
        r = upload_run_rest(&s, e);
    }
    if (r < 0 && s.url && !s.is_done)
        upload_cancel(&s);
    free(s.url);
    return r;
}
