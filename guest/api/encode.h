#pragma once
/*
 * encode: the encodings of messages on the wire, and codecs, which combine them for a request. Pure functions.
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

int encode_message(enum encoding enc, const json_t *msg, struct buf *out, struct err *e);
/* Messages that are JSON already, each a line with its line feed. */
int encode_lines(enum encoding enc, const char *text, size_t len, struct buf *out, struct err *e);
/* The end of the stream; error NULL: success. */
int encode_end(enum encoding enc, const struct err *error, struct buf *out, struct err *e);
/* A keep-alive, which finds a dead peer. Connect has none: adds nothing. */
int encode_keepalive(enum encoding enc, struct buf *out, struct err *e);

/* For a caller that writes the message itself: adds the head of an envelope, and completes it. `at`: its
 * offset in out. */
int encode_begin_envelope(unsigned char flags, struct buf *out, struct err *e);
void encode_finish_envelope(size_t at, struct buf *out);
/* The length in the head of an envelope. */
uint32_t encode_envelope_len(const char *head);

/* Finds the one message in the body of a Connect request. */
int encode_open_envelope(const char *body, size_t len, const char **ret, size_t *ret_len,
                         struct err *e);

struct rpc_method;

/* How the messages of one request are written. Static; JSON where parse and write are NULL. */
struct codec {
    const char *reply_type; /* of the reply's body */
    bool is_stream;         /* the reply is one, of messages in this encoding: */
    enum encoding encoding;
    bool has_envelopes; /* of Connect, around the request too; errors stand in the last one */
    /* One message; of 0 bytes too: then all fields have their defaults. Any thread. */
    int (*parse)(const struct rpc_method *m, const char *data, size_t len, json_t **ret,
                 struct err *e);
    int (*write)(const struct rpc_method *m, const json_t *msg, struct buf *out, struct err *e);
};

int codec_parse(const struct codec *c, const struct rpc_method *m, const char *data, size_t len,
                json_t **ret, struct err *e);
/* After what is in out: the message alone, or as one of a stream. */
int codec_write(const struct codec *c, const struct rpc_method *m, const json_t *msg,
                struct buf *out, struct err *e);
int codec_write_message(const struct codec *c, const struct rpc_method *m, const json_t *msg,
                        struct buf *out, struct err *e);

bool codec_type_is(const char *value, const char *type); /* "a/b" and "a/b; c=d" */
