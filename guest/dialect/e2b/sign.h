#pragma once
/* sign: signatures that make a URL of a file valid without the token. Pure functions. */
#define SIGN_TEXT_BYTES 48 /* "v1_", 43 characters of base64 and a NUL */

/*
 * operation: "read" or "write". path, user: from the query, decoded; "" if absent. expiration: from the query, or
 * NULL.
 */
void sign_file(const char *path, const char *operation, const char *user, const char *token,
               const char *expiration, char out[SIGN_TEXT_BYTES]);
