#include "fs/change.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/path.h"
#include "common/str.h"
#include "fs/copy.h"
#include "fs/lock.h"
#include "fs/open.h"
#include "fs/place.h"
#include "fs/sys.h"
#include "fs/temp.h"
#include "fs/walk.h"
#include "fs/root.h"
#include "fs/write.h"

#define NAME_BUF_BYTES 8192

/* An entry by its directory and name; a link in the last place is the entry. */
struct place {
    int dirfd;
    char *name;
    const char *path; /* as asked */
};

static void place_done(struct place *p)
{
    fd_close(p->dirfd);
    free(p->name);
}
#define _cleanup_place_ __attribute__((cleanup(place_done)))

static int place_open(struct fs_caller *c, const char *path, const char *field, struct place *p,
                      struct err *e)
{
    struct err inner = {0};
    int r = fs_open_parent(c, path, &p->dirfd, &p->name, &inner);

    p->path = path;
    if (r == 0 && strcmp(field, "to") == 0)
        r = fs_temp_refuse_name(p->name, field, &inner);
    if (r < 0 && e) {
        *e = inner;
        (void)snprintf(e->field, sizeof(e->field), "%s", field);
    }
    return r;
}

/* Finds the destination. Makes its directory if it is missing and the caller asked for that. */
static int place_open_to(struct fs_caller *c, const char *path, bool make_parents, struct place *p,
                         struct err *e)
{
    _cleanup_free_ char *full = NULL;
    _cleanup_free_ char *dir = NULL;
    struct err inner = {0};
    int fd, r;

    r = place_open(c, path, "to", p, &inner);
    if (r == 0 || inner.sys != ENOENT || !make_parents) {
        if (r < 0 && e)
            *e = inner;
        return r;
    }
    r = fs_caller_path(c, path, &full, e);
    if (r < 0)
        return r;
    dir = path_dir(full);
    if (!dir)
        return err_oom(e);
    r = fs_make_dirs(c, dir, FS_NEW_DIR_MODE, &fd, NULL, e);
    if (r < 0)
        return r;
    fd_close(fd);
    return place_open(c, path, "to", p, e);
}

/* The tag of what is at a place; "" when that has none. A link counts as what it leads to, since
 * that is where its reader got the tag. */
static int read_tag(struct fs_caller *c, const struct place *p, bool *ret_exists,
                    char tag[FS_ETAG_BYTES], struct err *e)
{
    _cleanup_close_ int fd = -1;
    struct err inner = {0};
    struct stat st;
    int r;

    tag[0] = '\0';
    *ret_exists = fstatat(p->dirfd, p->name, &st, AT_SYMLINK_NOFOLLOW) == 0;
    if (!*ret_exists)
        return errno == ENOENT ? 0 : err_at(e, err_sys(e, errno, "stat '%s'", p->name), "path");
    if (S_ISLNK(st.st_mode)) {
        r = fs_open(c, p->path, O_PATH, 0, &fd, &inner);
        if (r < 0 || fstat(fd, &st) < 0)
            return 0; /* it leads nowhere */
        fd_close(TAKE_FD(fd));
    }
    if (!S_ISREG(st.st_mode))
        return 0;
    r = fs_open(c, p->path, O_RDONLY, 0, &fd, e);
    return r < 0 ? r : fs_etag(fd, &st, tag, e);
}

/* Under the entry's lock. */
static int check_tag(struct fs_caller *c, const struct place *p, const struct fs_condition *cond,
                     struct err *e)
{
    char tag[FS_ETAG_BYTES];
    bool exists;
    int r;

    if (!cond->if_match && !cond->if_none_match)
        return 0;
    r = read_tag(c, p, &exists, tag, e);
    return r < 0 ? r : fs_check_tag(cond, exists, tag, e);
}

/* The same for a destination: the fields are "to_if_match" and "to_if_none_match". */
static int check_tag_to(struct fs_caller *c, const struct place *p, const struct fs_condition *cond,
                        struct err *e)
{
    struct err inner = {0};
    int r = check_tag(c, p, cond, &inner);

