#include "fs/below.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

#include "common/cleanup.h"
#include "common/path.h"

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
