#pragma once
/*
 * codec: how the messages of a dialect's methods are written in bodies: which types its clients may
 * send, and the way from bytes to a message and back.
 */
#include <stdbool.h>
#include <stddef.h>

#include "common/buf.h"
#include "common/err.h"
#include "common/jsonx.h"
#include "http/request.h"

/* By the Content-Type: sets how the request speaks, or q->error_status and the error. */
int codec_choose(struct request *q, bool is_stream, struct err *e);
/* One message; also of no bytes: then all is at its default. Any thread. */
int codec_parse(const struct request *q, const char *data, size_t len, json_t **ret, struct err *e);
/* After what is in out: the message, or that in an envelope. Any thread. */
int codec_write(const struct request *q, const json_t *msg, struct buf *out, struct err *e);
int codec_write_envelope(const struct request *q, const json_t *msg, struct buf *out,
                         struct err *e);
const char *codec_type(const struct request *q); /* of the reply's body */

bool codec_type_is(const char *value, const char *type); /* "a/b" and "a/b; c=d" */
