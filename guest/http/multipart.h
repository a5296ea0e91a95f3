#pragma once
/*
 * multipart: parses a body in parts (RFC 2046, 7578) as it arrives, in pieces of any size. It holds the
 * headers of one part, and at most MULTIPART_HELD_BYTES that may be a delimiter; data are passed on at
 * once.
 *
 * All bytes between delimiters belong to the part. A line that only begins like a delimiter is data.
 * White space behind a delimiter, the preamble and the epilogue are skipped.
 *
 * One thread at a time. After an error of a callback nothing more may be fed.
 */
#include <stdbool.h>
#include <stddef.h>

#include "common/err.h"

#define MULTIPART_BOUNDARY_MAX 200        /* RFC 2046 has 70 */
#define MULTIPART_PADDING_MAX 64          /* white space behind a delimiter; more: it is data */
#define MULTIPART_HEADERS_MAX (16 * 1024) /* of one part */
#define MULTIPART_PARTS_MAX 65536
#define MULTIPART_HELD_BYTES (MULTIPART_BOUNDARY_MAX + MULTIPART_PADDING_MAX + 8)

/* The strings are valid until begin() returns. NULL: the part has no such header. */
struct multipart_part {
    const char *name;
    const char *
        filename; /* "filename*", or its pieces, decoded, when there are; else the plain one as it came */
};

struct multipart_ops {
    int (*begin)(void *arg, const struct multipart_part *part, struct err *e);
    int (*data)(void *arg, const void *data, size_t len, struct err *e); /* len is never 0 */
    int (*end)(void *arg, struct err *e);
};

struct multipart;

/* content_type: of the whole body; its boundary is taken. Errors are -ERR_INVALID. */
int multipart_new(const char *content_type, const struct multipart_ops *ops, void *arg,
                  struct multipart **ret, struct err *e);
int multipart_feed(struct multipart *m, const void *data, size_t len, struct err *e);
/* The body is over: -ERR_INVALID if the last delimiter is missing. */
int multipart_finish(struct multipart *m, struct err *e);
struct multipart *multipart_free(struct multipart *m); /* accepts NULL; returns NULL */
