#pragma once
/* timetext: parses times of RFC 3339 to nanoseconds since 1970. */
#include <stdint.h>

#include "common/err.h"

/* "2026-11-22T01:35:00[.123456789]Z", or with "+01:00" instead of the Z. */
int timetext_parse(const char *s, int64_t *ret_ns, struct err *e);
