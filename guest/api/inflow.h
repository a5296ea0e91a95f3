#pragma once
/*
 * inflow: the other way round of a source: the client streams messages, and gets one answer. Owned
 * by the server, freed by it once; its functions are never called at once, and none blocks. What
 * has to wait says so and calls the waker later, from any thread, but not after free() has returned.
 */
#include <jansson.h>

#include "common/err.h"
#include "api/source.h"

#define INFLOW_WAIT 0 /* come again with the same when woken */
#define INFLOW_DONE 1

struct inflow;

struct inflow_ops {
    /* The next message, borrowed. INFLOW_WAIT, INFLOW_DONE: taken, or a negative error: the end. */
    int (*take)(struct inflow *f, json_t *msg, struct err *e);
    /* All messages are there. The same; with INFLOW_DONE the answer is in *ret. */
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
