#pragma once
/*
 * rpc: methods: JSON in, one call of a module, JSON out. No logic here, no HTTP. The native API's
 * are the rows of common/wire/rpc.def. A handler makes one reply, or a source (a reply that is produced
 * over time), or an inflow (the client streams, and gets one reply).
 */
#include <jansson.h>

#include "common/err.h"

struct waker {
    void (*fn)(void *arg);
    void *arg;
};

/* ---- source ---- */

/*
 * The server pulls messages when the client can take them (back-pressure); a source without a message
 * returns SOURCE_WAIT and calls its waker later. A SOURCE handler makes it; the server owns it and frees
 * it once.
 *
 * Threads: next() and free() are never called concurrently. The waker may be called from any thread,
 * any number of times, but not after free() has returned: a source takes its own lock for that.
 */
enum source_state {
    SOURCE_WAIT = 0, /* nothing now; the waker will be called */
    SOURCE_MESSAGE,  /* *ret_msg is set, and the caller's */
    SOURCE_TEXT,     /* source.text has messages, each a line of JSON with its line feed */
    SOURCE_END,      /* no more messages */
};

struct source;

struct source_ops {
    /* enum source_state, or a negative error that ends the reply. Must not block. */
    int (*next)(struct source *s, json_t **ret_msg, struct err *e);
    /* The reply is over or the client has gone: stop the work, free everything. Must not block. */
    void (*free)(struct source *s);
};

/* The end of next(): hands over a message, or fails with out of memory, as its constructor did. */
static inline int source_message_take(json_t *msg, json_t **ret, struct err *e)
{
    if (!msg)
        return err_oom(e);
    *ret = msg;
    return SOURCE_MESSAGE;
}

/* Embedded first in the struct of each kind of source. */
struct source {
    const struct source_ops *ops;
    struct waker waker; /* set by the server before the first next() */
    const char *text;   /* after SOURCE_TEXT, until the next call of next() or free() */
    size_t text_len;
};

/* For the server. Atomic, because another thread may wake a source as soon as it is made. */
static inline void source_set_waker(struct source *s, void (*fn)(void *arg), void *arg)
{
    s->waker.arg = arg;
    __atomic_store_n(&s->waker.fn, fn, __ATOMIC_RELEASE);
}

/* source: a struct source. Fits the callbacks of the modules. */
static inline void source_wake(void *source)
{
    struct source *s = source;
    void (*fn)(void *arg) = __atomic_load_n(&s->waker.fn, __ATOMIC_ACQUIRE);

    if (fn)
        fn(s->waker.arg);
}

/* ---- inflow ---- */

/*
 * The server owns it and frees it once. Its functions are never called concurrently, and must not block:
 * INFLOW_WAIT says that the waker will be called, from any thread, but not after free() has returned.
 */
#define INFLOW_WAIT 0 /* call again with the same arguments after the wake */
#define INFLOW_DONE 1

struct inflow;

struct inflow_ops {
    /* Takes the next message, which is borrowed. INFLOW_WAIT, INFLOW_DONE, or a negative error, which ends the call. */
    int (*take)(struct inflow *f, json_t *msg, struct err *e);
    /* All messages were taken. The same results; with INFLOW_DONE the answer is in *ret. */
    int (*finish)(struct inflow *f, json_t **ret, struct err *e);
    void (*free)(struct inflow *f);
};

/* Embedded first in the struct of each kind. */
struct inflow {
    const struct inflow_ops *ops;
    struct waker waker; /* set by the server before the first take() */
};

static inline void inflow_wake(struct inflow *f)
{
    f->waker.fn(f->waker.arg);
}

/* ---- methods ---- */

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

/* The end of a unary handler: hands over the reply, or fails with out of memory, as its constructor did. */
static inline int rpc_reply_take(json_t *reply, json_t **ret, struct err *e)
{
    if (!reply)
        return err_oom(e);
    *ret = reply;
    return 0;
}

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
