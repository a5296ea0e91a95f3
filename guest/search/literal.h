#pragma once
/*
 * literal: what a text must contain for a pattern to match in it. A few literals, at least one of
 * which is in every match; finding those is many times faster than running the pattern.
 */
#include <stdbool.h>
#include <stddef.h>

#define LITERAL_MAX 8        /* in a set */
#define LITERAL_MAX_BYTES 32 /* of one; a longer one is cut, which finds no less */

struct literal {
    char bytes[LITERAL_MAX_BYTES]; /* letters in lower case when the set is caseless */
    size_t len;
};

struct literal_set {
    struct literal list[LITERAL_MAX];
    size_t n;
    bool caseless;
};

/* False when the pattern has no such literals, or none worth looking for. */
bool literal_find(const char *pattern, size_t len, bool caseless, struct literal_set *ret);

/* How common a byte is in text and source code: 0 (rare) to 255. */
unsigned literal_commonness(unsigned char byte);
