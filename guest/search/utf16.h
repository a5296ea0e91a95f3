#pragma once
/* utf16: text in other encodings becomes UTF-8, in the same buffer. */
#include <stdbool.h>

#include "common/buf.h"

/* Without a byte order mark. What is not valid becomes U+FFFD. */
int utf16_decode(struct buf *b, bool big_endian, struct err *e);
/* windows-1252: every byte is a character. */
int latin1_decode(struct buf *b, struct err *e);
