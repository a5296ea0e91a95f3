#include "dialect/e2b/account.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "common/str.h"
#include "common/cleanup.h"
#include "common/path.h"
#include "dialect/e2b/e2b.h"
#include "agent.h"

#define BASIC_MAX_BYTES 1024

/* *ret_name: the name looked up, for errors. */
static int find_account(const struct agent *a, const char *asked, struct user *ret, char **ret_name,
                        struct err *e)
{
    _cleanup_free_ char *name = NULL;
    int r = 0;

    if (asked)
        name = strdup(asked);
    else
        r = e2b_default_user(e2b_of(a), &name, e);
    if (r == 0 && asked && !name)
        r = err_oom(e);
    if (r < 0)
        return r;
    if (asked && *asked && !asked[strspn(asked, "0123456789:")])
        r = err_field(e, ERR_NOT_FOUND, "user", "there is no user '%.64s'",
                      asked); /* ids are refused */
    else
        r = name ? user_find(name, ret, e) : user_find_uid(geteuid(), ret, e);
    *ret_name = TAKE(name);
    return r;
}

int account_look_up(const struct agent *a, const char *asked, struct user *ret, struct err *e)
{
    _cleanup_free_ char *name = NULL;
    int r = find_account(a, asked, ret, &name, e);

    if (r == -ERR_NOT_FOUND)
        return err_set(e, ERR_UNAUTHENTICATED,
                       "error looking up user '%.64s': user: unknown user %.64s", name ? name : "",
                       name ? name : "");
    return r;
}

int account_authenticate(const struct agent *a, const char *asked, struct user *ret, struct err *e)
{
    _cleanup_free_ char *name = NULL;
    int r = find_account(a, asked, ret, &name, e);

    if (r == -ERR_NOT_FOUND)
        return err_set(e, ERR_UNAUTHENTICATED,
                       asked ? "invalid username: '%.64s'" : "invalid default user: '%.64s'",
                       name ? name : "");
    return r;
}

/* rest: a path relative to the home, or the part after "~". */
static int below_home(const struct user *u, const char *rest, char **ret, struct err *e)
{
    _cleanup_free_ char *joined = NULL;
    char *cleaned;

    while (*rest == '/')
        rest++;
    joined = path_join(u->home, rest);
    cleaned = joined ? path_clean(joined) : NULL;
    if (!cleaned)
        return err_oom(e);
    *ret = cleaned;
    return 0;
}

static int resolve_path(const struct user *u, const char *path, char **ret, struct err *e)
{
    char *copy;

    if (path[0] == '~' && path[1] && path[1] != '/')
        return err_set(e, ERR_INVALID,
                       "failed to expand path '%.200s' for user '%.64s': cannot expand "
                       "user-specific home dir",
                       path, u->name);
    if (path[0] != '/')
        return below_home(u, path[0] == '~' ? path + 1 : path, ret, e);
    copy = strdup(path);
    if (!copy)
        return err_oom(e);
    *ret = copy;
    return 0;
}

int account_path(const struct agent *a, const struct user *u, const char *path, char **ret,
                 struct err *e)
{
    _cleanup_free_ char *workdir = NULL;
    int r = 0;

    if (!*path)
        r = e2b_default_workdir(e2b_of(a), &workdir, e);
    return r < 0 ? r : resolve_path(u, workdir ? workdir : path, ret, e);
}

char *account_of_basic(const char *authorization)
{
    char text[BASIC_MAX_BYTES + 1];
    const char *b64;
    size_t len, n;

    if (!authorization || strncasecmp(authorization, "Basic ", 6) != 0)
        return NULL;
    b64 = authorization + 6;
    len = strlen(b64);
    if (len > BASIC_MAX_BYTES || b64_decode(b64, len, text, &n, NULL) < 0)
        return NULL;
    text[n] = '\0';
    if (strlen(text) != n || !strchr(text, ':'))
        return NULL;
    return strndup(text, strcspn(text, ":"));
}
