#include "http/respond.h"

#include <errno.h>
#include <stdlib.h>

#include "common/str.h"
#include "http/route.h"
#include "http/state.h"

void respond_add_header(struct MHD_Response *response, const char *name, const char *value)
{
    (void)MHD_add_response_header(response, name, value);
}

int respond_queue_plain(struct request *q, int status, struct MHD_Response *response, struct err *e)
{
    enum MHD_Result queued;

    if (!response)
        return err_oom(e);
    if (status == MHD_HTTP_SWITCHING_PROTOCOLS) {
        (void)pthread_mutex_lock(&q->lock);
        q->is_upgraded = true;
        (void)pthread_mutex_unlock(&q->lock);
    }
    queued = MHD_queue_response(q->mhd, (unsigned)status, response);
    MHD_destroy_response(response);
    if (queued != MHD_YES)
        return err_set(e, ERR_INTERNAL, "the HTTP library did not take the reply");
    q->status = status;
    q->stage = STAGE_REPLIED;
    return 0;
}

int respond_queue(struct request *q, int status, struct MHD_Response *response, struct err *e)
{
    if (!response)
        return err_oom(e);
    if (!MHD_get_response_header(response, "Cache-Control"))
        respond_add_header(response, "Cache-Control", "no-store");
    respond_add_header(response, "X-Content-Type-Options", "nosniff");
    if (q->server->o.service->add_headers)
        q->server->o.service->add_headers(q, response);
    if (q->server->stopping)
        respond_add_header(response, "Connection", "close");
    return respond_queue_plain(q, status, response, e);
}

int respond_text_take(struct request *q, int status, const char *type, char *text, size_t len,
                      struct err *e)
{
    struct MHD_Response *response =
        MHD_create_response_from_buffer(len, text, MHD_RESPMEM_MUST_FREE);

    if (!response) {
        free(text);
        return err_oom(e);
    }
    respond_add_header(response, "Content-Type", type);
    q->bytes_out += len;
    return respond_queue(q, status, response, e);
}

int respond_empty(struct request *q, int status, struct err *e)
{
    return respond_queue(q, status,
                         MHD_create_response_from_buffer(0, (void *)"", MHD_RESPMEM_PERSISTENT), e);
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
    struct MHD_Response *response;
    char allow[64];
    int r;

    r = respond_write_error(q, error, status, &reply, e);
    if (r < 0)
        return r;
    response = MHD_create_response_from_buffer(reply.len, reply.text, MHD_RESPMEM_MUST_FREE);
    if (!response) {
        free(reply.text);
        return err_oom(e);
    }
    respond_add_header(response, "Content-Type", reply.type);
    if (reply.status == MHD_HTTP_UNAUTHORIZED && reply.challenge)
        respond_add_header(response, "WWW-Authenticate", reply.challenge);
    if (reply.status == MHD_HTTP_METHOD_NOT_ALLOWED) {
        route_allow(q->route_verbs, allow, sizeof(allow));
        respond_add_header(response, "Allow", allow);
    }
    for (unsigned i = 0; i < q->n_reply_headers; i++)
        respond_add_header(response, q->reply_headers[i].name, q->reply_headers[i].value);
    if (reply.status == MHD_HTTP_BAD_GATEWAY)
        respond_add_header(response, "Retry-After", "1"); /* a server may be about to start */
    q->bytes_out += reply.len;
    return respond_queue(q, reply.status, response, e);
}

int respond_bytes_status(const struct err *error)
{
    if (error->code == ERR_ABORTED &&
        (str_eq(error->field, "if_match") || str_eq(error->field, "if_none_match")))
        return MHD_HTTP_PRECONDITION_FAILED;
    if (error->code == ERR_DATA_LOSS && str_eq(error->field, "digest"))
        return MHD_HTTP_BAD_REQUEST;
    if (error->code != ERR_EXHAUSTED)
        return 0;
    if (error->sys == EFBIG)
        return 413;
    return error->sys == ENOSPC || error->sys == EDQUOT ? MHD_HTTP_INSUFFICIENT_STORAGE : 0;
}

const char *respond_reason(int status)
{
    return MHD_get_reason_phrase_for((unsigned)status);
}