    if (r < 0 && e) {
        *e = inner;
        (void)snprintf(e->field, sizeof(e->field), "to_%.32s", inner.field);
    }
    return r;
}

/* ---- whole trees ----------------------------------------------------------------------------- */

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

/* ---- make ------------------------------------------------------------------------------------ */

static int make_one(struct fs_caller *c, const char *path, mode_t mode, struct err *e)
{
    _cleanup_place_ struct place p = {.dirfd = -1};
    _cleanup_close_ int fd = -1;
    int r;

    r = place_open(c, path, "path", &p, e);
    if (r < 0)
        return r;
    if (mkdirat(p.dirfd, p.name, 0700) < 0)
        return err_at(e, err_sys(e, errno, "mkdir '%s'", path), "path");
    fd = fs_openat_nofollow(p.dirfd, p.name, O_RDONLY | O_DIRECTORY);
    if (fd < 0 || fchmod(fd, mode) < 0)
        return err_at(e, err_sys(e, errno, "chmod '%s'", path), "path");
    return 0;
}

/* Each of the three may be a path that is made. */
static int check_components(const char *path, struct err *e)
{
    for (const char *p = path; p; p = strchr(p, '/')) {
        int r;

        p += strspn(p, "/");
        r = fs_temp_refuse_name(p, "path", e);
        if (r < 0)
            return r;
    }
    return 0;
}

int fs_make_dir(struct fs_caller *c, const char *path, mode_t mode, bool parents, bool *ret_created,
                struct err *e)
{
    _fs_acting_ const struct fs_actor *acting = NULL;
    struct err inner = {0};
    int fd, made, r;

    r = check_components(path, e);
    if (r == 0)
        r = fs_act(&c->actor, &acting, e);
    if (r < 0)
        return r;
    if (!parents) {
        r = make_one(c, path, mode, e);
        if (r == 0)
            *ret_created = true;
        return r;
    }
    r = fs_make_dirs(c, path, mode, &fd, &made, &inner);
    if (r < 0 && inner.sys == ENOTDIR)
        return err_field(e, ERR_EXISTS, "path", "a file is in the way of '%s'", path);
    if (r < 0) {
        if (e)
            *e = inner;
        return r;
    }
    fd_close(fd);
    *ret_created = made > 0;
    return 0;
}

/* ---- move ------------------------------------------------------------------------------------ */

static int rename_as_asked(const struct place *from, const struct place *to, bool overwrite)
{
    struct stat st;

    if (overwrite)
        return renameat(from->dirfd, from->name, to->dirfd, to->name);
    if (sys_renameat2(from->dirfd, from->name, to->dirfd, to->name, RENAME_NOREPLACE) == 0)
        return 0;
    if (errno != EINVAL)
        return -1;
    /* A directory moved into itself, or a disk without the flag: rename(2) tells them apart. */
    if (fstatat(to->dirfd, to->name, &st, AT_SYMLINK_NOFOLLOW) == 0) {
        errno = EEXIST;
        return -1;
    }
    return renameat(from->dirfd, from->name, to->dirfd, to->name);
}

/* Across mounts: copies beside the destination, renames the copy into place, removes the source. */
static int move_by_copy(struct fs_caller *c, const struct place *from, const struct place *to,
                        const struct fs_move_options *o, struct err *e)
{
    _cleanup_close_ int lock = -1;
    struct fs_copy_result counts = {0};
    struct fs_copy_how how = {.keep_owner = c->actor.is_self && c->actor.user.uid == 0,
                              .counts = &counts,
                              .ret_lock_fd = &lock};
    char name[FS_TEMP_NAME_BYTES];
    struct place temp = {.dirfd = to->dirfd, .name = name};
    int r;

    fs_temp_make_name(name);
    r = fs_copy_entry(from->dirfd, from->name, to->dirfd, name, &how, e);
    if (r == 0 && rename_as_asked(&temp, to, o->overwrite) < 0)
        r = err_at(e, err_sys(e, errno, "move to '%s'", to->name), "to");
    if (r < 0) {
        (void)fs_remove_tree(to->dirfd, name, true, NULL, NULL);
        return r;
    }
    r = fs_remove_tree(from->dirfd, from->name, true, NULL, e);
    return r < 0 ? err_wrap(e, r, "'%s' was copied, but the old one is still there", from->name)
                 : 0;
}

