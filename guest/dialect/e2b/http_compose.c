/* compose: POST /files/compose; what it does is dialect/e2b/compose.c. */
#include "dialect/e2b/compose.h"

#include <stdlib.h>

#include "common/buf.h"
#include "dialect/e2b/http_handlers.h"
#include "http/respond.h"
#include "http/state.h"

struct composing {
    struct ask ask;
    struct buf body;
    json_t *entry; /* the worker's, then the connection's thread's */
};

static void composing_free(void *state)
{
    struct composing *c = state;

    json_decref(c->entry);
    buf_done(&c->body);
    free(c);
}

static int compose_begin(struct request *q, struct err *e)
{
    struct composing *c = calloc(1, sizeof(*c));

    if (!c)
        return err_oom(e);
    buf_init(&c->body, COMPOSE_MAX_BYTES);
    q->state = c;
    q->free_state = composing_free;
    return 0;
}

static int compose_body(struct request *q, const char *data, size_t *len, struct err *e)
{
    struct composing *c = q->state;
    int r = buf_add(&c->body, data, *len, e);

    *len = 0;
    return r;
}

static void compose_job(struct request *q)
{
    struct composing *c = q->state;

    c->ask.r = compose_files(q->server->agent, c->body.data ? c->body.data : "", c->body.len,
                             &c->entry, &c->ask.error);
    request_answer(q, &c->ask);
}

static int compose_finish(struct request *q, struct err *e)
{
    struct composing *c = q->state;
    int r = request_ask(q, &c->ask, compose_job, e);

    if (r == REQUEST_PARKED)
        return 0;
    return r < 0 ? r : respond_json(q, MHD_HTTP_OK, c->entry, e);
}

const struct request_ops e2b_compose_ops = {
    .begin = compose_begin, .body = compose_body, .finish = compose_finish};
