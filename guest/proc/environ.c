#include "proc/environ.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/str.h"
#include "proc/proc.h"

#include "common/banned.h"

int environ_set(char ***env, const char *setting, struct err *e)
{
    size_t name_len = strcspn(setting, "=") + 1;

    for (char **at = *env; at && *at; at++) {
        char *copy;

        if (strncmp(*at, setting, name_len) != 0)
            continue;
        copy = strdup(setting);
        if (!copy)
            return err_oom(e);
        free(*at);
        *at = copy;
        return 0;
    }
    return strv_push(env, setting, e);
}

static void unset(char **env, const char *name)
{
    size_t len = strlen(name);

    for (char **at = env; at && *at; at++) {
        if (strncmp(*at, name, len) != 0 || (*at)[len] != '=')
            continue;
        free(*at);
        for (; *at; at++)
            at[0] = at[1];
        return;
    }
}

static int check_name(const char *setting, struct err *e)
{
    size_t len = strcspn(setting, "=");
    bool is_good = len > 0 && len <= ENVIRON_NAME_BYTES && !isdigit((unsigned char)setting[0]);

    for (size_t i = 0; i < len && is_good; i++)
        is_good = isalnum((unsigned char)setting[i]) || setting[i] == '_';
    if (is_good)
        return 0;
    return err_set(e, ERR_INVALID,
                   "'%.64s' can't be the name of a variable: letters, digits and '_', at most %d",
                   setting, ENVIRON_NAME_BYTES);
}

static int check_bounds(char *const *env, struct err *e)
{
    size_t bytes = 0, n = 0;

    for (; env && env[n]; n++)
        bytes += strlen(env[n]) + 1;
    if (n > ENVIRON_MAX_VARS || bytes > ENVIRON_MAX_BYTES)
        return err_set(e, ERR_EXHAUSTED, "more than %d variables, or %d bytes of them",
                       ENVIRON_MAX_VARS, ENVIRON_MAX_BYTES);
    return 0;
}

static int apply(char ***env, char *const *names, char *const *settings, struct err *e)
{
    int r = 0;

    for (; names && *names; names++)
        unset(*env, *names);
    for (; settings && *settings && r == 0; settings++) {
        r = check_name(*settings, e);
        if (r == 0)
            r = environ_set(env, *settings, e);
    }
    return r == 0 ? check_bounds(*env, e) : r;
}

/* With the lock. */
static int copy_list(const struct registry *reg, char ***ret, struct err *e)
{
    char **copy = reg->env ? strv_dup(reg->env) : NULL;

    if (reg->env && !copy)
        return err_oom(e);
    *ret = copy;
    return 0;
}

int environ_change(struct registry *reg, bool replace, char *const *names, char *const *settings,
                   struct err *e)
{
    _cleanup_strv_ char **next = NULL;
    int r;

    (void)pthread_mutex_lock(&reg->lock);
    r = replace ? 0 : copy_list(reg, &next, e);
    if (r == 0)
        r = apply(&next, names, settings, e);
    if (r == 0) {
        char **old = reg->env;

        reg->env = next;
        next = old;
    }
    (void)pthread_mutex_unlock(&reg->lock);
    return r;
}

int environ_copy(struct registry *reg, char ***ret, struct err *e)
{
    int r;

    (void)pthread_mutex_lock(&reg->lock);
    r = copy_list(reg, ret, e);
    (void)pthread_mutex_unlock(&reg->lock);
    return r;
}
