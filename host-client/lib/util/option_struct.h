#pragma once
/* options: reading the public option structs, which start with their size. */
#include <stddef.h>

#include "common/err.h"

/* Copies an option struct of an older, equal or newer caller; what the caller lacks is zero. */
int options_copy(void *dst, size_t dst_size, const void *src, struct err *e);
