#pragma once
/* timetext: times as RFC 3339 has them, in nanoseconds since 1970. */
#include <stdint.h>

#include "common/err.h"

/* "2026-11-22T01:35:00[.123456789]Z", or with "+01:00" in the place of the Z. */
int timetext_parse(const char *s, int64_t *ret_ns, struct err *e);
