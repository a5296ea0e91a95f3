#pragma once
/*
 * regex: optimisations that can be read off the text of a PCRE2 pattern. Where the text has syntax that is
 * not understood, there are none.
 */
#include <stdbool.h>
#include <stddef.h>

#include "common/buf.h"

#define LITERAL_MAX 8        /* in a set */
#define LITERAL_MAX_BYTES 32 /* of one; a longer literal is truncated, which finds a superset */

struct literal {
    char bytes[LITERAL_MAX_BYTES]; /* letters in lower case when the set is caseless */
    size_t len;
};

struct literal_set {
    struct literal list[LITERAL_MAX];
    size_t n;
    bool caseless;
};

/* A few literals, at least one of which is in every match: searching for them is many times faster than
 * running the pattern. False: the pattern has no such literals, or only common ones. */
bool regex_find_literals(const char *pattern, size_t len, bool caseless, struct literal_set *ret);

/* How common a byte is in text and source code: 0 (rare) to 255. */
unsigned regex_commonness(unsigned char byte);

/* Rewrites a pattern so that no part of it can match a line feed. In a whole buffer such a pattern finds the
 * same lines as the original does in each line alone, and one run over a buffer is much faster than a run per
 * line. False: it can't be rewritten (\A, a literal line feed, (?s), syntax that is not understood), and each
 * line must be searched alone. */
bool regex_rewrite_linewise(const char *pattern, size_t len, struct buf *out);
