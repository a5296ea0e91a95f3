#include "common/user.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/io.h"
#include "common/str.h"

#define PASSWD "/etc/passwd"
#define GROUP "/etc/group"
#define N_PASSWD_COLUMNS 7
#define N_GROUP_COLUMNS 4
#define SETTLED_MS 2000

void user_done(struct user *u)
{
    if (!u)
        return;
    free(u->name);
    free(u->home);
    free(u->groups);
    *u = (struct user){0};
}

/* Splits the next line of *text at ':' into n columns (missing ones are ""); false: the end. */
static bool next_row(char **text, char **columns, size_t n)
{
    char *line = strsep(text, "\n");

    if (!line)
        return false;
    for (size_t i = 0; i < n; i++) {
        char *column = strsep(&line, ":");

        columns[i] = column ? column : (char *)"";
    }
    return true;
}

static bool parse_id(const char *s, uint32_t *ret)
{
    uint64_t v;

    /* -1 means "no change" to the kernel */
    if (str_parse_u64(s, 0, UINT32_MAX - 1, &v, NULL) < 0)
        return false;
    *ret = (uint32_t)v;
    return true;
}

static int set_names(struct user *u, const char *name, const char *home, struct err *e)
{
    free(u->name);
    free(u->home);
    u->name = strdup(name);
    u->home = strdup(home[0] == '/' ? home : "/");
    return u->name && u->home ? 0 : err_oom(e);
}

/* Fills in u from the row with this name, or with this uid if name is NULL. ERR_NOT_FOUND. */
static int find_row(const char *name, uid_t uid, struct user *u, struct err *e)
{
    _cleanup_free_ char *data = NULL;
    char *columns[N_PASSWD_COLUMNS], *at;
    int r;

    r = io_read_file(AT_FDCWD, PASSWD, USER_FILE_MAX_BYTES, &data, NULL, e);
    if (r < 0)
        return r;
    at = data;
    while (next_row(&at, columns, N_ELEMENTS(columns))) {
        uint32_t row_uid, row_gid;

        if (!parse_id(columns[2], &row_uid) || !parse_id(columns[3], &row_gid))
            continue;
        if (name ? !str_eq(columns[0], name) : row_uid != uid)
            continue;
        u->uid = row_uid;
        u->gid = row_gid;
        return set_names(u, columns[0], columns[5], e);
    }
    return err_field(e, ERR_NOT_FOUND, "user", "no such user");
}

int user_find_group(const char *name, gid_t *ret, struct err *e)
{
    _cleanup_free_ char *data = NULL;
    char *columns[N_GROUP_COLUMNS], *at;
    int r = io_read_file(AT_FDCWD, GROUP, USER_FILE_MAX_BYTES, &data, NULL, e);

    if (r < 0)
        return r;
    at = data;
    while (next_row(&at, columns, N_ELEMENTS(columns))) {
        uint32_t gid;

        if (!str_eq(columns[0], name) || !parse_id(columns[2], &gid))
            continue;
        *ret = gid;
        return 0;
    }
    return err_field(e, ERR_NOT_FOUND, "group", "no such group");
}

static bool members_have(char *members, const char *name)
{
    char *member;

    while ((member = strsep(&members, ",")))
        if (str_eq(member, name))
            return true;
    return false;
}

static int add_group(struct user *u, gid_t gid, struct err *e)
{
    gid_t *groups;

    for (size_t i = 0; i < u->n_groups; i++)
        if (u->groups[i] == gid)
            return 0;
    if (u->n_groups >= USER_MAX_GROUPS)
        return err_field(e, ERR_EXHAUSTED, "user", "in more than %d groups", USER_MAX_GROUPS);
    groups = reallocarray(u->groups, u->n_groups + 1, sizeof(*groups));
    if (!groups)
        return err_oom(e);
    u->groups = groups;
    groups[u->n_groups++] = gid;
    return 0;
}

/* A box without /etc/group has no supplementary groups. */
static int find_groups(struct user *u, struct err *e)
{
    _cleanup_free_ char *data = NULL;
    char *columns[N_GROUP_COLUMNS], *at;
    int r;

    r = add_group(u, u->gid, e);
    if (r < 0)
        return r;
    r = io_read_file(AT_FDCWD, GROUP, USER_FILE_MAX_BYTES, &data, NULL, e);
    if (r < 0)
        return r == -ERR_NOT_FOUND ? 0 : r;
    at = data;
    while (next_row(&at, columns, N_ELEMENTS(columns))) {
        uint32_t gid;

        if (!parse_id(columns[2], &gid) || !members_have(columns[3], u->name))
            continue;
        r = add_group(u, gid, e);
        if (r < 0)
            return r;
    }
    return 0;
}

/* "1000" or "1000:100"; false: `who` is a name. */
static bool parse_numbers(const char *who, uint32_t *ret_uid, uint32_t *ret_gid, bool *ret_has_gid)
{
    const char *colon = strchr(who, ':');
    char uid[16];
    size_t n = colon ? (size_t)(colon - who) : strlen(who);

    if (n == 0 || n >= sizeof(uid))
        return false;
    memcpy(uid, who, n);
    uid[n] = '\0';
    *ret_has_gid = colon != NULL;
    return parse_id(uid, ret_uid) && (!colon || parse_id(colon + 1, ret_gid));
}

