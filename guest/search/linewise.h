#pragma once
/*
 * linewise: rewrites a pattern so that no part of it can match a line feed. In a whole buffer such a pattern
 * finds the same lines as the original does in each line alone, and one run over a buffer is much faster
 * than a run per line.
 */
#include <stdbool.h>
#include <stddef.h>

#include "common/buf.h"

/* False: the pattern can't be rewritten (\A, a literal line feed, (?s), syntax that token.h does not know),
 * and each line must be searched alone. */
bool linewise_rewrite(const char *pattern, size_t len, struct buf *out);
