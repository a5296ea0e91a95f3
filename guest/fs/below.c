#include "fs/below.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "common/cleanup.h"
#include "common/path.h"

#define LAST_FLAGS (O_NOCTTY | O_NONBLOCK)
#define PIECE_BYTES 4000 /* of a path in one call; PATH_MAX is 4096 */

static int step_into(int *fd, const char *name, bool make, struct err *e)
{
    int next;

    if (make && mkdirat(*fd, name, FS_BELOW_DIR_MODE) < 0 && errno != EEXIST)
        return err_sys(e, errno, "mkdir '%.200s'", name);
    next = openat(*fd, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (next < 0 && (errno == ELOOP || errno == ENOTDIR))
        return err_set(e, ERR_INVALID, "'%.200s' on the way is a link or a file", name);
    if (next < 0)
        return err_sys(e, errno, "open '%.200s'", name);
    fd_close(*fd);
    *fd = next;
    return 0;
}

int fs_open_below(int base, const char *dir, bool make, int *ret_fd, struct err *e)
{
    _cleanup_close_ int fd = fcntl(base, F_DUPFD_CLOEXEC, 3);
    int r;

    if (fd < 0)
        return err_sys(e, errno, "open '%.200s'", dir);
    while (*dir) {
        char name[NAME_MAX + 1];
        size_t n = strcspn(dir, "/");

        if (n > NAME_MAX)
            return err_sys(e, ENAMETOOLONG, "open '%.200s'", dir);
        (void)memcpy(name, dir, n);
        name[n] = '\0';
        if (strcmp(name, "..") == 0)
            return err_set(e, ERR_INVALID, "'..' in '%.200s'", dir);
        r = step_into(&fd, name, make, e);
        if (r < 0)
            return r;
        dir += n + (dir[n] == '/');
    }
    *ret_fd = TAKE_FD(fd);
    return 0;
}

char *fs_below_parent(const char *path, const char **ret_name)
{
    const char *name = path_name(path);

    *ret_name = name;
    return strndup(path, (size_t)(name > path ? name - path - 1 : 0));
}

/* ---- in as few calls as possible
 * --------------------------------------------------------------- */

static int openat2_beneath(int dirfd, const char *piece, int flags)
{
    struct open_how how = {
        .flags = (uint64_t)(unsigned)(flags | O_CLOEXEC),
        .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
    };
    long fd = syscall(SYS_openat2, dirfd, piece, &how, sizeof(how));

    return fd < 0 ? -errno : (int)fd;
}

/* The end of the longest run of whole components of at most max bytes (at least one component). */
static size_t path_piece_len(const char *path, size_t max)
{
    size_t end = strcspn(path, "/");

    while (path[end]) {
        size_t next = end + 1 + strcspn(path + end + 1, "/");

        if (next > max)
            break;
        end = next;
    }
    return end;
}

/* max: how much of the path goes to the kernel at once; 0 for one component (no openat2). */
static int open_in_pieces(int dirfd, const char *path, int flags, size_t max)
{
    _cleanup_close_ int held = -1;
    char piece[PATH_MAX];

    for (;;) {
        size_t n = path_piece_len(path, max);
        bool last = path[n] == '\0';
        int fd, how = last ? flags | LAST_FLAGS : O_PATH | O_DIRECTORY; /* O_PATH takes no more */

        if (n >= sizeof(piece))
            return -ENAMETOOLONG;
        memcpy(piece, path, n);
        piece[n] = '\0';
        if (max)
            fd = openat2_beneath(held < 0 ? dirfd : held, piece, how);
        else
            fd = openat(held < 0 ? dirfd : held, piece, how | O_CLOEXEC | O_NOFOLLOW);
        if (fd < 0)
            return max ? fd : -errno;
        if (last)
            return fd;
        fd_close(held);
        held = fd;
        path += n + 1;
    }
}

int fs_openat_below(int dirfd, const char *path, int flags)
{
    int fd = open_in_pieces(dirfd, path, flags | O_NOFOLLOW, PIECE_BYTES);

    if (fd == -ENOSYS || fd == -EPERM || fd == -EAGAIN) /* an old kernel, or a seccomp filter */
        fd = open_in_pieces(dirfd, path, flags, 0);
    return fd;
}
