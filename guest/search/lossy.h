#pragma once
/*
 * lossy: converts text that is not UTF-8 as `rg -P` does: each maximal part of an invalid sequence (at most
 * three bytes) becomes U+FFFD. Positions map both ways, so that results have the original bytes.
 */
#include <stdbool.h>
#include <stddef.h>

#include "common/buf.h"
#include "common/err.h"

struct lossy {
    struct buf text; /* the result */
    const char *from;
    size_t from_len;
    struct lossy_mark *marks; /* one for each few KiB of the original */
    size_t n_marks, max_marks;
    size_t last_from, last_to; /* the last position mapped: the next is usually near */
};

void lossy_init(struct lossy *l, size_t max);
void lossy_done(struct lossy *l);

/* `from` is borrowed. Fails if the result would exceed the maximum. */
int lossy_convert(struct lossy *l, const char *from, size_t len, struct err *e);

/* Maps a position in the original to the result, and back. A position within a replaced part maps to the
 * start of that part. */
size_t lossy_to(struct lossy *l, size_t at);
size_t lossy_back(struct lossy *l, size_t at);
