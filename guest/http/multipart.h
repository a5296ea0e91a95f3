#pragma once
/*
 * multipart: a body in parts (RFC 2046, 7578) taken apart as it arrives, in pieces of any size.
 * Nothing of a part's data is kept: what may still be a delimiter, at most MULTIPART_HELD_BYTES,
 * and one part's headers, are all that is held.
 *
 * Between the delimiters every byte is the part's own. A line that begins like a delimiter and goes
 * on otherwise is data; white space behind a delimiter is none; what stands before the first
 * delimiter and behind the last is passed over.
 *
 * One thread at a time. A callback's error ends it: nothing more may be fed.
 */
#include <stdbool.h>
#include <stddef.h>

#include "common/err.h"

#define MULTIPART_BOUNDARY_MAX 200        /* RFC 2046 has 70 */
#define MULTIPART_PADDING_MAX 64          /* white space behind a delimiter; more: it is data */
#define MULTIPART_HEADERS_MAX (16 * 1024) /* of one part */
#define MULTIPART_PARTS_MAX 65536
#define MULTIPART_HELD_BYTES (MULTIPART_BOUNDARY_MAX + MULTIPART_PADDING_MAX + 8)

/* Its strings are good until begin() returns. NULL: it has none. */
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
/* The body is over: -ERR_INVALID when its last delimiter has not been seen. */
int multipart_finish(struct multipart *m, struct err *e);
struct multipart *multipart_free(struct multipart *m); /* accepts NULL; returns NULL */

/*
 * A parameter of a header's value, as in `form-data; name="a b"`; the caller's to free. *ret is
 * NULL when it has none. A backslash in quotes counts only before a character that is special:
 * some clients send Windows paths.
 */
int multipart_parameter(const char *value, const char *name, char **ret, struct err *e);
