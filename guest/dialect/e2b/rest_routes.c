/* ops: E2B's routes for whoever runs the box. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "common/buf.h"
#include "common/cleanup.h"
#include "common/jsonx.h"
#include "dialect/e2b/e2b.h"
#include "dialect/e2b/init_request.h"
#include "agent.h"
#include "dialect/e2b/http_handlers.h"
#include "api/handlers.h"
#include "http/respond.h"
#include "http/state.h"

int e2b_drop_body(struct request *q, const char *data, size_t *len, struct err *e)
{
    (void)q;
    (void)data;
    (void)e;
    *len = 0;
    return 0;
}

/* ---- /health ---- */

static int health_finish(struct request *q, struct err *e)
{
    return respond_empty(q, MHD_HTTP_NO_CONTENT, e);
}

const struct request_ops e2b_health_ops = {.body = e2b_drop_body, .finish = health_finish};

/* ---- a method that there is not: in plain text, which clients take for "unimplemented" ---- */

static int unknown_finish(struct request *q, struct err *e)
{
    static const char text[] = "404 page not found\n";
    char *copy = strdup(text);

    if (!copy)
        return err_oom(e);
    return respond_text_take(q, MHD_HTTP_NOT_FOUND, "text/plain; charset=utf-8", copy, strlen(text),
                             e);
}

const struct request_ops e2b_unknown_ops = {.body = e2b_drop_body, .finish = unknown_finish};

/* ---- /init ---- */

#define INIT_BUDGET_BYTES \
    (8 * 1024 * 1024) /* of all at once: who sends them need not have the token */

struct init_body {
    struct ask ask;
    struct server *server;
    struct buf text;
    size_t charged; /* of the budget */
};

/* There was a secret in it. */
static void free_init(void *state)
{
    struct init_body *body = state;

    if (body->text.data)
        explicit_bzero(body->text.data, body->text.len);
    body->server->init_bytes -= body->charged;
    buf_done(&body->text);
    free(body);
}

static int init_begin(struct request *q, struct err *e)
{
    struct init_body *body = calloc(1, sizeof(*body));

    if (!body)
        return err_oom(e);
    body->server = q->server;
    buf_init(&body->text, INIT_MAX_BYTES);
    q->state = body;
    q->free_state = free_init;
    return request_reply_header(q, "X-Envd-Version", E2B_VERSION, e);
}

static int init_body(struct request *q, const char *data, size_t *len, struct err *e)
{
    struct init_body *body = q->state;
    int r;

    if (q->server->init_bytes + *len > INIT_BUDGET_BYTES)
        return err_set(e, ERR_EXHAUSTED, "too many large requests at once");
    r = buf_add(&body->text, data, *len, e);
    if (r < 0)
        return r;
    q->server->init_bytes += *len;
    body->charged += *len;
    *len = 0;
    return 0;
}

static void run_init(struct request *q)
{
    struct init_body *body = q->state;

    body->ask.r = e2b_init(q->server->agent, body->text.data, body->text.len, &body->ask.error);
    request_answer(q, &body->ask);
}

static int init_finish(struct request *q, struct err *e)
{
    struct MHD_Response *response;
    struct init_body *body = q->state;
    int r = request_ask(q, &body->ask, run_init, e);

    if (r != 0)
        return r == REQUEST_PARKED ? 0 : r;
    response = MHD_create_response_from_buffer(0, (void *)"", MHD_RESPMEM_PERSISTENT);
    if (!response)
        return err_oom(e);
    respond_add_header(response, "X-Envd-Version", E2B_VERSION);
    return respond_queue(q, MHD_HTTP_NO_CONTENT, response, e);
}

const struct request_ops e2b_init_ops = {
    .begin = init_begin, .body = init_body, .finish = init_finish};

/* ---- /envs ---- */

static int envs_finish(struct request *q, struct err *e)
{
    _cleanup_json_ json_t *envs = NULL;
    int r = e2b_envs(q->server->agent, &envs, e);

    return r < 0 ? r : respond_json(q, MHD_HTTP_OK, envs, e);
}

const struct request_ops e2b_envs_ops = {.body = e2b_drop_body, .finish = envs_finish};

/* ---- /metrics: E2B's as JSON, ours as text for who asks for it ---- */

struct asked_metrics {
    struct ask ask;
    json_t *reply;
};

static void free_metrics(void *state)
{
    struct asked_metrics *m = state;

    json_decref(m->reply);
    free(m);
}

static int metrics_begin(struct request *q, struct err *e)
{
    struct asked_metrics *m = calloc(1, sizeof(*m));

    if (!m)
        return err_oom(e);
    q->state = m;
    q->free_state = free_metrics;
    return 0;
}

static void run_metrics(struct request *q)
{
    struct asked_metrics *m = q->state;

    m->ask.r = e2b_metrics(q->server->agent, &m->reply, &m->ask.error);
    request_answer(q, &m->ask);
}

static bool wants_text(struct request *q)
{
    const char *accept = request_header(q, "Accept");

    return accept && (strcasestr(accept, "text/plain") || strcasestr(accept, "openmetrics-text"));
}

static int metrics_finish(struct request *q, struct err *e)
{
    struct asked_metrics *m = q->state;
    int r;

    if (wants_text(q))
        return metrics_ops.finish(q, e);
    r = request_ask(q, &m->ask, run_metrics, e);
    if (r != 0)
        return r == REQUEST_PARKED ? 0 : r;
    return respond_json(q, MHD_HTTP_OK, m->reply, e);
}

const struct request_ops e2b_metrics_ops = {
    .begin = metrics_begin, .body = e2b_drop_body, .finish = metrics_finish};
