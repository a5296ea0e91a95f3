#include "system/token.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/io.h"
#include "common/path.h"

#define MODE_RULE "its mode must be 0600 or 0400, or 0440 if root owns it and the agent is not root"

int token_read_fd(int fd, const char *name, char out[TOKEN_MAX_BYTES], size_t *ret_len,
                  struct err *e)
{
    size_t len = 0;
    int r;

    r = io_read_full(fd, out, TOKEN_MAX_BYTES, &len, e);
    if (r < 0)
        return err_wrap(e, r, "the token in %s", name);
    while (len && (out[len - 1] == '\n' || out[len - 1] == '\r' || out[len - 1] == ' '))
        len--;
    if (len < TOKEN_MIN_BYTES || len == TOKEN_MAX_BYTES)
        return err_set(e, ERR_INVALID, "the token in %s must have from %d to %d characters", name,
                       TOKEN_MIN_BYTES, TOKEN_MAX_BYTES - 1);
    for (size_t i = 0; i < len; i++)
        if (out[i] <= ' ' || out[i] > '~')
            return err_set(e, ERR_INVALID, "the token in %s has characters a header can't carry",
                           name);
    *ret_len = len;
    return 0;
}

static bool is_own_group(gid_t gid)
{
    int n = getgroups(0, NULL);
    _cleanup_free_ gid_t *list = n > 0 ? calloc((size_t)n, sizeof(*list)) : NULL;

    if (gid == getegid())
        return true;
    n = list ? getgroups(n, list) : 0;
    for (int i = 0; i < n; i++)
        if (list[i] == gid)
            return true;
    return false;
}

/* By an open descriptor. A read-only mount counts: the directory of a Secret has mode 1777 below one. */
static int refuse_writable(int fd, const char *what, const char *path, struct err *e)
{
    char link[64];

    (void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    if (faccessat(AT_FDCWD, link, W_OK, AT_EACCESS) == 0) /* access() forgets capabilities */
        return err_set(e, ERR_DENIED,
                       "the agent's user can write %s '%s', which root owns and a group reads",
                       what, path);
    if (errno == EACCES || errno == EROFS)
        return 0;
    return err_sys(e, errno, "whether the agent's user can write %s '%s'", what, path);
}

static int refuse_writable_dir(char *path, struct err *e)
{
    char *slash = strrchr(path, '/');
    _cleanup_close_ int fd = -1;

    if (slash)
        slash[slash == path] = '\0';
    fd = open(slash ? path : ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return err_sys(e, errno, "the token file's directory '%s'", path);
    return refuse_writable(fd, "the directory", slash ? path : ".", e);
}

/*
 * Commands of the agent's user must not put another token into the place of this one: not into the file, not by its
 * name, nor, where the name is a link, in the directory that it leads to.
 */
static int check_replaceable(int fd, const char *path, struct err *e)
{
    char link[64], real[PATH_MAX];
    _cleanup_free_ char *copy = strdup(path);
    ssize_t n;
    int r = copy ? refuse_writable(fd, "the token file", path, e) : err_oom(e);

    if (r == 0)
        r = refuse_writable_dir(copy, e);
    if (r < 0)
        return r;
    (void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    n = readlink(link, real, sizeof(real) - 1);
    if (n < 0)
        return err_sys(e, errno, "where the token file '%s' is", path);
    real[n] = '\0';
    return refuse_writable_dir(real, e);
}

/* One rule, one message. */
static int check_file(int fd, const struct stat *st, const char *path, struct err *e)
{
    unsigned mode = st->st_mode & 07777;

    if (mode & 07)
        return err_set(e, ERR_DENIED, "others can use the token file '%s' (mode %04o): " MODE_RULE,
                       path, mode);
    if (mode & 020)
        return err_set(e, ERR_DENIED,
                       "a group can write the token file '%s' (mode %04o): " MODE_RULE, path, mode);
    if (!(mode & 040))
        return 0;
    if (geteuid() == 0 || st->st_uid != 0)
        return err_set(e, ERR_DENIED,
                       "a group can read the token file '%s' (mode %04o), and %s: " MODE_RULE, path,
                       mode, st->st_uid ? "root does not own it" : "the agent is root");
    if (!is_own_group(st->st_gid))
        return err_set(e, ERR_DENIED,
                       "the group %u can read the token file '%s', and the agent is not in it",
                       (unsigned)st->st_gid, path);
    return check_replaceable(fd, path, e);
}

int token_read_file(const char *path, char out[TOKEN_MAX_BYTES], size_t *ret_len, struct stat *ret,
                    struct err *e)
{
    _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    char name[256];
    struct stat st;
    int r;

    if (fd < 0 || fstat(fd, &st) < 0)
        return err_sys(e, errno, "the token file '%s'", path);
    r = S_ISREG(st.st_mode) ? check_file(fd, &st, path, e) : 0;
    if (r < 0)
        return r;
    (void)snprintf(name, sizeof(name), "'%s'", path);
    r = token_read_fd(fd, name, out, ret_len, e);
    if (r == 0)
        *ret = st;
    return r;
}
