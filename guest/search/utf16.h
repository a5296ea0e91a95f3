#pragma once
/* utf16: text with a byte order mark becomes UTF-8, in the same buffer. */
#include "common/buf.h"

/* The buffer begins with the mark, which is dropped. What is not valid becomes U+FFFD. */
int utf16_decode(struct buf *b, struct err *e);
