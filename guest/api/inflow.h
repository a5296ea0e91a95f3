#pragma once
/*
 * inflow: the reverse of a source: the client streams messages, and gets one answer. The server owns it and
 * frees it once. Its functions are never called concurrently, and must not block: INFLOW_WAIT says that the
 * waker will be called, from any thread, but not after free() has returned.
 */
#include <jansson.h>

#include "common/err.h"
#include "api/source.h"

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
