#pragma once
/*
 * stream: a source as the body of a reply. The connection is suspended while the source has no message;
 * meanwhile a client that disconnects is noticed, and a long silence is broken by a keep-alive.
 */
#include "api/rpc.h"
#include "http/request.h"

#define STREAM_MESSAGE_MAX (64u * 1024 * 1024) /* one encoded message */

/*
 * Replies with all messages of the source, in the request's codec, which is that of a stream. The source's
 * waker must be set. Takes the source in any case.
 * `first`: a message that was pulled already, or NULL; taken too. Text that was pulled already
 * (SOURCE_TEXT) is still in the source.
 */
int stream_begin_take(struct request *q, struct source *source, json_t *first, struct err *e);
/* Replies with an error alone, for a client that reads envelopes. */
int stream_error(struct request *q, const struct err *error, struct err *e);

/* As source_ops.next, but parks the request while there is no message: after SOURCE_WAIT the caller
 * returns, and is called again. */
int stream_pull(struct request *q, struct source *source, json_t **ret, struct err *e);

void stream_wake_request(void *request); /* request_wake() as a waker */
