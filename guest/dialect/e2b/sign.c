#include "dialect/e2b/sign.h"

#include <nettle/sha2.h>
#include <stdio.h>
#include <string.h>

#include "common/str.h"

static void add_text(struct sha256_ctx *sha, const char *text)
{
    sha256_update(sha, strlen(text), (const uint8_t *)text);
}

void sign_file(const char *path, const char *operation, const char *user, const char *token,
               const char *expiration, char out[SIGN_TEXT_BYTES])
{
    uint8_t digest[SHA256_DIGEST_SIZE];
    char b64[B64_LEN(SHA256_DIGEST_SIZE)];
    struct sha256_ctx sha;

    sha256_init(&sha);
    add_text(&sha, path);
    add_text(&sha, ":");
    add_text(&sha, operation);
    add_text(&sha, ":");
    add_text(&sha, user);
    add_text(&sha, ":");
    add_text(&sha, token);
    if (expiration) {
        add_text(&sha, ":");
        add_text(&sha, expiration);
    }
    sha256_digest(&sha, sizeof(digest), digest);
    b64_encode(digest, sizeof(digest), b64);
    (void)snprintf(out, SIGN_TEXT_BYTES, "v1_%.*s", (int)sizeof(b64) - 1, b64); /* no padding */
}
