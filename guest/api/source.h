#pragma once
/*
 * source: a reply that is produced over time. The server pulls messages when the client can take them
 * (back-pressure); a source without a message returns SOURCE_WAIT and calls its waker later. A SOURCE
 * handler makes it; the server owns it and frees it once.
 *
 * Threads: next() and free() are never called concurrently. The waker may be called from any thread,
 * any number of times, but not after free() has returned: a source takes its own lock for that.
 */
#include <jansson.h>

#include "common/err.h"

struct waker {
    void (*fn)(void *arg);
    void *arg;
};

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

static inline void source_wake(struct source *s)
{
    void (*fn)(void *arg) = __atomic_load_n(&s->waker.fn, __ATOMIC_ACQUIRE);

    if (fn)
        fn(s->waker.arg);
}
