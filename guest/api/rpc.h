#pragma once
/*
 * rpc: the native API's methods. One handler for each row of common/wire/rpc.def: JSON in, one
 * call of a module, JSON out. No logic here, no HTTP.
 */
#include <jansson.h>

#include "common/err.h"
#include "api/inflow.h"
#include "api/source.h"

enum rpc_kind {
    RPC_UNARY,
    RPC_SOURCE,
    RPC_INFLOW, /* a dialect's alone */
};

#define RPC_BLOCKS (1u << 0)
#define RPC_SINGLE (1u << 1)
#define RPC_READS (1u << 2)
#define RPC_QUIET (1u << 3)
#define RPC_DIALECT (1u << 4) /* a dialect's row, of a table of its own; Connect's types alone */
#define RPC_KEEPS_TIME \
    (1u << 5) /* the handler ends it at the client's deadline; the server later */

struct agent; /* the modules' instances, made by main: agent.h */

struct rpc_call {
    struct agent *agent;
    json_t *params; /* borrowed; an object */
    /* Out of the headers, for a dialect's methods alone: */
    const char *user;     /* borrowed; NULL: none is named */
    int64_t timeout_ms;   /* that the client gives; 0: no end */
    int64_t keepalive_ms; /* of silence, before a sign of life; 0: the dialect's default */
    bool wants_replay;    /* what was written before as well */
    bool is_legacy;       /* a client that fails on fields that it does not know */
};

typedef int (*rpc_unary_fn)(const struct rpc_call *call, json_t **ret, struct err *e);
typedef int (*rpc_source_fn)(const struct rpc_call *call, struct source **ret, struct err *e);
/* call->params is NULL: the messages are yet to come. */
typedef int (*rpc_inflow_fn)(const struct rpc_call *call, struct inflow **ret, struct err *e);

struct rpc_method {
    const char *service; /* "Exec": the path is /bellhop.v1.Exec/Run; a dialect's has its prefix */
    const char *name;
    enum rpc_kind kind;
    unsigned flags;
    rpc_unary_fn unary; /* one of the three */
    rpc_source_fn source;
    rpc_inflow_fn inflow;
};

/* "/bellhop.v1.Exec/Run" -> its row, or NULL. */
const struct rpc_method *rpc_find(const char *path);
/* Row i, or NULL past the last. */
const struct rpc_method *rpc_at(size_t i);

/* The handlers. */
#define UNARY(fn) int rpc_##fn(const struct rpc_call *call, json_t **ret, struct err *e);
#define SOURCE(fn) int rpc_##fn(const struct rpc_call *call, struct source **ret, struct err *e);
#define R(service, method, fn, kind, flags) kind(fn)
#include "common/wire/rpc.def"
#undef R
#undef SOURCE
#undef UNARY
