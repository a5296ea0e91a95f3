#include "dialect/e2b/cors.h"

#include <stdio.h>
#include <string.h>

#include "common/cleanup.h"
#include "agent.h"
#include "dialect/e2b/http_handlers.h"
#include "http/respond.h"
#include "http/state.h"
#include "system/auth.h"

#define MAX_AGE_S "7200"

static const struct route preflight = {
    .name = "e2b_preflight",
    .prefix = "",
    .verbs = VERB_OPTIONS,
    .flags = ROUTE_E2B | ROUTE_OPEN | ROUTE_QUIET,
    .ops = &e2b_preflight_ops,
};

bool cors_is_preflight(struct request *q, const char *verb, const struct route **ret)
{
    if (strcmp(verb, "OPTIONS") != 0 || !request_header(q, "Origin") ||
        !request_header(q, "Access-Control-Request-Method"))
        return false;
    *ret = &preflight;
    return true;
}

/* Nothing but the token tells a page that may call from any other. */
static bool is_allowed_here(const struct request *q)
{
    return q->server->o.cors || !auth_is_open(q->server->agent->auth);
}

void cors_add_headers(struct request *q, struct MHD_Response *response)
{
    respond_add_header(response, "Vary", "Origin");
    if (!request_header(q, "Origin") || !is_allowed_here(q))
        return;
    respond_add_header(response, "Access-Control-Allow-Origin", "*");
    respond_add_header(response, "Access-Control-Expose-Headers",
                       "Grpc-Status, Grpc-Message, Grpc-Status-Details-Bin, Location, "
                       "Cache-Control, X-Content-Type-Options");
}

static bool is_allowed(const char *verb)
{
    static const char *const verbs[] = {"HEAD", "GET", "POST", "PUT", "PATCH", "DELETE"};

    for (size_t i = 0; i < N_ELEMENTS(verbs); i++)
        if (strcmp(verbs[i], verb) == 0)
            return true;
    return false;
}

/* A method that is not allowed gets the same reply without the permissions. */
static int preflight_finish(struct request *q, struct err *e)
{
    const char *verb = request_header(q, "Access-Control-Request-Method");
    const char *headers = request_header(q, "Access-Control-Request-Headers");
    struct MHD_Response *response =
        MHD_create_response_from_buffer(0, (void *)"", MHD_RESPMEM_PERSISTENT);

    if (!response)
        return err_oom(e);
    respond_add_header(response, "Vary", "Access-Control-Request-Method");
    respond_add_header(response, "Vary", "Access-Control-Request-Headers");
    if (is_allowed(verb)) {
        respond_add_header(response, "Access-Control-Allow-Methods", verb);
        if (headers && *headers)
            respond_add_header(response, "Access-Control-Allow-Headers", headers);
        respond_add_header(response, "Access-Control-Max-Age", MAX_AGE_S);
    }
    return respond_queue(q, MHD_HTTP_NO_CONTENT, response, e);
}

const struct request_ops e2b_preflight_ops = {.finish = preflight_finish};
