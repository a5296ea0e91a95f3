#pragma once
/*
 * utf16: text in other encodings becomes UTF-8, in the same buffer, as if it came in pieces: rg reads
 * so, and where a NUL byte is depends on it.
 */
#include <stdbool.h>
#include <stdint.h>

#include "common/buf.h"

/* How long the pieces are, and where each ends in the result. */
struct pieces {
    size_t first, then; /* bytes of the original in the first and in each of the others */
    uint64_t *ends;     /* malloc()ed; rising, the last is the end of the text */
    size_t n;
};

/* `p` may be NULL; else its ends are set, for the caller to free. */

/* Without a byte order mark. What is not valid becomes U+FFFD. */
int utf16_decode(struct buf *b, bool big_endian, struct pieces *p, struct err *e);
/* windows-1252: every byte is a character. */
int latin1_decode(struct buf *b, struct pieces *p, struct err *e);
