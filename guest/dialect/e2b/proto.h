#pragma once
/*
 * proto: the messages of E2B's methods in protobuf, from and to the JSON that the methods take and
 * give, by the descriptors that are generated of e2b.proto. Pure functions.
 */
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/buf.h"
#include "common/err.h"

#define PROTO_MAX_BYTES (64u * 1024 * 1024) /* of memory for one request, taken apart */

struct rpc_method;

enum proto_side {
    PROTO_REQUEST,
    PROTO_REPLY,
};

/* Absent fields are left out; a string ends at a NUL; unknown fields are ignored. */
int proto_read(const struct rpc_method *m, enum proto_side side, const void *data, size_t len,
               json_t **ret, struct err *e);
/* After what is in out. Unknown fields are ignored, those of another type are an error. */
int proto_write(const struct rpc_method *m, enum proto_side side, const json_t *msg,
                struct buf *out, struct err *e);

/* For tables of fields, as jx_u32(): a number as protobuf's JSON has it: 2, "2", 2.0 and 2e0. */
int proto_jx_u32(json_t *v, void *out, struct err *e);
/* The same of any integer of 32 bits. False: it is none. */
bool proto_get_whole(const json_t *v, int64_t *ret);

/* RFC 3339 to nanoseconds since 1970: "2026-11-22T01:35:00[.123456789]Z", or with "+01:00" instead of the Z. */
int proto_parse_time(const char *s, int64_t *ret_ns, struct err *e);
