#pragma once
/* sign: the signatures by which a URL of a file is good without the token. Pure functions. */
#define SIGN_TEXT_BYTES 48 /* "v1_", 43 characters of base64 and a NUL */

/*
 * operation: "read" or "write"; path and user as the query has them, decoded, "" when absent;
 * expiration: as the query has it, or NULL.
 */
void sign_file(const char *path, const char *operation, const char *user, const char *token,
               const char *expiration, char out[SIGN_TEXT_BYTES]);
