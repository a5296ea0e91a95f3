#pragma once
/*
 * utf16: converts text in other encodings to UTF-8, in the same buffer. It records the ends of the pieces in
 * which rg would decode the text, because rg's treatment of a NUL byte depends on its piece.
 */
#include <stdbool.h>
#include <stdint.h>

#include "common/buf.h"

/* The length of the pieces, and the end of each in the result. */
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
