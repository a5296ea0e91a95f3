#pragma once
/*
 * stream: a source as the body of a reply. The connection is suspended while the source has
 * nothing to say, and looked after meanwhile: a client that has gone is noticed, and a long
 * silence is broken by a sign of life.
 */
#include "api/source.h"
#include "http/request.h"

#define STREAM_MESSAGE_MAX (64u * 1024 * 1024) /* one encoded message */

/*
 * Replies with all of the source's messages, in the request's codec, which is a stream's. The waker of
 * the source is set already. Takes it in any case.
 * `first`: a message that was pulled already, or NULL; taken too. Text that was pulled already
 * (SOURCE_TEXT) is still in the source.
 */
int stream_begin_take(struct request *q, struct source *source, json_t *first, struct err *e);
/* A reply that is nothing but an error, for a client that reads envelopes. */
int stream_error(struct request *q, const struct err *error, struct err *e);

/* The next of a source: as source_ops.next, but when there is nothing, parks the request:
 * SOURCE_WAIT then means that the caller returns and is called again. */
int stream_pull(struct request *q, struct source *source, json_t **ret, struct err *e);
