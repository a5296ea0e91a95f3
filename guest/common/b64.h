#pragma once
/* b64: RFC 4648 base64 with padding. Pure functions. */
#include <stddef.h>

#include "common/err.h"

#define B64_LEN(n) (((n) + 2) / 3 * 4)

/* Writes B64_LEN(len) characters, no NUL. */
void b64_encode(const void *data, size_t len, char *out);
/* Strict: whole groups of four, no white space. out has room for len / 4 * 3 bytes. */
int b64_decode(const char *s, size_t len, void *out, size_t *ret_len, struct err *e);
