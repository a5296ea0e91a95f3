#pragma once
/* scan: finds any of a few literals in memory, and counts bytes; with SIMD where there is some. */
#include <stdbool.h>
#include <stddef.h>

#include "search/literal.h"

/* What to look at first: the two rarest bytes of each literal. */
struct scan_literal {
    unsigned char byte[2];
    unsigned char fold[2]; /* 0x20 when the case of that byte does not matter */
    unsigned char at[2];
};

struct scan {
    struct literal_set set;
    struct scan_literal rare[LITERAL_MAX];
    size_t longest;
};

void scan_init(struct scan *s, const struct literal_set *set);
/* Where the first of them begins at or after `from`; false when there is none. */
bool scan_find(const struct scan *s, const char *data, size_t len, size_t from, size_t *ret);

const char *scan_byte(const char *data, size_t len, char byte); /* memchr(3), and fast */
size_t scan_count(const char *data, size_t len, char byte);
bool scan_is_ascii(const char *data, size_t len);
size_t scan_ascii_len(const char *data, size_t len); /* up to the first byte that is not */
