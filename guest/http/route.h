#pragma once
/* route: the table of what there is, by path. */
#include <stddef.h>

#include "http/request.h"

/* The row for a raw path; for a method of the rpc API also its row. *ret_rest: what follows the
 * prefix, of a row with ROUTE_REST. NULL when there is none. */
const struct route *route_find(const char *path, size_t len, const struct rpc_method **ret_method,
                               const char **ret_rest);
/* Row i of the native API, or NULL past the last. The first is the rpc API's. */
const struct route *route_at(size_t i);

/* Names the counters of all routes and methods. Once, before threads start. */
int route_init_metrics(struct err *e);
int route_metric(const struct route *route, const struct rpc_method *method);

/* "GET, HEAD" for the Allow header. */
void route_allow(const struct route *route, char *out, size_t size);
