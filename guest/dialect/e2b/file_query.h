#pragma once
/* file_query: what both verbs of /files take out of a request before its body, and who may ask. */
#include "http/request.h"

struct file_query {
    char *path;     /* NULL: not given */
    char *username; /* NULL: not given: the default user's */
};

/*
 * Reads the parameters, then checks the token or the signature for the operation ("read", "write").
 * -ERR_UNAUTHENTICATED in the words that clients know. Never blocks.
 */
int file_query_read(struct request *q, const char *operation, struct file_query *ret,
                    struct err *e);
void file_query_done(struct file_query *f); /* accepts zeroed */

/* Signatures make a URL of a file valid without the token. */
#define SIGN_TEXT_BYTES 48 /* "v1_", 43 characters of base64 and a NUL */

/*
 * operation: "read" or "write". path, user: from the query, decoded; "" if absent. expiration: from the query, or
 * NULL.
 */
void sign_file(const char *path, const char *operation, const char *user, const char *token,
               const char *expiration, char out[SIGN_TEXT_BYTES]);
