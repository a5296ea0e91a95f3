#pragma once
/*
 * feed: a reply's body from something that blocks: a pool job reads ahead into a bounded ring and
 * ends when it is full; the connection takes from it and is suspended while it is empty.
 */
#include "common/err.h"
#include "http/request.h"
#include "http/respond.h"

#define FEED_RING_BYTES (512 * 1024)

/* read and close on pool threads, one at a time; each may block. */
struct feed_ops {
    /* *ret_len 0: the end. */
    int (*read)(void *from, void *data, size_t size, size_t *ret_len, struct err *e);
    /* At the good end, on the connection's thread: may add footers. May be NULL. */
    void (*ended)(void *from, struct reply *response);
    void (*close)(void *from); /* frees `from` */
};

/* A response with this body; takes `from` in any case. size: REPLY_SIZE_UNKNOWN, or of the body. */
int feed_response_take(struct request *q, uint64_t size, const struct feed_ops *ops, void *from,
                       struct reply **ret, struct err *e);
