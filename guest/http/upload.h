#pragma once
/*
 * upload: a request's body on its way to something that blocks. The connection's thread fills a
 * bounded ring; a pool job empties it and ends when it is empty, so that no thread ever waits for
 * the network. A full ring suspends the connection with the rest unconsumed: the client waits.
 */
#include "common/err.h"
#include "http/request.h"

#define UPLOAD_RING_BYTES (512 * 1024)

/* All on pool threads, one at a time, in this order; each may block. */
struct sink_ops {
    int (*begin)(void *sink, struct err *e);
    int (*write)(void *sink, const void *data, size_t len, struct err *e);
    int (*commit)(void *sink, struct err *e);
    void (*close)(void *sink); /* after begin, whether committed or to be undone */
    void (*free)(void *sink);  /* memory only; from any thread */
    bool keeps; /* what has arrived is written even when the client has gone, before close */
};

struct upload;

/* Takes sink in any case. */
int upload_new_take(struct request *q, const struct sink_ops *ops, void *sink, struct upload **ret,
                    struct err *e);
/* Until the sink's begin has run: before that REQUEST_PARKED. */
int upload_begin(struct upload *u, struct err *e);
/* As request_ops.body. */
int upload_body(struct upload *u, const char *data, size_t *len, struct err *e);
/* The same with its commit. */
int upload_finish(struct upload *u, struct err *e);
/* The request is over: what was not committed is undone. Accepts NULL. */
void upload_leave(struct upload *u);
