#include "common/io.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/str.h"

#define RANDOM_HEX_MAX 64

int io_write_all(int fd, const void *data, size_t len, struct err *e)
{
    const char *p = data;

    while (len) {
        ssize_t n = write(fd, p, len);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_sys(e, errno, "write");
        p += n;
        len -= (size_t)n;
    }
    return 0;
}

int io_read_full(int fd, void *data, size_t len, size_t *ret_len, struct err *e)
{
    size_t done = 0;

    while (done < len) {
        ssize_t n = read(fd, (char *)data + done, len - done);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_sys(e, errno, "read");
        if (n == 0)
            break;
        done += (size_t)n;
    }
    *ret_len = done;
    return 0;
}

int io_read_file(int dirfd, const char *path, size_t max, char **ret, size_t *ret_len,
                 struct err *e)
{
    _cleanup_close_ int fd = openat(dirfd, path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    _cleanup_free_ char *data = NULL;
    size_t cap = 4096, len = 0;
    int r;

    if (fd < 0)
        return err_sys(e, errno, "open '%s'", path);
    for (;;) {
        size_t room, n;
        char *grown;

        if (cap > max + 1)
            cap = max + 1;
        grown = realloc(data, cap + 1);
        if (!grown)
            return err_oom(e);
        data = grown;
        room = cap - len;
        r = io_read_full(fd, data + len, room, &n, e);
        if (r < 0)
            return err_wrap(e, r, "'%s'", path);
        len += n;
        if (len > max)
            return err_set(e, ERR_EXHAUSTED, "'%s' is larger than %zu bytes", path, max);
        if (n < room)
            break;
        cap *= 2;
    }
    data[len] = '\0';
    *ret = TAKE(data);
    if (ret_len)
        *ret_len = len;
    return 0;
}

int io_sync_parent(int dirfd, const char *path, struct err *e)
{
    const char *slash = strrchr(path, '/');
    _cleanup_free_ char *dir = !slash          ? strdup(".")
                               : slash == path ? strdup("/")
                                               : strndup(path, (size_t)(slash - path));
    _cleanup_close_ int fd = -1;

    if (!dir)
        return err_oom(e);
    fd = openat(dirfd, dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    /* A directory that may be written but not read has to be taken on trust. */
    if (fd < 0)
        return errno == EACCES ? 0 : err_sys(e, errno, "open '%s'", dir);
    /* A disk that can't sync a directory says EINVAL. */
    return fsync(fd) < 0 && errno != EINVAL ? err_sys(e, errno, "fsync '%s'", dir) : 0;
}

static int write_and_rename(int dirfd, const char *tmp, const char *path, const void *data,
                            size_t len, mode_t mode, bool sync, struct err *e)
{
    _cleanup_close_ int fd =
        openat(dirfd, tmp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    int r;

    if (fd < 0)
        return err_sys(e, errno, "create '%s'", tmp);
    r = io_write_all(fd, data, len, e);
    if (r < 0)
        return err_wrap(e, r, "'%s'", path);
    if (fchmod(fd, mode) < 0)
        return err_sys(e, errno, "chmod '%s'", path);
    if (sync && fsync(fd) < 0)
        return err_sys(e, errno, "fsync '%s'", path);
    if (renameat(dirfd, tmp, dirfd, path) < 0)
        return err_sys(e, errno, "rename '%s'", path);
    return sync ? io_sync_parent(dirfd, path, e) : 0;
}

int io_write_file(int dirfd, const char *path, const void *data, size_t len, mode_t mode, bool sync,
                  struct err *e)
{
    _cleanup_free_ char *tmp = NULL;
    char nonce[17];
    int r;

    r = io_random_hex(8, nonce, e);
    if (r < 0)
        return r;
    if (asprintf(&tmp, "%s.%s.tmp", path, nonce) < 0)
        return err_oom(e);
    r = write_and_rename(dirfd, tmp, path, data, len, mode, sync, e);
    if (r < 0)
        (void)unlinkat(dirfd, tmp, 0);
    return r;
}

int io_set_nonblock(int fd, bool on, struct err *e)
{
    int flags = fcntl(fd, F_GETFL);

    if (flags < 0 || fcntl(fd, F_SETFL, on ? flags | O_NONBLOCK : flags & ~O_NONBLOCK) < 0)
        return err_sys(e, errno, "fcntl");
    return 0;
}

int io_random(void *data, size_t len, struct err *e)
{
    char *p = data;

    while (len) {
        ssize_t n = getrandom(p, len, 0);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_sys(e, errno, "getrandom");
        p += n;
        len -= (size_t)n;
    }
    return 0;
}

int io_random_hex(size_t n_bytes, char *out, struct err *e)
{
    unsigned char raw[RANDOM_HEX_MAX];
    int r;

    if (n_bytes > sizeof(raw))
        return err_set(e, ERR_INTERNAL, "too many random bytes asked for");
    r = io_random(raw, n_bytes, e);
    if (r < 0)
        return r;
    str_hex(raw, n_bytes, out);
    return 0;
}

int io_mkdir_p(const char *path, mode_t mode, struct err *e)
{
    _cleanup_free_ char *copy = strdup(path);
    struct stat st;

    if (!copy)
        return err_oom(e);
    for (char *p = copy + 1;; p++) {
        char saved = *p;

        if (saved != '/' && saved != '\0')
            continue;
        *p = '\0';
        if (mkdir(copy, mode) < 0 && errno != EEXIST)
            return err_sys(e, errno, "mkdir '%s'", copy);
        *p = saved;
        if (!saved)
            break;
    }
    if (stat(path, &st) < 0)
        return err_sys(e, errno, "stat '%s'", path);
    if (!S_ISDIR(st.st_mode))
        return err_set(e, ERR_PRECONDITION, "'%s' is not a directory", path);
    return 0;
}

/* ---- unix sockets ----------------------------------------------------------------------------- */

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
