#include "lib/box/signature.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <nettle/hmac.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/io.h"
#include "common/str.h"

#define KEY_FILE "daemon.key"

/* A file that is there complete or not at all: two who make it at once get the same key. */
static int write_new_key(const char *path, struct err *e)
{
    uint8_t key[SIGNATURE_KEY_BYTES];
    _cleanup_free_ char *temp = NULL;
    char suffix[17];
    int r = io_random(key, sizeof(key), e);

    if (r == 0)
        r = io_random_hex(8, suffix, e);
    if (r < 0)
        return r;
    if (asprintf(&temp, "%s.%s", path, suffix) < 0)
        return err_oom(e);
    r = io_write_file(AT_FDCWD, temp, key, sizeof(key), 0600, true, e);
    if (r == 0 && link(temp, path) < 0 && errno != EEXIST)
        r = err_sys(e, errno, "make '%s'", path);
    if (r == 0)
        r = io_sync_parent(AT_FDCWD, path, e);
    (void)unlink(temp);
    return r;
}

int signature_read_key(const char *state_dir, uint8_t ret[SIGNATURE_KEY_BYTES], struct err *e)
{
    _cleanup_free_ char *path = NULL;
    _cleanup_free_ char *text = NULL;
    size_t len = 0;
    int r;

    if (asprintf(&path, "%s/" KEY_FILE, state_dir) < 0)
        return err_oom(e);
    r = access(path, F_OK) == 0 ? 0 : write_new_key(path, e);
    if (r == 0)
        r = io_read_file(AT_FDCWD, path, SIGNATURE_KEY_BYTES, &text, &len, e);
    if (r < 0)
        return r;
    if (len != SIGNATURE_KEY_BYTES)
        return err_set(e, ERR_DATA_LOSS, "'%s' has not %d bytes: remove it", path,
                       SIGNATURE_KEY_BYTES);
    memcpy(ret, text, SIGNATURE_KEY_BYTES);
    return 0;
}

static void sign_until(const uint8_t key[SIGNATURE_KEY_BYTES], const char *text, int64_t until_ms,
                       char ret[SIGNATURE_TEXT_BYTES])
{
    uint8_t digest[SHA256_DIGEST_SIZE];
    struct hmac_sha256_ctx mac;
    int n = snprintf(ret, SIGNATURE_TEXT_BYTES, "%" PRId64 ".", until_ms);

    hmac_sha256_set_key(&mac, SIGNATURE_KEY_BYTES, key);
    /* The time first: a digit cannot move over the point into the text. */
    hmac_sha256_update(&mac, (size_t)n, (const uint8_t *)ret);
    hmac_sha256_update(&mac, strlen(text), (const uint8_t *)text);
    hmac_sha256_digest(&mac, sizeof(digest), digest);
    str_hex(digest, sizeof(digest), ret + n);
}

int signature_make(const uint8_t key[SIGNATURE_KEY_BYTES], const char *text, int64_t now_ms,
                   int64_t until_ms, char ret[SIGNATURE_TEXT_BYTES], struct err *e)
{
    if (until_ms <= now_ms || until_ms - now_ms > SIGNATURE_MAX_MS)
        return err_field(e, ERR_INVALID, "for", "a signed URL is for at most 30 days");
    sign_until(key, text, until_ms, ret);
    return 0;
}

int signature_check(const uint8_t key[SIGNATURE_KEY_BYTES], const char *text, int64_t now_ms,
                    const char *signature, struct err *e)
{
    char expected[SIGNATURE_TEXT_BYTES], until_text[24];
    size_t n = strcspn(signature, ".");
    int64_t until_ms;

    if (n < sizeof(until_text)) {
        memcpy(until_text, signature, n);
        until_text[n] = '\0';
    }
    if (n >= sizeof(until_text) || str_parse_i64(until_text, 0, INT64_MAX, &until_ms, NULL) < 0)
        return err_field(e, ERR_UNAUTHENTICATED, SIGNATURE_PARAMETER, "the signature is not valid");
    sign_until(key, text, until_ms, expected);
    if (!str_secret_eq(expected, strlen(expected), signature, strlen(signature)))
        return err_field(e, ERR_UNAUTHENTICATED, SIGNATURE_PARAMETER, "the signature is not valid");
    if (now_ms >= until_ms)
        return err_field(e, ERR_UNAUTHENTICATED, SIGNATURE_PARAMETER, "the signature has expired");
    return 0;
}
