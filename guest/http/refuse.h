#pragma once
/*
 * refuse: answers a request with an error while its body may still arrive. The library cannot: it takes
 * no reply while a body arrives, and if a socket is closed with unread bytes, the kernel resets the
 * connection, so that the client never sees the reply. So:
 *   - the client waits for 100-continue: answer at once; it does not send the body;
 *   - a body of at most REQUEST_DRAIN_BYTES: read it, then answer, and keep the connection;
 *   - a larger body: write the reply to the socket directly, shut down the sending side, discard the
 *     incoming bytes, within bounds of bytes and time, and close.
 */
#include <microhttpd.h>

#include "http/request.h"

/* At the headers. status 0: that of the error's code. */
enum MHD_Result refuse_headers(struct request *q, const struct err *error, int status);
/* While the body arrives: a handler failed, or a bound is exceeded. Takes the rest of the piece. */
enum MHD_Result refuse_midway(struct request *q, const struct err *error, size_t *len);
/* For each further piece of the body, and at its end. */
enum MHD_Result refuse_body(struct request *q, size_t *len);
enum MHD_Result refuse_end(struct request *q);
/* When the body is complete: an ordinary reply. */
enum MHD_Result refuse_now(struct request *q, const struct err *error);
/* The body has stalled: 408. On the loop's thread, with the request's lock held. */
void refuse_stalled(struct request *q, int fd, int64_t now_ms);
