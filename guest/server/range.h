#pragma once
/* range: the one range of bytes that a Range header asks for. Pure functions. */
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

enum range_kind {
    RANGE_WHOLE, /* no header, or one that may be ignored: several ranges, another unit */
    RANGE_PART,
    RANGE_NONE, /* nothing of it is in the file: 416 */
};

struct range {
    uint64_t first;
    uint64_t len;
};

/* header: the value, or NULL. */
enum range_kind range_parse(const char *header, uint64_t size, struct range *ret);

/* "Sun, 22 Nov 2026 01:35:00 GMT" */
#define RANGE_DATE_BYTES 40
void range_format_date(time_t t, char out[RANGE_DATE_BYTES]);
