#include "dialect/e2b/routes.h"

#include <stdio.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/wire/wire.h"
#include "dialect/e2b/compose.h"
#include "dialect/e2b/init_request.h"
#include "dialect/e2b/methods.h"
#include "api/rpc.h"
#include "dialect/e2b/http_handlers.h"
#include "api/handlers.h"

static const struct route routes[] = {
    {
        .name = "e2b_rpc",
        .prefix = "/process.Process/", /* and the other service: found by e2b_method_find() */
        .verbs = VERB_POST,
        .flags = ROUTE_E2B,
        .max_body_bytes = WIRE_JSON_MAX_BYTES,
        .ops = &call_ops,
    },
    {
        .name = "e2b_inflow",
        .prefix = "/process.Process/", /* the methods to which the client streams */
        .verbs = VERB_POST,
        .flags = ROUTE_E2B | ROUTE_SLOW_BODY,
        .max_body_bytes = UINT64_MAX,
        .ops = &inflow_ops,
    },
    {
        .name = "e2b_health",
        .prefix = "/health",
        .verbs = VERB_GET,
        .flags = ROUTE_E2B | ROUTE_OPEN | ROUTE_RESERVE | ROUTE_QUIET,
        .max_body_bytes = REQUEST_DRAIN_BYTES, /* dropped, with GET as with envd */
        .ops = &e2b_health_ops,
    },
    {
        .name = "e2b_init",
        .prefix = "/init",
        .verbs = VERB_POST,
        .flags = ROUTE_E2B | ROUTE_OPEN | ROUTE_QUIET, /* the token is in the body */
        .max_body_bytes = INIT_MAX_BYTES,
        .ops = &e2b_init_ops,
    },
    {
        .name = "e2b_envs",
        .prefix = "/envs",
        .verbs = VERB_GET,
        .flags = ROUTE_E2B | ROUTE_QUIET,
        .max_body_bytes = REQUEST_DRAIN_BYTES, /* dropped, with GET as with envd */
        .ops = &e2b_envs_ops,
    },
    {
        .name = "e2b_metrics",
        .prefix = "/metrics",
        .verbs = VERB_GET,
        .flags = ROUTE_E2B | ROUTE_QUIET,
        .max_body_bytes = REQUEST_DRAIN_BYTES, /* dropped, with GET as with envd */
        .ops = &e2b_metrics_ops,
    },
    {
        .name = "e2b_files",
        .prefix = "/files",
        .verbs = VERB_GET | VERB_POST,
        .flags = ROUTE_E2B | ROUTE_OPEN | ROUTE_CHANGES, /* open: file_query checks who may */
        .max_body_bytes = UINT64_MAX,
        .ops = &e2b_files_ops,
    },
    {
        .name = "e2b_compose",
        .prefix = "/files/compose",
        .verbs = VERB_POST,
        .flags = ROUTE_E2B | ROUTE_CHANGES,
        .max_body_bytes = COMPOSE_MAX_BYTES,
        .ops = &e2b_compose_ops,
    },
    {
        .name = "e2b_unknown",
        .prefix = "/process.Process/",
        .flags = ROUTE_E2B | ROUTE_REST | ROUTE_ANY_VERB,
        .max_body_bytes = WIRE_JSON_MAX_BYTES,
        .ops = &e2b_unknown_ops,
    },
    {
        .name = "e2b_unknown_fs",
        .prefix = "/filesystem.Filesystem/",
        .flags = ROUTE_E2B | ROUTE_REST | ROUTE_ANY_VERB,
        .max_body_bytes = WIRE_JSON_MAX_BYTES,
        .ops = &e2b_unknown_ops,
    },
};

const struct route *e2b_route_at(size_t i)
{
    return i < N_ELEMENTS(routes) ? &routes[i] : NULL;
}

const struct route *e2b_route_find(const char *path, size_t len,
                                   const struct rpc_method **ret_method, const char **ret_rest)
{
    char name[128];

    if (len < sizeof(name)) {
        (void)snprintf(name, sizeof(name), "%.*s", (int)len, path);
        *ret_method = e2b_method_find(name);
        if (*ret_method)
            return &routes[(*ret_method)->kind == RPC_INFLOW];
    }
    for (size_t i = 2; i < N_ELEMENTS(routes); i++) {
        size_t n = strlen(routes[i].prefix);

        if (routes[i].flags & ROUTE_REST ? len < n : len != n)
            continue;
        if (memcmp(path, routes[i].prefix, n) != 0)
            continue;
        if (routes[i].flags & ROUTE_REST)
            *ret_rest = path + n;
        return &routes[i];
    }
    return NULL;
}
