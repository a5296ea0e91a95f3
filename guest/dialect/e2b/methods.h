#pragma once
/* methods: the rows of methods.def. The handlers are as those of api/rpc.h. */
#include "api/rpc.h"

#define UNARY(fn) int e2b_##fn(const struct rpc_call *call, json_t **ret, struct err *e);
#define SOURCE(fn) int e2b_##fn(const struct rpc_call *call, struct source **ret, struct err *e);
#define INFLOW(fn) int e2b_##fn(const struct rpc_call *call, struct inflow **ret, struct err *e);
#define R(service, method, fn, kind, flags) kind(fn)
#include "dialect/e2b/methods.def"
#undef R
#undef INFLOW
#undef SOURCE
#undef UNARY
