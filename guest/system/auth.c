#include "system/auth.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/str.h"

struct auth {
    pthread_mutex_t lock;
    char *token; /* guarded by lock; NULL: open */
};

int auth_new(const char *token, size_t len, struct auth **ret, struct err *e)
{
    struct auth *a = calloc(1, sizeof(*a));

    if (!a)
        return err_oom(e);
    (void)pthread_mutex_init(&a->lock, NULL);
    if (token) {
        a->token = strndup(token, len);
        if (!a->token) {
            auth_free(a);
            return err_oom(e);
        }
    }
    *ret = a;
    return 0;
}

struct auth *auth_free(struct auth *a)
{
    if (!a)
        return NULL;
    if (a->token)
        explicit_bzero(a->token, strlen(a->token));
    free(a->token);
    (void)pthread_mutex_destroy(&a->lock);
    free(a);
    return NULL;
}

bool auth_is_open(struct auth *a)
{
    _cleanup_unlock_ pthread_mutex_t *locked = mutex_lock(&a->lock);

    return !a->token;
}

/* With the lock. */
static bool token_matches(const struct auth *a, const char *given)
{
    return a->token && given && str_secret_eq(given, strlen(given), a->token, strlen(a->token));
}

bool auth_matches(struct auth *a, const char *given)
{
    _cleanup_unlock_ pthread_mutex_t *locked = mutex_lock(&a->lock);

    return token_matches(a, given);
}

int auth_check_token(const char *token, struct err *e)
{
    size_t len = strlen(token);

    if (!len || len > AUTH_TOKEN_MAX_BYTES)
        return err_set(e, ERR_INVALID, "a token has from 1 to %d characters", AUTH_TOKEN_MAX_BYTES);
    for (size_t i = 0; i < len; i++)
        if (token[i] <= ' ' || token[i] > '~')
            return err_set(e, ERR_INVALID, "the token has characters a header can't carry");
    return 0;
}

int auth_claim(struct auth *a, const char *token, struct err *e)
{
    _cleanup_unlock_ pthread_mutex_t *locked = NULL;
    int r = auth_check_token(token, e);

    if (r < 0)
        return r;
    locked = mutex_lock(&a->lock);
    if (!a->token)
        a->token = strdup(token);
    if (!a->token)
        return err_oom(e);
    return token_matches(a, token) ? 0 : err_set(e, ERR_UNAUTHENTICATED, "another token is set");
}

char *auth_copy(struct auth *a)
{
    _cleanup_unlock_ pthread_mutex_t *locked = mutex_lock(&a->lock);

    return a->token ? strdup(a->token) : NULL;
}
