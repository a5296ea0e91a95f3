#include "dialect/e2b/file_query.h"

#include <inttypes.h>
#include <nettle/sha2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "agent.h"
#include "common/cleanup.h"
#include "common/clock.h"
#include "common/str.h"
#include "api/dialect.h"
#include "system/auth.h"

#define EXPIRATION "signature_expiration"

struct signature {
    char *text;
    bool expires;
    int64_t expiration_s;
};

static int read_signature(struct request *q, struct signature *s, struct err *e)
{
    _cleanup_free_ char *expiration = NULL;
    int r = request_query(q, "signature", &s->text, e);

    if (r == 0)
        r = request_query(q, EXPIRATION, &expiration, e);
    if (r < 0 || !expiration)
        return r;
    s->expires = true;
    if (str_parse_i64(expiration, INT64_MIN, INT64_MAX, &s->expiration_s, NULL) < 0)
        return err_field(e, ERR_INVALID, EXPIRATION,
                         "Invalid format for parameter " EXPIRATION ": '%.64s' is no number",
                         expiration);
    return 0;
}

static bool is_right(struct request *q, const char *operation, const struct file_query *f,
                     const struct signature *s)
{
    char *token = auth_copy(request_agent(q)->auth);
    char want[SIGN_TEXT_BYTES], expiration[24];

    if (!token)
        return false;
    (void)snprintf(expiration, sizeof(expiration), "%" PRId64, s->expiration_s);
    sign_file(f->path ? f->path : "", operation, f->username ? f->username : "", token,
              s->expires ? expiration : NULL, want);
    explicit_bzero(token, strlen(token));
    free(token);
    return str_secret_eq(s->text, strlen(s->text), want, strlen(want));
}

/* A token in a header counts more than a signature. */
static int check_access(struct request *q, const char *operation, const struct file_query *f,
                        const struct signature *s, struct err *e)
{
    struct auth *known = request_agent(q)->auth;
    const char *token = request_header(q, "X-Access-Token"); /* empty: none */
    const char *bearer = request_header(q, "Authorization");

    int r = auth_is_open(known) ? 0 : request_check_tokens(q, e);

    if (r < 0 || auth_is_open(known) || auth_matches(known, token))
        return r;
    if (token && *token)
        return err_set(e, ERR_UNAUTHENTICATED, "access token present in header but does not match");
    if (bearer && strncasecmp(bearer, "Bearer ", 7) == 0 && auth_matches(known, bearer + 7))
        return 0;
    if (!s->text)
        return err_set(e, ERR_UNAUTHENTICATED, "missing signature query parameter");
    if (!is_right(q, operation, f, s))
        return err_set(e, ERR_UNAUTHENTICATED, "invalid signature");
    if (s->expires && s->expiration_s < clock_real_ms() / 1000)
        return err_set(e, ERR_UNAUTHENTICATED, "signature is already expired");
    return 0;
}

int file_query_read(struct request *q, const char *operation, struct file_query *ret, struct err *e)
{
    struct signature s = {0};
    int r = request_query(q, "path", &ret->path, e);

    if (r == 0)
        r = request_query(q, "username", &ret->username, e);
    if (r == 0)
        r = read_signature(q, &s, e);
    if (r == 0)
        r = check_access(q, operation, ret, &s, e);
    free(s.text);
    return r;
}

void file_query_done(struct file_query *f)
{
    free(f->path);
    free(f->username);
    *f = (struct file_query){0};
}

/* ---- signatures ------------------------------------------------------------------------------- */

void sign_file(const char *path, const char *operation, const char *user, const char *token,
               const char *expiration, char out[SIGN_TEXT_BYTES])
{
    const char *const parts[] = {path, operation, user, token, expiration};
    uint8_t digest[SHA256_DIGEST_SIZE];
    char b64[B64_LEN(SHA256_DIGEST_SIZE)];
    struct sha256_ctx sha;

    sha256_init(&sha);
    for (size_t i = 0; i < N_ELEMENTS(parts) && parts[i]; i++) {
        if (i)
            sha256_update(&sha, 1, (const uint8_t *)":");
        sha256_update(&sha, strlen(parts[i]), (const uint8_t *)parts[i]);
    }
    sha256_digest(&sha, sizeof(digest), digest);
    b64_encode(digest, sizeof(digest), b64);
    (void)snprintf(out, SIGN_TEXT_BYTES, "v1_%.*s", (int)sizeof(b64) - 1, b64); /* no padding */
}
