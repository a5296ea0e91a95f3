#include "http/route.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/wire/wire.h"
#include "dialect/e2b/methods.h"
#include "api/rpc.h"
#include "dialect/e2b/routes.h"
#include "api/handlers.h"
#include "system/metrics.h"

static const struct route routes[] = {
    {
        .name = "rpc",
        .prefix = "/" WIRE_SERVICE_PREFIX,
        .verbs = VERB_POST,
        .max_body_bytes = WIRE_JSON_MAX_BYTES,
        .ops = &call_ops,
        .summary = "a method",
    },
    {
        .name = "health",
        .prefix = "/v1/health",
        .verbs = VERB_GET | VERB_HEAD,
        .flags = ROUTE_OPEN | ROUTE_RESERVE | ROUTE_QUIET,
        .ops = &health_ops,
        .summary = "204 while the agent answers; needs no token",
    },
    {
        .name = "ready",
        .prefix = "/v1/ready",
        .verbs = VERB_GET | VERB_HEAD,
        .flags = ROUTE_QUIET,
        .ops = &ready_ops,
        .summary = "what works in the box; 503 when something needed is missing",
    },
    {
        .name = "metrics",
        .prefix = "/v1/metrics",
        .verbs = VERB_GET | VERB_HEAD,
        .flags = ROUTE_QUIET,
        .ops = &metrics_ops,
        .summary = "counters as Prometheus text",
    },
    {
        .name = "openapi",
        .prefix = "/v1/openapi.json",
        .verbs = VERB_GET | VERB_HEAD,
        .flags = ROUTE_QUIET,
        .ops = &openapi_ops,
        .summary = "this document",
    },
    {
        .name = "files",
        .prefix = "/v1/files/",
        .verbs =
            VERB_GET | VERB_HEAD | VERB_PUT | VERB_POST | VERB_PATCH | VERB_DELETE | VERB_OPTIONS,
        .flags = ROUTE_REST | ROUTE_CHANGES,
        .max_body_bytes = UINT64_MAX,
        .ops = &files_ops,
        .summary = "a file's bytes",
    },
    {
        .name = "uploads",
        .prefix = "/v1/uploads/",
        .verbs = VERB_GET | VERB_HEAD | VERB_PATCH | VERB_DELETE,
        .flags = ROUTE_REST | ROUTE_CHANGES,
        .max_body_bytes = UINT64_MAX,
        .ops = &uploads_ops,
        .summary = "an upload that can be resumed",
    },
    {
        .name = "archive",
        .prefix = "/v1/archive",
        .verbs = VERB_GET | VERB_HEAD | VERB_PUT | VERB_POST,
        .flags = ROUTE_CHANGES | ROUTE_POST_READS,
        .max_body_bytes = UINT64_MAX,
        .ops = &archive_ops,
        .summary = "a tree as an archive",
    },
    {
        .name = "proxy",
        .prefix = "/v1/proxy/",
        .flags = ROUTE_REST | ROUTE_ANY_VERB | ROUTE_CHANGES,
        .max_body_bytes = UINT64_MAX,
        .ops = &proxy_ops,
        .summary = "HTTP to a port in the box",
    },
    {
        .name = "tunnel",
        .prefix = "/v1/tunnel/",
        .verbs = VERB_GET,
        .flags = ROUTE_REST,
        .ops = &tunnel_ops,
        .summary = "bytes to a port in the box, by Upgrade: tcp",
    },
};

const struct route *route_at(size_t i)
{
    return i < N_ELEMENTS(routes) ? &routes[i] : NULL;
}

static bool matches(const struct route *route, const char *path, size_t len)
{
    size_t n = strlen(route->prefix);

    return route->flags & ROUTE_REST ? len >= n && memcmp(path, route->prefix, n) == 0
                                     : len == n && memcmp(path, route->prefix, n) == 0;
}

const struct route *route_find(const char *path, size_t len, const struct rpc_method **ret_method,
                               const char **ret_rest)
{
    char name[128];

    if (len < sizeof(name)) {
        (void)snprintf(name, sizeof(name), "%.*s", (int)len, path);
        *ret_method = rpc_find(name);
        if (*ret_method)
            return &routes[0];
    }
    for (size_t i = 1; i < N_ELEMENTS(routes); i++)
        if (matches(&routes[i], path, len)) {
            if (routes[i].flags & ROUTE_REST)
                *ret_rest = path + strlen(routes[i].prefix);
            return &routes[i];
        }
    return e2b_route_find(path, len, ret_method, ret_rest);
}

/* Whose counters these are: those of a route, or of a method. */
struct counted {
    const struct route *route;
    const struct rpc_method *method;
};

static struct counted counted[METRICS_MAX_ROUTES];
static size_t n_counted;

static void count_methods(const struct rpc_method *(*at)(size_t i))
{
    for (size_t i = 0; at(i) && n_counted < N_ELEMENTS(counted); i++)
        counted[n_counted++].method = at(i);
}

static void count_routes(const struct route *(*at)(size_t i))
{
    for (size_t i = 0; at(i) && n_counted < N_ELEMENTS(counted); i++)
        counted[n_counted++].route = at(i);
}

/* Counters: 0 is what no route answers. */
int route_init_metrics(struct err *e)
{
    static char names[METRICS_MAX_ROUTES][64];
    const char *all[METRICS_MAX_ROUTES] = {"none"};

    n_counted = 1;
    count_routes(route_at);
    count_routes(e2b_route_at);
    count_methods(rpc_at);
    count_methods(e2b_method_at);
    for (size_t i = 1; i < n_counted; i++) {
        const struct rpc_method *m = counted[i].method;

        all[i] = names[i];
        if (m)
            (void)snprintf(names[i], sizeof(names[i]), "%s/%s", m->service, m->name);
        else
            (void)snprintf(names[i], sizeof(names[i]), "%s", counted[i].route->name);
    }
    return metrics_init(all, n_counted, e);
}

int route_metric(const struct route *route, const struct rpc_method *method)
{
    for (size_t i = 1; i < n_counted; i++)
        if (method ? counted[i].method == method : route && counted[i].route == route)
            return (int)i;
    return 0;
}

void route_allow(const struct route *route, char *out, size_t size)
{
    static const struct {
        enum verb verb;
        const char *name;
    } names[] = {{VERB_GET, "GET"},        {VERB_HEAD, "HEAD"},   {VERB_POST, "POST"},
                 {VERB_PUT, "PUT"},        {VERB_PATCH, "PATCH"}, {VERB_DELETE, "DELETE"},
                 {VERB_OPTIONS, "OPTIONS"}};
    size_t n = 0;

    out[0] = '\0';
    for (size_t i = 0; i < N_ELEMENTS(names) && n < size; i++)
        if (route->verbs & names[i].verb)
            n += (size_t)snprintf(out + n, size - n, "%s%s", n ? ", " : "", names[i].name);
}
