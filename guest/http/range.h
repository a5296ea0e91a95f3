#pragma once
/* range: the ranges of bytes that a request's headers name. Pure functions. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "common/err.h"

#define RANGE_MAX_ASKED 64   /* more in one header: the whole file is sent */
#define RANGE_MAX_PARTS 16   /* more left after joining: the same */
#define RANGE_JOIN_BYTES 128 /* a smaller gap is sent too: one more part costs as much */

enum range_kind {
    RANGE_WHOLE, /* no header, or one that is ignored: not of bytes, or too many ranges */
    RANGE_PART,
    RANGE_NONE, /* no part of it is in the file: 416 */
};

struct range {
    uint64_t first;
    uint64_t len;
};

/* In the order of the request; they do not overlap. */
struct range_set {
    size_t n;
    struct range v[RANGE_MAX_PARTS];
};

/* header: the value of Range, or NULL. RANGE_PART: *ret has at least one. */
enum range_kind range_parse(const char *header, uint64_t size, struct range_set *ret);

/* A request's "bytes FIRST-LAST/SIZE" or ".../ *": the place of a body in the whole. Errors name
 * the field "Content-Range". */
struct range_place {
    struct range range;
    bool has_size;
    uint64_t size;
};
int range_parse_place(const char *header, struct range_place *ret, struct err *e);

/* "Sun, 22 Nov 2026 01:35:00 GMT" */
#define RANGE_DATE_BYTES 40
void range_format_date(time_t t, char out[RANGE_DATE_BYTES]);
/* As HTTP's headers have it, in any of the three forms. */
bool range_parse_date(const char *text, time_t *ret);
