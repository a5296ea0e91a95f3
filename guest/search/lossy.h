#pragma once
/*
 * lossy: text that is not UTF-8 as `rg -P` reads it: each part of it that can't begin or go on as a
 * character (at most three bytes) becomes U+FFFD. Positions can be carried over both ways, so that
 * what is told are the bytes as they are.
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
    size_t last_from, last_to; /* where a position was found last: the next is near, as a rule */
};

void lossy_init(struct lossy *l, size_t max);
void lossy_done(struct lossy *l);

/* `from` is kept, not copied. Fails when the result would be longer than the maximum. */
int lossy_convert(struct lossy *l, const char *from, size_t len, struct err *e);

/* From a position in the original to the same in the result, and back. What is within a part that
 * was replaced is where that begins. */
size_t lossy_to(struct lossy *l, size_t at);
size_t lossy_back(struct lossy *l, size_t at);
