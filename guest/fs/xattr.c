#include "fs/xattr.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>

#include "common/cleanup.h"
#include "common/str.h"

static bool must_arrive(const char *name)
{
    return str_has_prefix(name, "user.") || strcmp(name, "system.posix_acl_access") == 0;
}

static int copy_one(int from, int to, const char *name, char *value)
{
    ssize_t n = fgetxattr(from, name, value, FS_XATTR_VALUE_MAX);

    if (n < 0)
        return errno == ENODATA || !must_arrive(name) ? 0 : -1;
    if (fsetxattr(to, name, value, (size_t)n, 0) < 0 && must_arrive(name))
        return -1;
    return 0;
}

int fs_xattr_copy(int from, int to)
{
    ssize_t total = flistxattr(from, NULL, 0);
    _cleanup_free_ char *names = NULL;
    _cleanup_free_ char *value = NULL;

    if (total <= 0)
        return 0;
    names = malloc(FS_XATTR_LIST_MAX);
    value = malloc(FS_XATTR_VALUE_MAX);
    if (!names || !value) {
        errno = ENOMEM;
        return -1;
    }
    total = flistxattr(from, names, FS_XATTR_LIST_MAX);
    for (ssize_t at = 0; at < total; at += (ssize_t)strlen(names + at) + 1)
        if (strcmp(names + at, "security.capability") != 0 &&
            copy_one(from, to, names + at, value) < 0)
            return -1;
    return 0;
}
