#pragma once
/*
 * rpc: methods: JSON in, one call of a module, JSON out. No logic here, no HTTP. The native API's
 * are the rows of common/wire/rpc.def.
 */
#include <jansson.h>

#include "common/err.h"
#include "api/inflow.h"
#include "api/source.h"

enum rpc_kind {
    RPC_UNARY,
    RPC_SOURCE,
    RPC_INFLOW,
};

#define RPC_BLOCKS (1u << 0)
#define RPC_SINGLE (1u << 1)
#define RPC_READS (1u << 2)
#define RPC_QUIET (1u << 3)
#define RPC_KEEPS_TIME \
    (1u << 4) /* the handler ends it at the client's deadline; the server later */

struct agent; /* agent.h */

struct rpc_call {
    struct agent *agent;
    json_t *params;      /* borrowed; an object */
    int64_t timeout_ms;  /* 0: none. Set by the dialect's read_headers */
    const void *headers; /* the dialect's: what its read_headers made */
};

typedef int (*rpc_unary_fn)(const struct rpc_call *call, json_t **ret, struct err *e);
typedef int (*rpc_source_fn)(const struct rpc_call *call, struct source **ret, struct err *e);
/* call->params is NULL: the messages come later. */
typedef int (*rpc_inflow_fn)(const struct rpc_call *call, struct inflow **ret, struct err *e);

struct rpc_method {
    const char *service; /* "Exec": the path is /bellhop.v1.Exec/Run, with the dialect's prefix */
    const char *name;
    enum rpc_kind kind;
    unsigned flags;
    rpc_unary_fn unary; /* one of the three */
    rpc_source_fn source;
    rpc_inflow_fn inflow;
};

/* Row i of the native API, or NULL past the last. */
const struct rpc_method *rpc_at(size_t i);

/* The handlers. */
#define UNARY(fn) int rpc_##fn(const struct rpc_call *call, json_t **ret, struct err *e);
#define SOURCE(fn) int rpc_##fn(const struct rpc_call *call, struct source **ret, struct err *e);
#define R(service, method, fn, kind, flags) kind(fn)
#include "common/wire/rpc.def"
#undef R
#undef SOURCE
#undef UNARY
