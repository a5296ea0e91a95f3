/*
 * Access to a file over E2B's /files without the token: only by a signed URL, for its path, user
 * and operation, and until it expires. A URL that a client signs is accepted for its purpose; the
 * signature is valid for nothing else; no other input is accepted.
 * fuzz-flags: -max_len=600
 */
#include "fuzz.h"

#include <inttypes.h>
#include <microhttpd.h>
#include <strings.h>

#include "common/clock.h"
#include "agent.h"
#include "dialect/e2b/file_query.h"
#include "http/state.h"
#include "system/auth.h"

#define TOKEN "0123456789abcdef0123456789abcdef"

static const char *token, *bearer; /* the input's; NULL: no such header */

/* Replaces libmicrohttpd's function. */
const char *MHD_lookup_connection_value(struct MHD_Connection *mhd, enum MHD_ValueKind kind,
                                        const char *name)
{
    (void)mhd;
    (void)kind;
    if (strcasecmp(name, "X-Access-Token") == 0)
        return token;
    return strcasecmp(name, "Authorization") == 0 ? bearer : NULL;
}

static void add(char *query, const char *name, const char *value)
{
    char *at = query + strlen(query);

    at += sprintf(at, "%s%s=", *query ? "&" : "", name);
    for (; *value; value++)
        at += sprintf(at, "%%%02x", (unsigned char)*value);
}

static int ask(struct server *s, const char *query, const char *operation, const char *path,
               const char *user)
{
    static const struct route route;
    struct request q = {.server = s, .route = &route, .query = (char *)(uintptr_t)query};
    struct file_query f = {0};
    struct err e = {0};
    int r = file_query_read(&q, operation, &f, &e);

    CHECK(r == 0 ? !e.code : e.code == -r && e.message[0]);
    CHECK(r == 0 || r == -ERR_UNAUTHENTICATED || r == -ERR_INVALID);
    if (r == 0 && path)
        CHECK(f.path && strcmp(f.path, path) == 0);
    if (r == 0 && user)
        CHECK(f.username && strcmp(f.username, user) == 0);
    file_query_done(&f);
    return r;
}

/* A URL as the SDK makes it; then with one change. */
static void check_signed(struct server *s, struct fuzz_in *in)
{
    char *path = fuzz_str(in, 100, NULL), *user = fuzz_str(in, 40, NULL);
    char query[1024] = "", until[32], signature[SIGN_TEXT_BYTES];
    const char *operation = fuzz_byte(in) & 1 ? "write" : "read";
    int64_t now = clock_real_ms() / 1000;
    const int64_t times[] = {now + 1000, now - 1000, 0, -1, INT64_MAX, INT64_MIN};
    unsigned pick = fuzz_byte(in) % 7; /* 6: without end */
    unsigned change = fuzz_byte(in) % 5;
    bool is_late = pick < 6 && times[pick] < now, has_changed;
    int r;

    (void)snprintf(until, sizeof(until), "%" PRId64, pick < 6 ? times[pick] : 0);
    sign_file(path, operation, user, TOKEN, pick < 6 ? until : NULL, signature);
    if (change == 1)
        signature[3 + fuzz_byte(in) % 40] ^= 1;
    has_changed = change == 1 || (change == 2 && *path) || (change == 3 && pick < 6) || change == 4;
    if (change == 2 && *path)
        path[strlen(path) - 1] = '\0';
    add(query, "path", path);
    add(query, "username", user);
    add(query, "signature", signature);
    if (pick < 6 && change != 3)
        add(query, "signature_expiration", until);
    if (change == 4)
        operation = operation[0] == 'r' ? "write" : "read";
    r = ask(s, query, operation, path, user);
    CHECK(r == (has_changed || is_late ? -ERR_UNAUTHENTICATED : 0));
    free(path);
    free(user);
}

FUZZ(data, size)
{
    struct fuzz_in in = {data, size};
    struct agent agent = {0};
    struct server server = {.o = {.owner = &agent}};
    char *one = NULL, *two = NULL, *query;
    uint8_t how = fuzz_byte(&in);

    CHECK(auth_new(TOKEN, strlen(TOKEN), &agent.auth, NULL) == 0);
    token = bearer = NULL;
    if (how & 1) {
        check_signed(&server, &in);
    } else {
        bool is_right, differ;

        if (how & 2)
            token = one = how & 4 ? strdup(TOKEN) : fuzz_str(&in, 40, NULL);
        if (how & 8)
            bearer = two = how & 16 ? strdup("bearer " TOKEN) : fuzz_str(&in, 60, NULL);
        query = fuzz_str(&in, size, NULL);
        /* Two different tokens are refused, also if one is right. */
        differ = token && *token && bearer && strncasecmp(bearer, "Bearer ", 7) == 0 &&
                 strcmp(bearer + 7, token) != 0;
        is_right = differ            ? false
                   : token && *token ? strcmp(token, TOKEN) == 0
                                     : bearer && strncasecmp(bearer, "Bearer ", 7) == 0 &&
                                           strcmp(bearer + 7, TOKEN) == 0;
        if (!is_right)
            CHECK(ask(&server, query, "read", NULL, NULL) < 0);
        else
            CHECK(ask(&server, query, "read", NULL, NULL) != -ERR_UNAUTHENTICATED);
        free(query);
    }
    free(one);
    free(two);
    auth_free(agent.auth);
    return 0;
}
