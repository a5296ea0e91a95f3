#include "lib/project/sync_local.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <nettle/sha2.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/io.h"
#include "common/path.h"
#include "common/str.h"
#include "lib/util/beneath.h"

#define READ_BYTES (128 * 1024)

int sync_local_open(const char *dir, bool make, struct sync_local *ret, struct err *e)
{
    int r = make ? io_mkdir_p(dir, 0755, e) : 0;
    int fd;

    if (r < 0)
        return r;
    fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return err_sys(e, errno, "open '%s'", dir);
    *ret = (struct sync_local){.root = fd, .parent_fd = -1};
    return 0;
}

void sync_local_done(struct sync_local *l)
{
    if (!l->root)
        return;
    fd_close(l->root);
    fd_close(l->parent_fd);
    free(l->parent);
    *l = (struct sync_local){0};
}

/* ---- the way to an entry --------------------------------------------------------------------- */

/* Opens one component deeper. 1; 0: it does not exist, or is no directory. */
static int step_into(int *fd, const char *name, bool make, struct err *e)
{
    int next;

    if (make && mkdirat(*fd, name, 0755) < 0 && errno != EEXIST)
        return err_sys(e, errno, "make '%s'", name);
    next = openat(*fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (next < 0 && !make && (errno == ENOENT || errno == ENOTDIR || errno == ELOOP))
        return 0;
    if (next < 0)
        return err_field(e, err_code_from_sys(errno), name,
                         "'%.200s' is in the way here: it is no directory, or can't be opened",
                         name);
    fd_close(*fd);
    *fd = next;
    return 1;
}

static int walk_to(struct sync_local *l, char *dir, bool make, int *ret_fd, struct err *e)
{
    _cleanup_close_ int fd = fcntl(l->root, F_DUPFD_CLOEXEC, 3);
    char *name;
    int r = fd < 0 ? err_sys(e, errno, "fcntl") : 1;

    while (r > 0 && (name = strsep(&dir, "/")))
        if (*name)
            r = strcmp(name, "..") == 0 ? err_set(e, ERR_DENIED, "the box gave a name with '..'")
                                        : step_into(&fd, name, make, e);
    if (r > 0)
        *ret_fd = TAKE_FD(fd);
    return r;
}

/* Opens the entry's directory as l->parent_fd; *ret_last is the entry's own name. */
static int enter_parent(struct sync_local *l, const char *name, bool make, const char **ret_last,
                        struct err *e)
{
    const char *last = path_name(name);
    _cleanup_free_ char *dir = strndup(name, (size_t)(last > name ? last - name - 1 : 0));
    _cleanup_free_ char *words = dir ? strdup(dir) : NULL;
    int fd, r;

    *ret_last = last;
    if (!words)
        return err_oom(e);
    if (name[0] == '/' || !last[0] || strcmp(last, "..") == 0 || strcmp(last, ".") == 0)
        return err_set(e, ERR_DENIED, "the box gave the name '%.200s'", name);
    if (l->parent && strcmp(l->parent, dir) == 0)
        return 1;
    r = walk_to(l, words, make, &fd, e);
    if (r <= 0)
        return r;
    fd_close(l->parent_fd);
    l->parent_fd = fd;
    free(l->parent);
    l->parent = TAKE(dir);
    return 1;
}

/* ---- looking --------------------------------------------------------------------------------- */

int sync_local_look(struct sync_local *l, const char *name, struct sync_entry *ret, struct err *e)
{
    char target[PATH_MAX];
    const char *last;
    struct stat st;
    ssize_t n;
    int r = enter_parent(l, name, false, &last, e);

    if (r <= 0)
        return r;
    if (fstatat(l->parent_fd, last, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : err_sys(e, errno, "stat '%s'", name);
    sync_entry_set(ret, &st);
    if (!S_ISLNK(st.st_mode))
        return 1;
    n = readlinkat(l->parent_fd, last, target, sizeof(target) - 1);
    if (n < 0)
        return err_sys(e, errno, "read '%s'", name);
    target[n] = '\0';
    ret->target = strdup(target);
    return ret->target ? 1 : err_oom(e);
}

static int hash_file(int fd, struct sync_entry *en, struct err *e)
{
    _cleanup_free_ uint8_t *data = malloc(READ_BYTES);
    struct sha256_ctx sha;
    size_t n = 1;
    int r = data ? 0 : err_oom(e);

    sha256_init(&sha);
    while (r == 0 && n) {
        r = io_read_full(fd, data, READ_BYTES, &n, e);
        if (r == 0)
            sha256_update(&sha, n, data);
    }
    if (r == 0)
        sha256_digest(&sha, SYNC_DIGEST_BYTES, en->digest);
    en->has_digest = r == 0;
    return r;
}

int sync_local_hash(struct sync_local *l, struct sync_entry *en, struct err *e)
{
    _cleanup_close_ int fd = -1;
    const char *last;
    struct stat st;
    int r = enter_parent(l, en->name, false, &last, e);

    if (r < 0)
        return r;
    if (r > 0)
        fd = openat(l->parent_fd, last, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
        return err_field(e, ERR_ABORTED, en->name,
                         "'%.300s' cannot be read: it vanished, or access is denied", en->name);
    return hash_file(fd, en, e);
}

/* ---- changing -------------------------------------------------------------------------------- */

int sync_local_remove(struct sync_local *l, const char *name, bool is_dir, struct err *e)
{
    const char *last;
    int r = enter_parent(l, name, false, &last, e);

    if (r <= 0)
        return r;
    if (unlinkat(l->parent_fd, last, is_dir ? AT_REMOVEDIR : 0) == 0)
        return 1;
    if (errno == ENOENT || (is_dir && (errno == ENOTEMPTY || errno == EEXIST || errno == ENOTDIR)))
        return 0;
    return err_at(e, err_sys(e, errno, "remove '%s'", name), name);
}

int sync_local_touch(struct sync_local *l, const struct sync_entry *en, struct err *e)
{
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, en->mtime};
    const char *last;
    int r = enter_parent(l, en->name, false, &last, e);

    if (r <= 0)
        return r;
    if (beneath_chmod(l->parent_fd, last, en->mode) < 0 ||
        utimensat(l->parent_fd, last, times, AT_SYMLINK_NOFOLLOW) < 0)
        return err_at(e, err_sys(e, errno, "set the mode and time of '%s'", en->name), en->name);
    return 0;
}

int sync_local_make_dir(struct sync_local *l, const struct sync_entry *en, struct err *e)
{
    const char *last;
    int r = enter_parent(l, en->name, true, &last, e);

    if (r < 0)
        return r;
    if (mkdirat(l->parent_fd, last, 0700) < 0)
        return errno == EEXIST ? 0 : err_at(e, err_sys(e, errno, "make '%s'", en->name), en->name);
    /* The owner must be able to fill it. */
    return beneath_chmod(l->parent_fd, last, en->mode | 0700) < 0
               ? err_at(e, err_sys(e, errno, "make '%s'", en->name), en->name)
               : 0;
}

/* ---- staging --------------------------------------------------------------------------------- */

static void remove_if_left(const struct sync_local *l, const char *dir, const char *name)
{
    _cleanup_close_ int fd = openat(l->root, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    _cleanup_free_ char *path = path_join(dir, name);

    if (fd >= 0 && path && flock(fd, LOCK_EX | LOCK_NB) == 0)
        (void)dirtree_remove(path, NULL);
}

static void remove_left(const struct sync_local *l, const char *dir)
{
    DIR *d = opendir(dir);
    struct dirent *de;

    while (d && (de = readdir(d)))
        if (str_has_prefix(de->d_name, SYNC_STAGE_PREFIX))
            remove_if_left(l, dir, de->d_name);
    if (d)
        (void)closedir(d);
}

int sync_local_stage(struct sync_local *l, const char *dir, char **ret_path, struct sync_local *ret,
                     struct err *e)
{
    _cleanup_free_ char *path = path_join(dir, SYNC_STAGE_PREFIX "XXXXXX");
    int r;

    if (!path)
        return err_oom(e);
    remove_left(l, dir);
    if (!mkdtemp(path))
        return err_sys(e, errno, "make a directory in '%s'", dir);
    r = sync_local_open(path, false, ret, e);
    if (r < 0) {
        (void)rmdir(path);
        return r;
    }
    (void)flock(ret->root, LOCK_EX | LOCK_NB);
    *ret_path = TAKE(path);
    return 0;
}

int sync_local_place(struct sync_local *stage, struct sync_local *l, const char *name,
                     struct err *e)
{
    const char *last;
    struct stat st;
    int r = enter_parent(stage, name, false, &last, e);

    if (r <= 0)
        return r;
    if (fstatat(stage->parent_fd, last, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : err_sys(e, errno, "stat '%s'", name);
    r = enter_parent(l, name, true, &last, e);
    if (r < 0)
        return r;
    if (renameat(stage->parent_fd, last, l->parent_fd, last) == 0)
        return 1;
    if (errno == EISDIR || errno == ENOTEMPTY || errno == EEXIST)
        return err_field(
            e, ERR_PRECONDITION, name,
            "'%.300s' is a directory here with files of its own, and a file in the box", name);
    return err_at(e, err_sys(e, errno, "put '%s' in place", name), name);
}
