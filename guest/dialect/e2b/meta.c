#include "dialect/e2b/meta.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>

#include "common/cleanup.h"
#include "common/str.h"
#include "dialect/e2b/file_paths.h"
#include "fs/copy.h"

#define PREFIX_BYTES (sizeof(META_PREFIX) - 1)
#define NAME_BYTES (PREFIX_BYTES + META_KEY_MAX_BYTES + 1)
#define FD_PATH_BYTES 40

static int check_text(const char *what, const char *s, struct err *e)
{
    for (size_t i = 0; s[i]; i++)
        if (s[i] < 0x20 || s[i] > 0x7e)
            return err_set(e, ERR_INVALID,
                           "invalid metadata: metadata %s contains non-printable-ASCII byte 0x%02x "
                           "at offset %zu",
                           what, (unsigned)(unsigned char)s[i], i);
    return 0;
}

static int check_pair(const char *key, const char *value, struct err *e)
{
    char what[META_KEY_MAX_BYTES + 32];
    int r;

    if (!*key)
        return err_set(e, ERR_INVALID, "invalid metadata: metadata key must not be empty");
    if (strlen(key) > META_KEY_MAX_BYTES)
        return err_set(e, ERR_INVALID, "invalid metadata: metadata key \"%s\" exceeds %d bytes",
                       key, META_KEY_MAX_BYTES);
    r = check_text("key", key, e);
    if (r < 0)
        return r;
    (void)snprintf(what, sizeof(what), "value for key \"%s\"", key);
    return check_text(what, value, e);
}

static const struct meta_pair *meta_find(const struct meta *m, const char *key)
{
    for (size_t i = 0; i < m->n; i++)
        if (strcmp(m->v[i].key, key) == 0)
            return &m->v[i];
    return NULL;
}

int meta_add(struct meta *m, const char *key, const char *value, struct err *e)
{
    _cleanup_free_ char *lower = strdup(key);
    _cleanup_free_ char *copy = strdup(value);
    struct meta_pair *grown;
    int r;

    if (!lower || !copy)
        return err_oom(e);
    for (char *c = lower; *c; c++)
        *c = (char)tolower((unsigned char)*c);
    r = check_pair(lower, copy, e);
    if (r < 0 || meta_find(m, lower))
        return r;
    if (m->n == META_PAIRS_MAX)
        return err_set(e, ERR_INVALID, "invalid metadata: more than %d keys", META_PAIRS_MAX);
    grown = realloc(m->v, (m->n + 1) * sizeof(*grown));
    if (!grown)
        return err_oom(e);
    m->v = grown;
    m->v[m->n++] = (struct meta_pair){TAKE(lower), TAKE(copy)};
    return 0;
}

size_t meta_bytes(const struct meta *m)
{
    size_t total = 0;

    for (size_t i = 0; i < m->n; i++)
        total += PREFIX_BYTES + strlen(m->v[i].key) + strlen(m->v[i].value);
    return total;
}

int meta_check(const struct meta *m, struct err *e)
{
    size_t total = meta_bytes(m);

    if (total > META_TOTAL_MAX_BYTES)
        return err_set(e, ERR_INVALID, "invalid metadata: total metadata size %zu exceeds %d bytes",
                       total, META_TOTAL_MAX_BYTES);
    return 0;
}

void meta_done(struct meta *m)
{
    for (size_t i = 0; i < m->n; i++) {
        free(m->v[i].key);
        free(m->v[i].value);
    }
    free(m->v);
    *m = (struct meta){0};
}

/* ---- on the disk ----------------------------------------------------------------------------- */

static int write_error(struct err *e)
{
    if (errno == EOPNOTSUPP)
        return 0;
    if (errno == ENOSPC || errno == EDQUOT)
        return err_wrap(e, err_sys(e, ENOSPC, "set"), "not enough space for file metadata");
    return fault_sys(e, ERR_INTERNAL, errno, "error writing file metadata");
}

/* The names, each with a NUL; *ret_len 0: none. An O_PATH descriptor knows no attributes itself. */
static char *list_names(int fd, size_t *ret_len)
{
    char path[FD_PATH_BYTES];
    char *names;
    ssize_t n;

    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    n = flistxattr(fd, NULL, 0);
    if (n < 0 && errno == EBADF)
        n = listxattr(path, NULL, 0);
    if (n <= 0 || !(names = malloc(FS_XATTR_LIST_MAX)))
        return NULL;
    n = flistxattr(fd, names, FS_XATTR_LIST_MAX);
    if (n < 0 && errno == EBADF)
        n = listxattr(path, names, FS_XATTR_LIST_MAX);
    *ret_len = n > 0 ? (size_t)n : 0;
    return names;
}

static int remove_others(int fd, const struct meta *m, struct err *e)
{
    size_t len = 0;
    _cleanup_free_ char *names = list_names(fd, &len);

    for (size_t at = 0; at < len; at += strlen(names + at) + 1) {
        const char *name = names + at;

        if (!str_has_prefix(name, META_PREFIX) || meta_find(m, name + PREFIX_BYTES))
            continue;
        if (fremovexattr(fd, name) < 0 && errno != ENODATA)
            return write_error(e);
    }
    return 0;
}

int meta_write(int fd, const struct meta *m, struct err *e)
{
    char name[NAME_BYTES];
    int r = remove_others(fd, m, e);

    for (size_t i = 0; i < m->n && r == 0; i++) {
        (void)snprintf(name, sizeof(name), META_PREFIX "%s", m->v[i].key);
        if (fsetxattr(fd, name, m->v[i].value, strlen(m->v[i].value), 0) < 0)
            r = write_error(e);
    }
    return r;
}

static ssize_t read_value(int fd, const char *name, char *value)
{
    char path[FD_PATH_BYTES];
    ssize_t n = fgetxattr(fd, name, value, FS_XATTR_VALUE_MAX);

    if (n >= 0 || errno != EBADF)
        return n;
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    return getxattr(path, name, value, FS_XATTR_VALUE_MAX);
}

json_t *meta_read(int fd)
{
    size_t len = 0;
    _cleanup_free_ char *names = list_names(fd, &len);
    _cleanup_free_ char *value = NULL;
    json_t *all = NULL;

    for (size_t at = 0; at < len; at += strlen(names + at) + 1) {
        const char *key = names + at + PREFIX_BYTES;
        ssize_t n;

        if (!str_has_prefix(names + at, META_PREFIX) || !str_is_utf8(key, strlen(key)))
            continue;
        if ((!value && !(value = malloc(FS_XATTR_VALUE_MAX))) || (!all && !(all = json_object())))
            break;
        n = read_value(fd, names + at, value);
        if (n >= 0 && str_is_utf8(value, (size_t)n))
            (void)json_object_set_new(all, key, json_stringn(value, (size_t)n));
    }
    if (!json_object_size(all)) {
        json_decref(all);
        return NULL;
    }
    return all;
}
