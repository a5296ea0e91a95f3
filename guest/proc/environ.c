/* environ: the variables that every later command gets, and the merging of variables. */
#include <ctype.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/io.h"
#include "common/str.h"
#include "proc/proc.h"

/*
 * A hash table from names to their index in the list, since a request may bring very many: index +
 * 1; 0: free.
 */
struct names {
    size_t *slots;
    size_t mask;
};

static size_t hash_name(const char *setting)
{
    uint64_t h = 14695981039346656037u; /* FNV-1a */

    for (; *setting && *setting != '='; setting++)
        h = (h ^ (unsigned char)*setting) * 1099511628211u;
    return (size_t)(h ^ h >> 32);
}

/* The slot of the name, or the free slot where it belongs. */
static size_t *find_name(const struct names *t, char *const *env, const char *setting)
{
    size_t len = strcspn(setting, "=") + 1;
    size_t i = hash_name(setting) & t->mask;

    while (t->slots[i] && strncmp(env[t->slots[i] - 1], setting, len) != 0)
        i = (i + 1) & t->mask;
    return &t->slots[i];
}

static int set_one(const struct names *t, struct strv_list *l, const char *setting, struct err *e)
{
    size_t *slot = find_name(t, l->v, setting);
    char *copy;
    int r;

    if (!*slot) {
        r = strv_list_add(l, setting, e);
        if (r == 0)
            *slot = l->n;
        return r;
    }
    copy = strdup(setting);
    if (!copy)
        return err_oom(e);
    free(l->v[*slot - 1]);
    l->v[*slot - 1] = copy;
    return 0;
}

int environ_set_all(char ***env, char *const *settings, struct err *e)
{
    struct strv_list l = {.v = *env, .n = strv_len(*env)};
    _cleanup_free_ size_t *slots = NULL;
    size_t n_slots = 16;
    struct names t;
    int r = 0;

    if (!settings || !*settings)
        return 0;
    while (n_slots < 2 * (l.n + strv_len(settings)))
        n_slots *= 2;
    slots = calloc(n_slots, sizeof(*slots));
    if (!slots)
        return err_oom(e);
    t = (struct names){.slots = slots, .mask = n_slots - 1};
    for (size_t i = 0; i < l.n; i++)
        *find_name(&t, l.v, l.v[i]) = i + 1;
    for (; r == 0 && *settings; settings++)
        r = set_one(&t, &l, *settings, e);
    *env = l.v;
    return r;
}

static void env_unset(char **env, const char *name)
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

static int too_many(struct err *e)
{
    return err_set(e, ERR_EXHAUSTED, "more than %d variables, or %d bytes of them",
                   ENVIRON_MAX_VARS, ENVIRON_MAX_BYTES);
}

static int check_bounds(char *const *env, struct err *e)
{
    size_t bytes = 0, n = 0;

    for (; env && env[n]; n++)
        bytes += strlen(env[n]) + 1;
    return n > ENVIRON_MAX_VARS || bytes > ENVIRON_MAX_BYTES ? too_many(e) : 0;
}

/* A longer list is refused before the registry is locked for it. */
static int check_count(char *const *list, struct err *e)
{
    return strv_len(list) > ENVIRON_MAX_VARS ? too_many(e) : 0;
}

static int env_apply(char ***env, char *const *names, char *const *settings, struct err *e)
{
    int r = 0;

    for (; names && *names; names++)
        env_unset(*env, *names);
    for (size_t i = 0; settings && settings[i] && r == 0; i++)
        r = check_name(settings[i], e);
    if (r == 0)
        r = environ_set_all(env, settings, e);
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
    _cleanup_strv_ char **next = NULL; /* later the old list, freed without the lock */
    _cleanup_unlock_ pthread_mutex_t *locked = NULL;
    int r = check_count(names, e);

    if (r == 0)
        r = check_count(settings, e);
    if (r < 0)
        return r;
    locked = mutex_lock(&reg->lock);
    r = replace ? 0 : copy_list(reg, &next, e);
    if (r == 0)
        r = env_apply(&next, names, settings, e);
    if (r == 0) {
        char **old = reg->env;

        reg->env = next;
        next = old;
    }
    return r;
}

int environ_load_file(struct registry *reg, const char *path, struct err *e)
{
    _cleanup_free_ char *text = NULL;
    _cleanup_strv_ char **lines = NULL;
    int r = io_read_file(AT_FDCWD, path, ENVIRON_MAX_BYTES, &text, NULL, e);

    for (char *rest = text, *line; r == 0 && (line = strsep(&rest, "\n"));)
        if (*line)
            r = strchr(line, '=') ? strv_push(&lines, line, e)
                                  : err_set(e, ERR_INVALID, "'%.64s' is not NAME=VALUE", line);
    if (r == 0)
        r = environ_change(reg, false, NULL, lines, e);
    return r < 0 ? err_wrap(e, r, "the variables in '%s'", path) : 0;
}

int environ_copy(struct registry *reg, char ***ret, struct err *e)
{
    _cleanup_unlock_ pthread_mutex_t *locked = mutex_lock(&reg->lock);

    return copy_list(reg, ret, e);
}
