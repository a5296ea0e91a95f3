#pragma once
/*
 * digest: the digest fields of RFC 9530 (Content-Digest, Repr-Digest and the Want- ones), of
 * which we know sha-256; other algorithms are left out. Pure functions.
 */
#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"

#define DIGEST_BYTES 32
#define DIGEST_TEXT_BYTES 64 /* "sha-256=:...:" and a NUL */

/* name: the header's, for errors. *ret_found false: no algorithm that we know. */
int digest_read(const char *name, const char *value, uint8_t out[DIGEST_BYTES], bool *ret_found,
                struct err *e);
/* The same of the older Digest header: "SHA-256=..., unixsum=...". */
int digest_read_old(const char *value, uint8_t out[DIGEST_BYTES], bool *ret_found, struct err *e);
/* Whether a Want- header asks for sha-256; what is no such header asks for nothing. */
bool digest_is_wanted(const char *value);
void digest_write(const uint8_t digest[DIGEST_BYTES], char out[DIGEST_TEXT_BYTES]);
