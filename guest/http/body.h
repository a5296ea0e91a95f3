#pragma once
/*
 * body: bodies that pass a pump, whose other side is a pool job that may block: of a request to a sink (upload), of a
 * reply from a source (feed). The connection is suspended while the pump of an upload is full, with the rest of the
 * piece unconsumed, or that of a feed is empty. Called on the connection's thread.
 */
#include "common/err.h"
#include "event/pump.h"
#include "http/request.h"
#include "http/respond.h"

/* ---- a reply's body ---- */

#define BODY_RING_BYTES (512 * 1024)

struct feed_ops {
    struct pump_ops pump; /* read; close frees the source */
    /* After the last byte, on the connection's thread: may add footers. May be NULL. */
    void (*ended)(void *from, struct reply *reply);
};

/* A response with this body; takes `from` in any case. size: REPLY_SIZE_UNKNOWN, or of the body. */
int feed_response_take(struct request *q, uint64_t size, const struct feed_ops *ops, void *from,
                       struct reply **ret, struct err *e);

/* ---- a request's body. The handler ends with pump_leave(). ---- */

/* Takes sink in any case. max_bytes: of the body that wait for the sink. */
int upload_new_take(struct request *q, const struct pump_ops *ops, void *sink, size_t max_bytes,
                    struct pump **ret, struct err *e);
/* As request_ops.begin: REQUEST_PARKED until the sink's begin has run. */
int upload_begin(struct request *q, struct pump *p, struct err *e);
/* As request_ops.body. */
int upload_body(struct request *q, struct pump *p, const char *data, size_t *len, struct err *e);
/* REQUEST_PARKED until the sink has committed and closed. */
int upload_finish(struct request *q, struct pump *p, struct err *e);