static int move_locked(struct fs_caller *c, const struct place *from, const struct place *to,
                       const struct fs_move_options *o, struct err *e)
{
    int r = check_tag(c, from, &o->condition, e);

    if (r == 0)
        r = check_tag_to(c, to, &o->to_condition, e);
    if (r < 0)
        return r;
    if (rename_as_asked(from, to, o->overwrite) == 0)
        return 0;
    switch (errno) {
    case EXDEV:
        return move_by_copy(c, from, to, o, e);
    case EEXIST:
    case ENOTEMPTY:
    case EISDIR:
    case ENOTDIR:
        return err_field(e, ERR_EXISTS, "to", "'%s' is in the way", to->name);
    case EINVAL:
        return err_field(e, ERR_INVALID, "to", "a directory can't go into itself");
    default:
        return err_at(e, err_sys(e, errno, "move '%s'", from->name), "from");
    }
}

int fs_move(struct fs_caller *c, const char *from, const char *to, const struct fs_move_options *o,
            struct err *e)
{
    _fs_acting_ const struct fs_actor *acting = NULL;
    _cleanup_place_ struct place a = {.dirfd = -1};
    _cleanup_place_ struct place b = {.dirfd = -1};
    struct fs_lock locks[2] = {0};
    struct stat st;
    int r;

