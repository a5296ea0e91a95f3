#pragma once
/*
 * content_digest: the digest fields of RFC 9530 (Content-Digest, Repr-Digest, and their Want- forms).
 * sha-256 is supported; other algorithms are ignored. Pure functions.
 */
#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"

#define DIGEST_BYTES 32
#define DIGEST_TEXT_BYTES 64 /* "sha-256=:...:" and a NUL */

/* name: of the header, for errors. *ret_found is false if the header has no known algorithm. */
int digest_read(const char *name, const char *value, uint8_t out[DIGEST_BYTES], bool *ret_found,
                struct err *e);
/* The same of the older Digest header: "SHA-256=..., unixsum=...". */
int digest_read_old(const char *value, uint8_t out[DIGEST_BYTES], bool *ret_found, struct err *e);
/* Whether a Want- header asks for sha-256; a malformed header asks for nothing. */
bool digest_is_wanted(const char *value);
void digest_write(const uint8_t digest[DIGEST_BYTES], char out[DIGEST_TEXT_BYTES]);
