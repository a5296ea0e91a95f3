#pragma once
/*
 * encode: the ways a stream of JSON messages goes over HTTP. Pure functions onto a buffer.
 *   ndjson   one object a line; an error is the last line: {"error":{...}}
 *   sse      "event: message", "data: {...}"; the end is "event: end" or "event: error"
 *   connect  5-byte envelopes (flags, length big-endian); the last one has flag 2 and {} or
 *            {"error":{...}}, as the Connect protocol has it
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/buf.h"
#include "common/err.h"
#include "common/jsonx.h"

enum encoding {
    ENCODING_NDJSON,
    ENCODING_SSE,
    ENCODING_CONNECT,
};

#define ENCODE_ENVELOPE_BYTES 5
#define ENCODE_FLAG_COMPRESSED 1
#define ENCODE_FLAG_END 2

const char *encode_media_type(enum encoding enc);

int encode_message(enum encoding enc, const json_t *msg, struct buf *out, struct err *e);
/* Messages that are JSON already, each a line with its line feed. */
int encode_lines(enum encoding enc, const char *text, size_t len, struct buf *out, struct err *e);
/* The end of the stream; error NULL: it went well. */
int encode_end(enum encoding enc, const struct err *error, struct buf *out, struct err *e);
/* Something that means nothing, so that a dead peer is found. Connect has no such thing. */
int encode_keepalive(enum encoding enc, struct buf *out, struct err *e);

/* For who writes a message himself: room for the envelope's head, and at the end what is in it. `at`:
 * where in out it began. */
int encode_begin_envelope(unsigned char flags, struct buf *out, struct err *e);
void encode_finish_envelope(size_t at, struct buf *out);
/* The length that an envelope's head says. */
uint32_t encode_envelope_len(const char *head);

/* The one message in a Connect request's body. */
int encode_open_envelope(const char *body, size_t len, const char **ret, size_t *ret_len,
                         struct err *e);