    r = fs_act(&c->actor, &acting, e);
    if (r == 0)
        r = place_open(c, from, "from", &a, e);
    if (r < 0)
        return r;
    if (fstatat(a.dirfd, a.name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return err_at(e, err_sys(e, errno, "move '%s'", from), "from");
    r = place_open_to(c, to, o->make_parents, &b, e);
    if (r == 0)
        r = fs_lock_take_two(a.dirfd, a.name, b.dirfd, b.name, locks, e);
    if (r < 0)
        return r;
    r = move_locked(c, &a, &b, o, e);
    fs_lock_release_two(locks);
    return r;
}

/* ---- copy ------------------------------------------------------------------------------------ */

/* Merges the copy, which is complete under a hidden name, into the directory that is there. What a recovery needs
 * is in it, as in an archive's staging directory; the caller's lock keeps one away meanwhile. */
static int merge_copy(const struct place *to, const char *temp, bool *ret_kept, struct err *e)
{
    _cleanup_close_ int stage = fs_openat_nofollow(to->dirfd, temp, O_RDONLY | O_DIRECTORY);
    _cleanup_close_ int target = fs_openat_nofollow(to->dirfd, to->name, O_RDONLY | O_DIRECTORY);
    struct fs_records *undo = NULL;
    struct err why = {0};
    int r;

    if (stage < 0 || target < 0)
        return err_at(e, err_sys(e, errno, "open '%s'", to->name), "to");
    r = fs_place_claim(stage, e);
    if (r == 0 && symlinkat(to->name, stage, FS_PLACE_TARGET_NAME) < 0)
        r = err_at(e, err_sys(e, errno, "note the target '%s'", to->name), "to");
    if (r == 0)
        r = fs_records_new(stage, FS_PLACE_LIST_NAME, &undo, e);
    if (r < 0)
        return r;
    r = fs_place_merge(stage, target, undo, e);
    if (r == 0)
        r = fs_records_clear(undo, e);
    if (r < 0 && fs_place_undo(stage, target, -1, undo, &why) < 0) {
        *ret_kept = true;
        r = fs_place_say_kept(to->dirfd, temp, &why, r, e);
    }
    fs_records_free(undo);
    if (!*ret_kept)
        (void)fs_remove_tree(to->dirfd, temp, true, NULL, NULL);
    return r;
}

/* *ret_kept: the hidden name has originals, which could not go back. */
static int put_copy(const struct place *to, const char *temp, bool is_dir, bool overwrite,
                    bool *ret_kept, struct err *e)
{
    struct place from = {.dirfd = to->dirfd, .name = (char *)(uintptr_t)temp};
    struct stat old;
    bool exists = fstatat(to->dirfd, to->name, &old, AT_SYMLINK_NOFOLLOW) == 0;

    if (exists && overwrite && is_dir && S_ISDIR(old.st_mode))
        return merge_copy(to, temp, ret_kept, e);
    if (exists && (!overwrite || is_dir != S_ISDIR(old.st_mode)))
        return err_field(e, ERR_EXISTS, "to", "'%s' is in the way", to->name);
    if (rename_as_asked(&from, to, overwrite) < 0)
        return err_at(e, err_sys(e, errno, "put the copy '%s' in place", to->name), "to");
    return 0;
}

static int copy_placed(struct fs_caller *c, const struct place *from, const struct place *to,
                       const struct fs_copy_options *o, struct fs_copy_result *res, struct err *e)
{
    _cleanup_close_ int copy_lock = -1;
    struct fs_copy_how how = {.keep_owner = c->actor.is_self && c->actor.user.uid == 0,
                              .counts = res,
                              .ret_lock_fd = &copy_lock};
    _cleanup_fs_lock_ struct fs_lock lock = {0};
    char temp[FS_TEMP_NAME_BYTES];
    bool is_kept = false;
    struct stat st;
    int r;

    if (fstatat(from->dirfd, from->name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return err_at(e, err_sys(e, errno, "copy '%s'", from->name), "from");
    if (S_ISDIR(st.st_mode) && !o->recursive)
        return err_field(e, ERR_PRECONDITION, "recursive",
                         "'%s' is a directory: ask for a recursive copy", from->name);
    if (!o->overwrite && faccessat(to->dirfd, to->name, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
        return err_field(e, ERR_EXISTS, "to", "'%s' is there already", to->name);
    fs_temp_make_name(temp);
    r = check_tag(c, from, &o->condition, e);
    if (r == 0)
        r = fs_copy_entry(from->dirfd, from->name, to->dirfd, temp, &how, e);
    if (r == 0)
        r = check_tag(c, from, &o->condition, e); /* it did not change while it was read */
    if (r == 0)
        r = fs_lock_take(to->dirfd, to->name, &lock, e);
    if (r == 0)
        r = check_tag_to(c, to, &o->to_condition, e);
    if (r == 0)
        r = put_copy(to, temp, S_ISDIR(st.st_mode), o->overwrite, &is_kept, e);
    if (r < 0 && !is_kept)
        (void)fs_remove_tree(to->dirfd, temp, true, NULL, NULL);
    return r;
}

int fs_copy(struct fs_caller *c, const char *from, const char *to, const struct fs_copy_options *o,
            struct fs_copy_result *ret, struct err *e)
{
    _fs_acting_ const struct fs_actor *acting = NULL;
    _cleanup_place_ struct place a = {.dirfd = -1};
    _cleanup_place_ struct place b = {.dirfd = -1};
    struct fs_copy_result res = {0};
    int r;

    r = fs_act(&c->actor, &acting, e);
    if (r == 0)
        r = place_open(c, from, "from", &a, e);
    if (r == 0)
        r = place_open_to(c, to, o->make_parents, &b, e);
    if (r == 0)
        r = copy_placed(c, &a, &b, o, &res, e);
    if (r == 0)
        *ret = res;
    return r;
}

/* ---- remove ---------------------------------------------------------------------------------- */

static bool is_mount_point(const struct place *p)
{
    struct statx x;

    return sys_statx(p->dirfd, p->name, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT, STATX_TYPE, &x) ==
               0 &&
           x.stx_attributes & STATX_ATTR_MOUNT_ROOT;
}

/* True if the root is the entry or below it. */
static int refuse_root(struct fs_caller *c, const struct place *p, const char *path, struct err *e)
{
    _cleanup_free_ char *at = strdup(fs_root_path(c->root));
    struct stat entry, st;

    if (!at)
        return err_oom(e);
    if (fstatat(p->dirfd, p->name, &entry, AT_SYMLINK_NOFOLLOW) < 0)
        return 0;
    for (;;) {
        char *up;

        if (stat(at, &st) == 0 && st.st_ino == entry.st_ino && st.st_dev == entry.st_dev)
            return err_field(e, ERR_PRECONDITION, "path", "'%s' holds the root", path);
        if (strcmp(at, "/") == 0)
            return 0;
        up = path_dir(at);
        if (!up)
            return err_oom(e);
        free(at);
        at = up;
    }
}

static int remove_locked(struct fs_caller *c, const struct place *p,
                         const struct fs_remove_options *o, uint64_t *removed, struct err *e)
{
    const char *path = p->path;
    struct stat st;
    int r = check_tag(c, p, &o->condition, e);

    if (r < 0)
        return r;
    if (fstatat(p->dirfd, p->name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
        if (errno == ENOENT && o->missing_ok)
            return 0;
        return err_at(e, err_sys(e, errno, "remove '%s'", path), "path");
    }
    if (is_mount_point(p))
        return err_field(e, ERR_PRECONDITION, "path", "'%s' is a mount point", path);
    if (S_ISDIR(st.st_mode) && o->recursive) {
        r = fs_remove_tree(p->dirfd, p->name, false, removed, e);
        return r < 0 ? err_at(e, r, "path") : 0;
    }
    if (unlinkat(p->dirfd, p->name, S_ISDIR(st.st_mode) ? AT_REMOVEDIR : 0) < 0)
        return err_at(e, err_sys(e, errno, "remove '%s'", path), "path");
    *removed = 1;
    return 0;
}

int fs_remove(struct fs_caller *c, const char *path, const struct fs_remove_options *o,
              uint64_t *ret_removed, struct err *e)
{
    _fs_acting_ const struct fs_actor *acting = NULL;
    _cleanup_place_ struct place p = {.dirfd = -1};
    _cleanup_fs_lock_ struct fs_lock lock = {0};
    uint64_t removed = 0;
    struct err inner = {0};
    int r;

    r = fs_act(&c->actor, &acting, e);
    if (r < 0)
        return r;
    r = place_open(c, path, "path", &p, &inner);
    if (r < 0 && inner.sys == ENOENT && o->missing_ok) {
        *ret_removed = 0;
        return 0;
    }
    if (r < 0) {
        if (e)
            *e = inner;
        return r;
    }
    r = refuse_root(c, &p, path, e);
    if (r == 0)
        r = fs_lock_take(p.dirfd, p.name, &lock, e);
    if (r == 0)
        r = remove_locked(c, &p, o, &removed, e);
    if (r == 0)
        *ret_removed = removed;
    return r;
}

/* ---- attributes ------------------------------------------------------------------------------ */

/* An O_PATH descriptor takes no fchmod; its name in /proc does, and can't be swapped for a link. */
static int change_mode(int fd, mode_t mode, const char *path, struct err *e)
{
    char self[40];

    (void)snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
    if (chmod(self, mode) < 0)
        return err_at(e, err_sys(e, errno, "chmod '%s'", path), "mode");
    return 0;
}

static int change_times(int fd, const struct timespec *mtime, const char *path, struct err *e)
{
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, *mtime};
    char self[40];

    if (utimensat(fd, "", times, AT_EMPTY_PATH) == 0)
        return 0;
    (void)snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
    if (errno != EINVAL || utimensat(AT_FDCWD, self, times, 0) < 0)
        return err_at(e, err_sys(e, errno, "set the time of '%s'", path), "mtime");
    return 0;
}

static int set_attr_open(int fd, const char *path, const struct fs_attrs *a, struct err *e)
{
    struct stat st;
    int r = 0;

    if (fstat(fd, &st) < 0)
        return err_at(e, err_sys(e, errno, "stat '%s'", path), "path");
    if (a->mode.is_set && S_ISLNK(st.st_mode))
        return err_field(e, ERR_PRECONDITION, "mode", "'%s' is a link: it has no mode", path);
    if ((a->set_uid || a->set_gid) && fchownat(fd, "", a->set_uid ? a->uid : (uid_t)-1,
                                               a->set_gid ? a->gid : (gid_t)-1, AT_EMPTY_PATH) < 0)
        return err_at(e, err_sys(e, errno, "chown '%s'", path), a->set_uid ? "owner" : "group");
    if (a->mode.is_set)
        r = change_mode(fd, a->mode.mode & 07777, path, e);
    if (r == 0 && a->mtime.is_set)
        r = change_times(fd, &a->mtime.t, path, e);
    return r;
}

/* Under the entry's lock, so that no replacement takes the old attributes over meanwhile. */
static int set_attr_locked(struct fs_caller *c, const char *path, const struct fs_attrs *a,
                           struct err *e)
{
    _cleanup_close_ int fd = -1;
    char tag[FS_ETAG_BYTES] = "";
    struct fs_file f;
    int r;

    r = fs_open(c, path, a->follow ? O_PATH : O_PATH | O_NOFOLLOW, 0, &fd, e);
    if (r < 0)
        return r;
    if (a->condition.if_match || a->condition.if_none_match) {
        if (fs_file_open_acting(c, path, true, &f, NULL) == 0) {
            (void)memcpy(tag, f.etag, sizeof(tag));
            fs_file_done(&f);
        }
        r = fs_check_tag(&a->condition, true, tag, e);
        if (r < 0)
            return r;
    }
    return set_attr_open(fd, path, a, e);
}

int fs_set_attr(struct fs_caller *c, const char *path, const struct fs_attrs *a, struct err *e)
{
    _fs_acting_ const struct fs_actor *acting = NULL;
    _cleanup_place_ struct place p = {.dirfd = -1};
    _cleanup_fs_lock_ struct fs_lock lock = {0};
    int r;

    r = fs_act(&c->actor, &acting, e);
    if (r < 0)
        return r;
    /* "/" and "a/.." have no entry to lock. */
    if ((a->follow ? fs_open_target : fs_open_parent)(c, path, &p.dirfd, &p.name, NULL) == 0)
        r = fs_lock_take(p.dirfd, p.name, &lock, e);
    return r < 0 ? r : set_attr_locked(c, path, a, e);
}

int fs_uid_from_name(const char *name, uid_t *ret, struct err *e)
{
    char buf[NAME_BUF_BYTES];
    struct passwd pw, *found = NULL;
    uint64_t n;

    if (str_parse_u64(name, 0, UINT32_MAX - 1, &n, NULL) == 0) {
        *ret = (uid_t)n;
        return 0;
    }
    (void)getpwnam_r(name, &pw, buf, sizeof(buf), &found);
    if (!found)
        return err_field(e, ERR_NOT_FOUND, "owner", "there is no user '%.64s'", name);
    *ret = pw.pw_uid;
    return 0;
}

int fs_gid_from_name(const char *name, gid_t *ret, struct err *e)
{
    char buf[NAME_BUF_BYTES];
    struct group gr, *found = NULL;
    uint64_t n;

    if (str_parse_u64(name, 0, UINT32_MAX - 1, &n, NULL) == 0) {
        *ret = (gid_t)n;
        return 0;
    }
    (void)getgrnam_r(name, &gr, buf, sizeof(buf), &found);
    if (!found)
        return err_field(e, ERR_NOT_FOUND, "group", "there is no group '%.64s'", name);
    *ret = gr.gr_gid;
    return 0;
}
