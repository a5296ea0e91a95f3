#pragma once
/* routes: E2B's, as http/route.h has the native ones. */
#include <stddef.h>

#include "http/request.h"

const struct route *e2b_route_find(const char *path, size_t len,
                                   const struct rpc_method **ret_method, const char **ret_rest);
/* Row i, or NULL past the last. */
const struct route *e2b_route_at(size_t i);
