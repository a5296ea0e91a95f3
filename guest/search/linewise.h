#pragma once
/*
 * linewise: rewrites a pattern so that no part of it can match a line feed. Such a pattern finds
 * in a whole buffer just the lines that the original finds when each line is searched alone, and
 * running it once over a buffer is much faster than once for each line.
 */
#include <stdbool.h>
#include <stddef.h>

#include "common/buf.h"

/* False when that can't be done (\A, a literal line feed, (?s), what token.h does not know): then
 * each line must be searched alone. */
bool linewise_rewrite(const char *pattern, size_t len, struct buf *out);
