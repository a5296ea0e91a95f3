#include "search/open_nofollow.h"

#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/cleanup.h"

#define ALWAYS (O_NOCTTY | O_NONBLOCK)
#define PIECE_BYTES 4000 /* of a path in one call; PATH_MAX is 4096 */

static int open_once(int dirfd, const char *piece, int flags)
{
    struct open_how how = {
        .flags = (uint64_t)(unsigned)(flags | O_CLOEXEC),
        .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
    };
    long fd = syscall(SYS_openat2, dirfd, piece, &how, sizeof(how));

    return fd < 0 ? -errno : (int)fd;
}

/* The end of the longest run of whole components of at most max bytes (at least one component). */
static size_t piece_len(const char *path, size_t max)
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
static int open_pieces(int dirfd, const char *path, int flags, size_t max)
{
    _cleanup_close_ int held = -1;
    char piece[PATH_MAX];

    for (;;) {
        size_t n = piece_len(path, max);
        bool last = path[n] == '\0';
        int fd, how = last ? flags | ALWAYS : O_PATH | O_DIRECTORY; /* O_PATH takes no more */

        if (n >= sizeof(piece))
            return -ENAMETOOLONG;
        memcpy(piece, path, n);
        piece[n] = '\0';
        if (max)
            fd = open_once(held < 0 ? dirfd : held, piece, how);
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

int below_open(int dirfd, const char *path, int flags)
{
    int fd = open_pieces(dirfd, path, flags | O_NOFOLLOW, PIECE_BYTES);

    if (fd == -ENOSYS || fd == -EPERM || fd == -EAGAIN) /* an old kernel, or a seccomp filter */
        fd = open_pieces(dirfd, path, flags, 0);
    return fd;
}
