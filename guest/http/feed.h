#pragma once
/*
 * feed: the body of a reply from a source that may block, read ahead by a pump. The connection
 * is suspended while the pump is empty.
 */
#include "common/err.h"
#include "event/pump.h"
#include "http/request.h"
#include "http/respond.h"

#define FEED_RING_BYTES (512 * 1024)

struct feed_ops {
    struct pump_ops pump; /* read; close frees the source */
    /* After the last byte, on the connection's thread: may add footers. May be NULL. */
    void (*ended)(void *from, struct reply *reply);
};

/* A response with this body; takes `from` in any case. size: REPLY_SIZE_UNKNOWN, or of the body. */
int feed_response_take(struct request *q, uint64_t size, const struct feed_ops *ops, void *from,
                       struct reply **ret, struct err *e);
