#include "http/respond.h"

#include <errno.h>
#include <microhttpd.h>
#include <stdlib.h>

#include "common/str.h"
#include "http/route.h"
#include "http/state.h"

/* struct reply is the library's struct MHD_Response under a name of ours; it has no definition. */
static struct MHD_Response *mhd_of(struct reply *r)
{
    return (struct MHD_Response *)r;
}

static struct reply *reply_of(struct MHD_Response *response)
{
    return (struct reply *)response;
}

struct reply *reply_new_empty(void)
{
    return reply_of(MHD_create_response_from_buffer(0, (void *)"", MHD_RESPMEM_PERSISTENT));
}

struct reply *reply_new_copy(const char *data, size_t len)
{
    if (!len)
        return reply_new_empty();
    return reply_of(
        MHD_create_response_from_buffer(len, (void *)(uintptr_t)data, MHD_RESPMEM_MUST_COPY));
}

struct reply *reply_new_take(char *text, size_t len)
{
    return reply_of(MHD_create_response_from_buffer(len, text, MHD_RESPMEM_MUST_FREE));
}

struct reply *reply_new_fd(int fd, uint64_t offset, uint64_t len)
{
    return reply_of(MHD_create_response_from_fd_at_offset64(len, fd, offset));
}

struct reply *reply_new_stream(uint64_t size, size_t block_bytes,
                               ssize_t (*read)(void *arg, uint64_t pos, char *data, size_t max),
                               void *arg, void (*free_arg)(void *arg))
{
    return reply_of(MHD_create_response_from_callback(size, block_bytes, read, arg, free_arg));
}

void reply_add_header(struct reply *r, const char *name, const char *value)
{
    (void)MHD_add_response_header(mhd_of(r), name, value);
}

bool reply_has_header(struct reply *r, const char *name)
{
    return MHD_get_response_header(mhd_of(r), name);
}

void reply_add_trailer(struct reply *r, const char *name, const char *value)
{
    (void)MHD_add_response_footer(mhd_of(r), name, value);
}

struct reply *reply_free(struct reply *r)
{
    if (r)
        MHD_destroy_response(mhd_of(r));
    return NULL;
}

int respond_queue_plain(struct request *q, int status, struct reply *response, struct err *e)
{
    enum MHD_Result queued;

    if (!response)
        return err_oom(e);
    if (status == HTTP_SWITCHING_PROTOCOLS) {
        (void)pthread_mutex_lock(&q->lock);
        q->is_upgraded = true;
        (void)pthread_mutex_unlock(&q->lock);
    }
    queued = MHD_queue_response(q->mhd, (unsigned)status, mhd_of(response));
    reply_free(response);
    if (queued != MHD_YES)
        return err_set(e, ERR_INTERNAL, "the HTTP library did not take the reply");
    q->status = status;
    q->stage = STAGE_REPLIED;
    return 0;
}

int respond_queue(struct request *q, int status, struct reply *response, struct err *e)
{
    if (!response)
        return err_oom(e);
    if (!reply_has_header(response, "Cache-Control"))
        reply_add_header(response, "Cache-Control", "no-store");
    reply_add_header(response, "X-Content-Type-Options", "nosniff");
    if (q->server->o.service->add_headers)
        q->server->o.service->add_headers(q, response);
    if (q->server->stopping)
        reply_add_header(response, "Connection", "close");
    return respond_queue_plain(q, status, response, e);
}

int respond_text_take(struct request *q, int status, const char *type, char *text, size_t len,
                      struct err *e)
{
    struct reply *response = reply_new_take(text, len);

    if (!response) {
        free(text);
        return err_oom(e);
    }
    reply_add_header(response, "Content-Type", type);
    q->bytes_out += len;
    return respond_queue(q, status, response, e);
}

int respond_empty(struct request *q, int status, struct err *e)
{
    return respond_queue(q, status, reply_new_empty(), e);
}

int respond_write_error(const struct request *q, const struct err *error, int status,
                        struct error_reply *ret, struct err *e)
{
    *ret = (struct error_reply){.status = status ? status : err_http_status(error->code)};
    return q->server->o.service->write_error(q, error, ret, e);
}

int respond_error(struct request *q, const struct err *error, int status, struct err *e)
{
    struct error_reply reply;
    struct reply *response;
    char allow[64];
    int r;

    r = respond_write_error(q, error, status, &reply, e);
    if (r < 0)
        return r;
    response = reply_new_take(reply.text, reply.len);
    if (!response) {
        free(reply.text);
        return err_oom(e);
    }
    reply_add_header(response, "Content-Type", reply.type);
    if (reply.status == HTTP_UNAUTHORIZED && reply.challenge)
        reply_add_header(response, "WWW-Authenticate", reply.challenge);
    if (reply.status == HTTP_METHOD_NOT_ALLOWED) {
        route_allow(q->route_verbs, allow, sizeof(allow));
        reply_add_header(response, "Allow", allow);
    }
    for (unsigned i = 0; i < q->n_reply_headers; i++)
        reply_add_header(response, q->reply_headers[i].name, q->reply_headers[i].value);
    if (reply.status == HTTP_BAD_GATEWAY)
        reply_add_header(response, "Retry-After", "1"); /* a server may be about to start */
    q->bytes_out += reply.len;
    return respond_queue(q, reply.status, response, e);
}

int respond_bytes_status(const struct err *error)
{
    if (error->code == ERR_ABORTED &&
        (str_eq(error->field, "if_match") || str_eq(error->field, "if_none_match")))
        return HTTP_PRECONDITION_FAILED;
    if (error->code == ERR_DATA_LOSS && str_eq(error->field, "digest"))
        return HTTP_BAD_REQUEST;
    if (error->code != ERR_EXHAUSTED)
        return 0;
    if (error->sys == EFBIG)
        return 413;
    return error->sys == ENOSPC || error->sys == EDQUOT ? HTTP_INSUFFICIENT_STORAGE : 0;
}

const char *respond_reason(int status)
{
    return MHD_get_reason_phrase_for((unsigned)status);
}
