#pragma once
/* scan: finds any of a few literals in memory, and counts bytes; uses SIMD if the processor has it. */
#include <stdbool.h>
#include <stddef.h>

#include "search/regex.h"

/* The two rarest bytes of a literal, which are compared first. */
struct scan_literal {
    unsigned char byte[2];
    unsigned char fold[2]; /* 0x20: this byte is compared without regard to case */
    unsigned char at[2];
};

struct scan {
    struct literal_set set;
    struct scan_literal rare[LITERAL_MAX];
    size_t longest;
};

void scan_init(struct scan *s, const struct literal_set *set);
/* *ret: the start of the first literal at or after `from`. False: there is none. */
bool scan_find(const struct scan *s, const char *data, size_t len, size_t from, size_t *ret);

const char *scan_byte(const char *data, size_t len, char byte); /* memchr(3), and fast */
size_t scan_count(const char *data, size_t len, char byte);
bool scan_is_ascii(const char *data, size_t len);
size_t scan_ascii_len(const char *data, size_t len); /* up to the first byte that is not */
