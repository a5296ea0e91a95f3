#pragma once
/*
 * refuse: how a request that has, or may have, a body on the way is answered with an error. The
 * library cannot: it takes no reply while a body arrives, and closing with unread bytes makes the
 * kernel reset the connection, so that the client never sees why. So:
 *   - the client waits for 100-continue: answer at once; it will not send the body;
 *   - a body of at most REQUEST_DRAIN_BYTES: read it, then answer, and the connection goes on;
 *   - a larger one: write the reply to the socket ourselves, shut our side down, and throw away
 *     what arrives, within bounds of bytes and time; then close.
 */
#include <microhttpd.h>

#include "http/request.h"

/* With the headers. status 0: the error's own. */
enum MHD_Result refuse_headers(struct request *q, const struct err *error, int status);
/* While the body arrives: a handler, or a bound, said no. Takes what is left of the piece. */
enum MHD_Result refuse_midway(struct request *q, const struct err *error, size_t *len);
/* For each piece of the body after that, and at its end. */
enum MHD_Result refuse_body(struct request *q, size_t *len);
enum MHD_Result refuse_end(struct request *q);
/* When all of the body is there: an ordinary reply. */
enum MHD_Result refuse_now(struct request *q, const struct err *error);
/* The body has stalled: 408. On the loop's thread, with the request's lock held. */
void refuse_stalled(struct request *q, int fd, int64_t now_ms);
