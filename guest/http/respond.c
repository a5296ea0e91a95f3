#include "http/respond.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/buf.h"
#include "common/jsonx.h"
#include "common/str.h"
#include "common/wire/wire.h"
#include "dialect/e2b/wording.h"
#include "api/codec.h"
#include "dialect/e2b/cors.h"
#include "api/encode.h"
#include "http/route.h"
#include "http/state.h"

#define ENVELOPE_MAX_BYTES 8192
#define PROBLEM_TYPES "https://iana.org/assignments/http-problem-types#"

static bool is_e2b(const struct request *q)
{
    return q->route && q->route->flags & ROUTE_E2B;
}

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
    if (is_e2b(q))
        cors_add_headers(q, response);
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

int respond_json(struct request *q, int status, const json_t *body, struct err *e)
{
    char *text;
    size_t len;
    int r;

    r = jx_dump(body, &text, &len, e);
    if (r < 0)
        return r;
    return respond_text_take(q, status, WIRE_TYPE_JSON, text, len, e);
}

int respond_empty(struct request *q, int status, struct err *e)
{
    return respond_queue(q, status,
                         MHD_create_response_from_buffer(0, (void *)"", MHD_RESPMEM_PERSISTENT), e);
}

/* RFC 9457: a problem's members stand beside ours. */
static int add_problem(const struct problem *p, const struct err *error, int status, json_t *body)
{
    int r = json_object_set_new(body, "type", json_sprintf("%s%s", PROBLEM_TYPES, p->type));

    r |= json_object_set_new(body, "title", json_string(error->message));
    r |= json_object_set_new(body, "status", json_integer(status));
    if (p->has_offsets) {
        r |= json_object_set_new(body, "expected-offset",
                                 json_integer((json_int_t)p->expected_offset));
        r |= json_object_set_new(body, "provided-offset",
                                 json_integer((json_int_t)p->provided_offset));
    }
    return r;
}

static json_t *new_error(const struct request *q, const struct err *error, int status)
{
    struct err copy = *error;

    if (!is_e2b(q))
        return jx_new_error(error);
    if (!q->connect)
        return wording_new_rest_error(error, status ? status : err_http_status(error->code));
    wording_make_rpc_error(&copy);
    return jx_new_error(&copy);
}

static int error_envelope(const struct err *error, char **ret, size_t *ret_len, struct err *e)
{
    struct err copy = *error;
    struct buf out;
    int r;

    wording_make_rpc_error(&copy);
    buf_init(&out, ENVELOPE_MAX_BYTES);
    r = encode_end(ENCODING_CONNECT, &copy, &out, e);
    if (r == 0) {
        *ret_len = out.len;
        *ret = buf_take(&out);
    }
    buf_done(&out);
    return r;
}

int respond_error_status(const struct request *q, const struct err *error, int status)
{
    if (q->connect == CONNECT_STREAM)
        return MHD_HTTP_OK;
    return status ? status : err_http_status(error->code);
}

int respond_error_text(const struct request *q, const struct err *error, int status, char **ret,
                       size_t *ret_len, struct err *e)
{
    _cleanup_json_ json_t *body = NULL;

    if (q->connect == CONNECT_STREAM)
        return error_envelope(error, ret, ret_len, e);
    body = new_error(q, error, status);
    if (!body || (q->problem.type && add_problem(&q->problem, error, status, body) < 0))
        return err_oom(e);
    return jx_dump(body, ret, ret_len, e);
}

const char *respond_error_type(const struct request *q)
{
    if (q->connect == CONNECT_STREAM)
        return codec_type(q);
    if (is_e2b(q) && !q->connect)
        return "application/json; charset=utf-8";
    return q->problem.type ? "application/problem+json" : WIRE_TYPE_JSON;
}

int respond_error(struct request *q, const struct err *error, int status, struct err *e)
{
    struct MHD_Response *response;
    char allow[64];
    char *text;
    size_t len;
    int r;

    status = respond_error_status(q, error, status);
    r = respond_error_text(q, error, status, &text, &len, e);
    if (r < 0)
        return r;
    response = MHD_create_response_from_buffer(len, text, MHD_RESPMEM_MUST_FREE);
    if (!response) {
        free(text);
        return err_oom(e);
    }
    respond_add_header(response, "Content-Type", respond_error_type(q));
    if (status == MHD_HTTP_UNAUTHORIZED && !is_e2b(q))
        respond_add_header(response, "WWW-Authenticate", "Bearer realm=\"bellhop\"");
    if (status == MHD_HTTP_METHOD_NOT_ALLOWED) {
        route_allow(q->route, allow, sizeof(allow));
        respond_add_header(response, "Allow", allow);
    }
    for (unsigned i = 0; i < q->n_reply_headers; i++)
        respond_add_header(response, q->reply_headers[i].name, q->reply_headers[i].value);
    if (status == MHD_HTTP_BAD_GATEWAY)
        respond_add_header(response, "Retry-After", "1"); /* a server may be about to start */
    q->bytes_out += len;
    return respond_queue(q, status, response, e);
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
