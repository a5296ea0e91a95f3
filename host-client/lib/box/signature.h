#pragma once
/*
 * signature: a right that stands in a URL: HMAC-SHA-256 over what may be reached and until when, with a key of the state
 * directory (daemon.key, made when it is first needed). Whoever has the URL has the right; nothing is stored.
 */
#include <stdint.h>

#include "common/err.h"

#define SIGNATURE_KEY_BYTES 32
#define SIGNATURE_TEXT_BYTES 88 /* "EXPIRES.HEX" and NUL */
#define SIGNATURE_MAX_MS (INT64_C(30) * 24 * 3600 * 1000)
#define SIGNATURE_PARAMETER "bellhop_signature" /* of the query, and the name of the cookie */

/* The key of a state directory; made if there is none. */
int signature_read_key(const char *state_dir, uint8_t ret[SIGNATURE_KEY_BYTES], struct err *e);

/* text: "port BOX_ID PORT" or "file BOX_ID /PATH". until_ms: at most SIGNATURE_MAX_MS after now_ms. */
int signature_make(const uint8_t key[SIGNATURE_KEY_BYTES], const char *text, int64_t now_ms,
                   int64_t until_ms, char ret[SIGNATURE_TEXT_BYTES], struct err *e);
/* ERR_UNAUTHENTICATED: it is not of this key and text, or its time is over. */
int signature_check(const uint8_t key[SIGNATURE_KEY_BYTES], const char *text, int64_t now_ms,
                    const char *signature, struct err *e);
