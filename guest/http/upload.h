#pragma once
/*
 * upload: a request's body through a pump to a sink, which may block. A full pump suspends the
 * connection with the rest of the piece unconsumed. Called on the connection's thread; the
 * handler ends with pump_leave().
 */
#include "common/err.h"
#include "event/pump.h"
#include "http/request.h"

#define UPLOAD_RING_BYTES (512 * 1024)

/* Takes sink in any case. max_bytes: of the body that wait for the sink. */
int upload_new_take(struct request *q, const struct pump_ops *ops, void *sink, size_t max_bytes,
                    struct pump **ret, struct err *e);
/* As request_ops.begin: REQUEST_PARKED until the sink's begin has run. */
int upload_begin(struct request *q, struct pump *p, struct err *e);
/* As request_ops.body. */
int upload_body(struct request *q, struct pump *p, const char *data, size_t *len, struct err *e);
/* REQUEST_PARKED until the sink has committed and closed. */
int upload_finish(struct request *q, struct pump *p, struct err *e);
