#pragma once
/*
 * literal: a few literals of a pattern, at least one of which is in every match. Searching for them is many
 * times faster than running the pattern.
 */
#include <stdbool.h>
#include <stddef.h>

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

/* False: the pattern has no such literals, or only common ones. */
bool literal_find(const char *pattern, size_t len, bool caseless, struct literal_set *ret);

/* How common a byte is in text and source code: 0 (rare) to 255. */
unsigned literal_commonness(unsigned char byte);