static int find_number(const char *who, uint32_t uid, struct user *u, struct err *e)
{
    int r = find_row(NULL, uid, u, NULL);

    if (r == -ERR_NOT_FOUND) {
        u->uid = uid;
        u->gid = uid;
        return set_names(u, who, "/", e);
    }
    return r < 0 ? err_set(e, (enum err_code) - r, "reading '%s' failed", PASSWD) : 0;
}

static int find_any(const char *who, struct user *u, struct err *e)
{
    uint32_t uid, gid = 0;
    bool has_gid;
    int r;

    if (!parse_numbers(who, &uid, &gid, &has_gid)) {
        r = find_row(who, 0, u, e);
        if (r == -ERR_NOT_FOUND)
            return err_field(e, ERR_NOT_FOUND, "user", "no user '%.64s' in %s", who, PASSWD);
        return r;
    }
    r = find_number(who, uid, u, e);
    if (r == 0 && has_gid)
        u->gid = gid;
    return r;
}

int user_find(const char *who, struct user *ret, struct err *e)
{
    _cleanup_user_ struct user u = {0};
    int r;

    r = find_any(who, &u, e);
    if (r < 0)
        return r;
    r = find_groups(&u, e);
    if (r < 0)
        return r;
    *ret = u;
    u = (struct user){0};
    return 0;
}

int user_find_uid(uid_t uid, struct user *ret, struct err *e)
{
    _cleanup_user_ struct user u = {0};
    char text[16];
    int r;

    (void)snprintf(text, sizeof(text), "%u", uid);
    r = find_number(text, uid, &u, e);
    if (r < 0)
        return r;
    *ret = u;
    u = (struct user){0};
    return 0;
}

/* ---- cache ---- */

void user_cache_init(struct user_cache *c)
{
    *c = (struct user_cache){0};
    (void)pthread_mutex_init(&c->lock, NULL);
}

static void cache_clear(struct user_cache *c)
{
    free(TAKE(c->who));
    user_done(&c->user);
    c->is_set = false;
}

void user_cache_done(struct user_cache *c)
{
    cache_clear(c);
    (void)pthread_mutex_destroy(&c->lock);
}

/* A missing file has the same all-zero status each time. */
static void stat_files(struct stat files[2])
{
    static const char *const paths[2] = {PASSWD, GROUP};

    for (size_t i = 0; i < N_ELEMENTS(paths); i++)
        if (stat(paths[i], &files[i]) < 0)
            files[i] = (struct stat){0};
}

static bool is_same_time(const struct timespec *a, const struct timespec *b)
{
    return a->tv_sec == b->tv_sec && a->tv_nsec == b->tv_nsec;
}

static bool is_same_file(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size &&
           is_same_time(&a->st_mtim, &b->st_mtim) && is_same_time(&a->st_ctim, &b->st_ctim);
}

/* A file that was just written may be written again within the same tick of the file system's clock. */
static bool is_settled(const struct stat *st)
{
    int64_t changed_ms = (int64_t)st->st_ctim.tv_sec * 1000 + st->st_ctim.tv_nsec / 1000000;

    return changed_ms + SETTLED_MS < clock_real_ms();
}

static int copy_user(const struct user *u, struct user *ret, struct err *e)
{
    _cleanup_user_ struct user copy = *u;

    copy.groups = NULL;
    copy.name = strdup(u->name);
    copy.home = strdup(u->home);
    if (u->n_groups)
        copy.groups = reallocarray(NULL, u->n_groups, sizeof(*u->groups));
    if (!copy.name || !copy.home || (u->n_groups && !copy.groups))
        return err_oom(e);
    if (u->n_groups)
        memcpy(copy.groups, u->groups, u->n_groups * sizeof(*u->groups));
    *ret = copy;
    copy = (struct user){0};
    return 0;
}

/* Without memory for a copy, the cache stays empty. */
static void cache_store(struct user_cache *c, const char *who, uid_t uid, const struct user *u,
                        const struct stat files[2])
{
    if (!is_settled(&files[0]) || !is_settled(&files[1]))
        return;
    (void)pthread_mutex_lock(&c->lock);
    cache_clear(c);
    c->who = who ? strdup(who) : NULL;
    c->uid = uid;
    memcpy(c->files, files, sizeof(c->files));
    c->is_set = (!who || c->who) && copy_user(u, &c->user, NULL) == 0;
    (void)pthread_mutex_unlock(&c->lock);
}

/* With the lock. */
static bool cache_has(const struct user_cache *c, const char *who, uid_t uid,
                      const struct stat files[2])
{
    return c->is_set && (who ? c->who && str_eq(c->who, who) : !c->who && c->uid == uid) &&
           is_same_file(&c->files[0], &files[0]) && is_same_file(&c->files[1], &files[1]);
}

int user_cache_find(struct user_cache *c, const char *who, uid_t uid, struct user *ret,
                    struct err *e)
{
    struct stat files[2];
    bool is_found;
    int r = 0;

    stat_files(
        files); /* before they are read: a later change makes the next call read them again */
    (void)pthread_mutex_lock(&c->lock);
    is_found = cache_has(c, who, uid, files);
    if (is_found)
        r = copy_user(&c->user, ret, e);
    (void)pthread_mutex_unlock(&c->lock);
    if (is_found)
        return r;
    r = who ? user_find(who, ret, e) : user_find_uid(uid, ret, e);
    if (r == 0)
        cache_store(c, who, uid, ret, files);
    return r;
}
