#include "fs/remove_tree.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "fs/root.h"
#include "fs/walk.h"

static void make_writable(int dirfd, const char *name, const struct stat *st)
{
    _cleanup_close_ int fd = -1;

    if ((st->st_mode & 0700) == 0700)
        return;
    /* Must not follow a link that has taken its place: by a descriptor instead. */
    if (fchmodat(dirfd, name, (st->st_mode & 07777) | 0700, AT_SYMLINK_NOFOLLOW) == 0)
        return;
    fd = fs_openat_nofollow(dirfd, name, O_RDONLY | O_DIRECTORY);
    if (fd >= 0)
        (void)fchmod(fd, (st->st_mode & 07777) | 0700);
}

static int remove_item(const struct fs_walk_item *it, dev_t dev, bool force, uint64_t *removed,
                       struct err *e)
{
    bool is_dir = S_ISDIR(it->st.st_mode);

    if (it->kind == FS_WALK_ERROR && it->error.sys == ENOENT)
        return 0; /* another process was quicker */
    if (it->kind == FS_WALK_ERROR)
        return err_sys(e, it->error.sys ? it->error.sys : EIO, "remove '%s'", it->path);
    if (it->depth == 0)
        return 0;
    if (it->kind == FS_WALK_ENTRY && is_dir && it->st.st_dev != dev)
        return err_field(e, ERR_PRECONDITION, "path", "'%s' is a mount point", it->path);
    if (it->kind == FS_WALK_ENTRY && is_dir) {
        if (force)
            make_writable(it->dirfd, it->name, &it->st);
        return 0;
    }
    if (unlinkat(it->dirfd, it->name, is_dir ? AT_REMOVEDIR : 0) < 0 && errno != ENOENT)
        return err_sys(e, errno, "remove '%s'", it->path);
    *removed += 1;
    return 0;
}

static int remove_below(int fd, bool force, uint64_t *removed, struct err *e)
{
    struct fs_walk_options o = {
        .max_depth = FS_TREE_MAX_DEPTH,
        .deep_is_error = true,
        .with_temps = true,
    };
    const struct fs_walk_item *it;
    struct fs_walk *w = NULL;
    struct stat st;
    int r;

    if (fstat(fd, &st) < 0) {
        fd_close(fd);
        return err_sys(e, errno, "stat");
    }
    r = fs_walk_new_take(fd, &o, &w, e);
    while (r == 0) {
        r = fs_walk_next(w, &it, e);
        if (r <= 0)
            break;
        r = remove_item(it, st.st_dev, force, removed, e);
    }
    fs_walk_free(w);
    return r;
}

int fs_remove_tree(int dirfd, const char *name, bool force, uint64_t *removed, struct err *e)
{
    uint64_t ignored = 0;
    struct stat st;
    int fd, r;

    if (!removed)
        removed = &ignored;
    if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return err_sys(e, errno, "remove '%s'", name);
    if (S_ISDIR(st.st_mode)) {
        if (force)
            make_writable(dirfd, name, &st);
        fd = fs_openat_nofollow(dirfd, name, O_RDONLY | O_DIRECTORY);
        if (fd < 0)
            return err_sys(e, errno, "open '%s'", name);
        r = remove_below(fd, force, removed, e);
        if (r < 0)
            return r;
    }
    if (unlinkat(dirfd, name, S_ISDIR(st.st_mode) ? AT_REMOVEDIR : 0) < 0)
        return err_sys(e, errno, "remove '%s'", name);
    *removed += 1;
    return 0;
}
