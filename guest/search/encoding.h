#pragma once
/*
 * encoding: converts text in other encodings, and text that is not UTF-8, to UTF-8 as rg does.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/buf.h"
#include "common/err.h"

/* --- UTF-16 and Latin-1, in the same buffer --- */

/* rg's treatment of a NUL byte depends on the piece in which it would decode it, so the ends of the pieces are
 * recorded: their length, and the end of each in the result. */
struct pieces {
    size_t first, then; /* bytes of the original in the first and in each of the others */
    uint64_t *ends;     /* malloc()ed; rising, the last is the end of the text */
    size_t n;
};

/* `p` may be NULL; else p->ends is set, and owned by the caller. */

/* The text has no byte order mark. Invalid units become U+FFFD. */
int utf16_decode(struct buf *b, bool big_endian, struct pieces *p, struct err *e);
/* windows-1252: every byte is a character. */
int latin1_decode(struct buf *b, struct pieces *p, struct err *e);

/* --- text that is not UTF-8, for `rg -P` --- */

/* Each maximal part of an invalid sequence (at most three bytes) becomes U+FFFD. Positions map both ways, so
 * that results have the original bytes. */
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
