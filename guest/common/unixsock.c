#include "common/unixsock.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/cleanup.h"

static int make_address(const char *path, struct sockaddr_un *ret, struct err *e)
{
    *ret = (struct sockaddr_un){.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof(ret->sun_path))
        return err_set(e, ERR_INVALID, "a socket's path has at most %zu bytes",
                       sizeof(ret->sun_path) - 1);
    (void)snprintf(ret->sun_path, sizeof(ret->sun_path), "%s", path);
    return 0;
}

/* Removes a socket's file if nobody listens on it. */
static int remove_stale(const char *path, const struct sockaddr_un *addr, struct err *e)
{
    _cleanup_close_ int fd = -1;
    struct stat st;

    if (lstat(path, &st) < 0)
        return errno == ENOENT ? 0 : err_sys(e, errno, "'%s'", path);
    if (!S_ISSOCK(st.st_mode))
        return err_set(e, ERR_EXISTS, "'%s' exists and is not a socket", path);
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return err_sys(e, errno, "socket");
    if (connect(fd, (const struct sockaddr *)addr, sizeof(*addr)) == 0 || errno == EAGAIN)
        return err_set(e, ERR_EXISTS, "something listens on '%s' already", path);
    return unlink(path) < 0 ? err_sys(e, errno, "remove '%s'", path) : 0;
}

int unixsock_bind(const char *path, mode_t mode, int *ret_fd, struct err *e)
{
    _cleanup_close_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct sockaddr_un addr;
    mode_t mask;
    int r;

    if (fd < 0)
        return err_sys(e, errno, "socket");
    r = make_address(path, &addr, e);
    if (r == 0)
        r = remove_stale(path, &addr, e);
    if (r < 0)
        return r;
    mask = umask(0777 & ~mode);
    r = bind(fd, (const struct sockaddr *)&addr, sizeof(addr));
    if (r < 0)
        r = err_sys(e, errno, "listen on '%s'", path);
    (void)umask(mask);
    if (r == 0)
        *ret_fd = TAKE_FD(fd);
    return r;
}

int unixsock_connect(const char *path, int *ret_fd, struct err *e)
{
    _cleanup_close_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_un addr;
    int r;

    if (fd < 0)
        return err_sys(e, errno, "socket");
    r = make_address(path, &addr, e);
    if (r == 0 && connect(fd, (const struct sockaddr *)&addr, sizeof(addr)) < 0)
        r = err_sys(e, errno, "connect to '%s'", path);
    if (r == 0)
        *ret_fd = TAKE_FD(fd);
    return r;
}
