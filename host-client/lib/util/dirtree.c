#include "lib/util/dirtree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/str.h"
#include "lib/util/beneath.h"

/*
 * A box can make trees deeper than any path or stack. Nothing recurses: each round unlinks a
 * directory's files and moves its directories up to the top one, until that is empty.
 */
struct remover {
    int top;
    unsigned n_moved;
    bool found; /* this round found an entry */
};

static bool is_dots(const char *name)
{
    return str_eq(name, ".") || str_eq(name, "..");
}

/* Removes a file, a link or an empty directory. */
static bool remove_simple(int dir, const char *name)
{
    return unlinkat(dir, name, 0) == 0 || errno == ENOENT || unlinkat(dir, name, AT_REMOVEDIR) == 0;
}

/* Opens a directory, also one that its owner made unreadable. */
static int open_dir(int dir, const char *name)
{
    const int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
    int fd = openat(dir, name, flags);

    if (fd < 0 && errno == EACCES && beneath_chmod(dir, name, 0700) == 0)
        fd = openat(dir, name, flags);
    if (fd >= 0)
        (void)fchmod(fd, 0700);
    return fd;
}

/* Empties the directory `fd` (closed here) into the top one. */
static int empty_dir(struct remover *rm, int fd, struct err *e)
{
    _cleanup_closedir_ DIR *d = fdopendir(fd);

    if (!d) {
        fd_close(fd);
        return err_sys(e, errno, "open a directory");
    }
    for (struct dirent *de; (de = readdir(d));) {
        char name[32];
        int r;

        if (is_dots(de->d_name) || remove_simple(dirfd(d), de->d_name))
            continue;
        (void)beneath_chmod(dirfd(d), de->d_name, 0700); /* moving a directory writes its '..' */
        do /* skip the names of an interrupted removal */
            (void)snprintf(name, sizeof(name), ".bellhop-rm-%u", rm->n_moved++);
        while ((r = renameat(dirfd(d), de->d_name, rm->top, name)) < 0 &&
               (errno == ENOTEMPTY || errno == EEXIST || errno == ENOTDIR));
        if (r < 0)
            return err_sys(e, errno, "remove '%s'", de->d_name);
    }
    return 0;
}

/* Handles every entry of the top directory once. */
static int remove_round(struct remover *rm, struct err *e)
{
    int fd = openat(rm->top, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    _cleanup_closedir_ DIR *d = fd < 0 ? NULL : fdopendir(fd);
    int r = 0;

    if (!d)
        return err_sys(e, errno, "open a directory");
    rm->found = false;
    for (struct dirent *de; r == 0 && (de = readdir(d));) {
        int sub;

        if (is_dots(de->d_name))
            continue;
        rm->found = true;
        if (remove_simple(rm->top, de->d_name))
            continue;
        sub = open_dir(rm->top, de->d_name);
        if (sub < 0)
            return err_sys(e, errno, "remove '%s'", de->d_name);
        r = empty_dir(rm, sub, e);
        if (r == 0 && !remove_simple(rm->top, de->d_name))
            r = err_sys(e, errno, "remove '%s'", de->d_name);
    }
    return r;
}

int dirtree_remove(const char *path, struct err *e)
{
    _cleanup_close_ int top = open_dir(AT_FDCWD, path);
    struct remover rm = {.top = top, .found = true};
    int r = 0;

    if (top < 0)
        return errno == ENOENT ? 0 : err_sys(e, errno, "open '%s'", path);
    while (r == 0 && rm.found)
        r = remove_round(&rm, e);
    if (r < 0)
        return err_wrap(e, r, "removing '%s'", path);
    if (rmdir(path) < 0 && errno != ENOENT)
        return err_sys(e, errno, "remove '%s'", path);
    return 0;
}
