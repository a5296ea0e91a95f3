#include "fs/place.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "fs/root.h"
#include "common/cleanup.h"
#include "fs/sys.h"
#include "fs/temp.h"
#include "fs/walk.h"

/* ---- directories in step with a walk --------------------------------------------------------- */

#define MAX_LEVELS (FS_PLACE_MAX_DEPTH + 2)
#define ASIDE FS_TEMP_PREFIX "aside"
#define SELF FS_TEMP_PREFIX "self"

enum step_kind {
    STEP_NEW = 1, /* moved from the staging tree to a free name */
    STEP_SWAP,    /* traded places with the staging tree's entry of that name */
    STEP_TRASH,   /* moved to the same path in the trash */
    STEP_RMDIR,   /* emptied into the trash, then removed */
    STEP_SELF,    /* an empty directory moved to SELF in the trash's directory of that path */
    STEP_ATTRS,   /* a directory of the target: owner, mode and mtime */
    STEP_TIMES,   /* a directory of the target in which other steps follow: its mtime */
};

/* Directories that are open in step with a walk: fd[depth] belongs to the walk's level. */
struct levels {
    int fd[MAX_LEVELS];
    unsigned n;
};

static void levels_done(struct levels *l)
{
    while (l->n)
        fd_close(l->fd[--l->n]);
}

static int levels_push_take(struct levels *l, int fd, struct err *e)
{
    if (fd < 0)
        return err_sys(e, errno, "open a directory of the target");
    if (l->n == MAX_LEVELS) {
        fd_close(fd);
        return err_set(e, ERR_EXHAUSTED, "more than %d directories deep", MAX_LEVELS);
    }
    l->fd[l->n++] = fd;
    return 0;
}

static int open_dir(int dirfd, const char *name)
{
    return openat(dirfd, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

static int walk_new(int fd, struct fs_walk **ret, struct err *e)
{
    struct fs_walk_options o = {.max_depth = FS_PLACE_MAX_DEPTH + 1, .deep_is_error = true};
    int again = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (again < 0)
        return err_sys(e, errno, "open a directory");
    return fs_walk_new_take(again, &o, ret, e);
}

/* ---- single steps ---------------------------------------------------------------------------- */

/* rename that leaves an existing target alone; where the disk can't promise that, by a look before. */
static int move_new(int from, const char *name, int to, const char *to_name)
{
    struct stat st;

    if (sys_renameat2(from, name, to, to_name, RENAME_NOREPLACE) == 0)
        return 0;
    if (errno != EINVAL && errno != ENOSYS)
        return -1;
    if (fstatat(to, to_name, &st, AT_SYMLINK_NOFOLLOW) == 0)
        errno = EEXIST;
    return errno == ENOENT || errno == EINVAL ? renameat(from, name, to, to_name) : -1;
}

/* Where a swap by three renames keeps the target's entry in between: in the staging tree, under a name that
 * tells which staged entry it makes room for. */
#define ASIDE_BYTES (sizeof(ASIDE) + 21)

static void aside_name(ino_t staged, char out[ASIDE_BYTES])
{
    (void)snprintf(out, ASIDE_BYTES, "%s-%llu", ASIDE, (unsigned long long)staged);
}

/* Two entries of one name trade places; by three renames where the disk can't do it in one. If a rename fails,
 * undo_swap() goes back from there, also after a crash. */
static int place_swap(int stage, int target, const char *name, ino_t staged)
{
    char aside[ASIDE_BYTES];

    if (sys_renameat2(stage, name, target, name, RENAME_EXCHANGE) == 0)
        return 0;
    if (errno != EINVAL && errno != ENOSYS)
        return -1;
    aside_name(staged, aside);
    if (renameat(target, name, stage, aside) < 0 || renameat(stage, name, target, name) < 0)
        return -1;
    return renameat(stage, aside, stage, name);
}

static int place_note(struct fs_records *undo, enum step_kind kind, const struct stat *st,
                      const char *path, struct err *e)
{
    struct fs_record rec = {.kind = (uint8_t)kind,
                            .mode = st->st_mode & 07777,
                            .uid = st->st_uid,
                            .gid = st->st_gid,
                            .ino = st->st_ino,
                            .mtime = st->st_mtim};

    return fs_records_add(undo, &rec, path, e);
}

/* A move into or out of the target changes its mtime. */
static int note_root_times(int target_fd, struct fs_records *undo, struct err *e)
{
    struct stat st;

    if (fstat(target_fd, &st) < 0)
        return err_sys(e, errno, "stat the target");
    return place_note(undo, STEP_TIMES, &st, "", e);
}

/* ---- merge ----------------------------------------------------------------------------------- */

/* Puts one staged entry in place. *ret_into: both are directories, so the walk goes into them. */
static int merge_one(const struct fs_walk_item *it, int target, struct fs_records *undo,
                     bool *ret_into, struct err *e)
{
    struct stat old;
    int r;

    *ret_into = false;
    if (fstatat(target, it->name, &old, AT_SYMLINK_NOFOLLOW) < 0) {
        if (errno != ENOENT)
            return err_sys(e, errno, "stat '%s'", it->path);
        r = place_note(undo, STEP_NEW, &it->st, it->path, e);
        if (r == 0 && move_new(it->dirfd, it->name, target, it->name) < 0)
            return err_sys(e, errno, "put '%s' in place", it->path);
        return r;
    }
    if (S_ISDIR(old.st_mode) && S_ISDIR(it->st.st_mode)) {
        *ret_into = true;
        return place_note(undo, STEP_TIMES, &old, it->path, e);
    }
    if (S_ISDIR(old.st_mode))
        return err_field(e, ERR_PRECONDITION, "path",
                         "'%s' is a directory, and in the archive it is not", it->path);
    r = place_note(undo, STEP_SWAP, &it->st, it->path, e);
    if (r == 0 && place_swap(it->dirfd, target, it->name, it->st.st_ino) < 0)
        return err_sys(e, errno, "replace '%s'", it->path);
    return r;
}

static int merge_item(struct fs_walk *w, const struct fs_walk_item *it, struct levels *l,
                      struct fs_records *undo, struct err *e)
{
    bool into;
    int r;

    if (it->kind == FS_WALK_ERROR)
        return err_set(e, (enum err_code)it->error.code, "staged '%s': %s", it->path,
                       it->error.message);
    if (it->kind == FS_WALK_LEAVE) {
        fd_close(l->fd[--l->n]);
        return 0;
    }
    if (it->depth == 0)
        return 0;
    r = merge_one(it, l->fd[l->n - 1], undo, &into, e);
    if (r < 0)
        return r;
    if (into)
        return levels_push_take(l, open_dir(l->fd[l->n - 1], it->name), e);
    if (S_ISDIR(it->st.st_mode))
        fs_walk_skip(w); /* it has moved, with all that is in it */
    return 0;
}

int fs_place_merge(int stage_fd, int target_fd, struct fs_records *undo, struct err *e)
{
    struct levels l = {0};
    struct fs_walk *w = NULL;
    const struct fs_walk_item *it;
    int r;

    r = note_root_times(target_fd, undo, e);
    if (r == 0)
        r = levels_push_take(&l, open_dir(target_fd, "."), e);
    if (r == 0)
        r = walk_new(stage_fd, &w, e);
    while (r == 0) {
        r = fs_walk_next(w, &it, e);
        if (r <= 0)
            break;
        r = merge_item(w, it, &l, undo, e);
    }
    fs_walk_free(w);
    levels_done(&l);
    return r;
}

/* ---- prune ----------------------------------------------------------------------------------- */

struct prune {
    struct levels stage; /* fd -1: the staged tree has no such directory */
    struct fs_records *undo;
};

/* An entry that the staged tree does not have. *ret_into: a directory that can't be moved as one
 * (overlayfs says EXDEV for one of a lower layer), so its content has to. */
static int trash_one(const struct fs_walk_item *it, int trash, struct fs_records *undo,
                     bool *ret_into, struct err *e)
{
    int r;

    *ret_into = false;
    r = place_note(undo, STEP_TRASH, &it->st, it->path, e);
    if (r < 0)
        return r;
    if (renameat(it->dirfd, it->name, trash, it->name) == 0)
        return 0;
    if (errno != EXDEV || !S_ISDIR(it->st.st_mode))
        return err_sys(e, errno, "take '%s' away", it->path);
    if (mkdirat(trash, it->name, 0700) < 0)
        return err_sys(e, errno, "take '%s' away", it->path);
    *ret_into = true;
    return 0;
}

static bool has_dir(int dirfd, const char *name)
{
    struct stat st;

    return dirfd >= 0 && fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode);
}

static bool has_other(int dirfd, const char *name)
{
    struct stat st;

    return dirfd >= 0 && fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
           !S_ISDIR(st.st_mode);
}

/* Opens the directory of that path in the trash. Makes it on the way, only for entries that go into
 * it. */
static int trash_dir_for(const char *path, int trash_fd, int *ret_fd, struct err *e)
{
    const char *name;
    _cleanup_free_ char *dir = fs_below_parent(path, &name);

    return dir ? fs_open_below(trash_fd, dir, true, ret_fd, e) : err_oom(e);
}

static int prune_entry(struct fs_walk *w, const struct fs_walk_item *it, int trash_fd,
                       struct prune *p, struct err *e)
{
    int stage = p->stage.fd[p->stage.n - 1];
    bool is_dir = S_ISDIR(it->st.st_mode);
    _cleanup_close_ int trash = -1;
    bool into;
    int r;

    if (is_dir && has_dir(stage, it->name)) {
        r = place_note(p->undo, STEP_TIMES, &it->st, it->path, e);
        return r < 0 ? r : levels_push_take(&p->stage, open_dir(stage, it->name), e);
    }
    if (!is_dir && (has_dir(stage, it->name) || has_other(stage, it->name)))
        return 0; /* the merge exchanges them */
    r = trash_dir_for(it->path, trash_fd, &trash, e);
    if (r == 0)
        r = trash_one(it, trash, p->undo, &into, e);
    if (r < 0)
        return r;
    if (into) {
        r = place_note(p->undo, STEP_TIMES, &it->st, it->path, e);
        if (r < 0)
            return r;
        /* Nothing below is staged: stands for "no directory" until its LEAVE. */
        if (p->stage.n == MAX_LEVELS)
            return err_set(e, ERR_EXHAUSTED, "more than %d directories deep", MAX_LEVELS);
        p->stage.fd[p->stage.n++] = -1;
    } else if (is_dir) {
        fs_walk_skip(w);
    }
    return 0;
}

static int prune_leave(const struct fs_walk_item *it, struct prune *p, struct err *e)
{
    int stage = p->stage.fd[--p->stage.n];
    int r;

    fd_close(stage);
    if (stage >= 0)
        return 0;
    r = place_note(p->undo, STEP_RMDIR, &it->st, it->path, e);
    if (r == 0 && unlinkat(it->dirfd, it->name, AT_REMOVEDIR) < 0)
        return err_sys(e, errno, "take '%s' away", it->path);
    return r;
}

static int prune_item(struct fs_walk *w, const struct fs_walk_item *it, int trash_fd,
                      struct prune *p, struct err *e)
{
    if (it->kind == FS_WALK_ERROR)
        return err_set(e, (enum err_code)it->error.code, "'%s': %s", it->path, it->error.message);
    if (it->kind == FS_WALK_LEAVE)
        return prune_leave(it, p, e);
    return it->depth == 0 ? 0 : prune_entry(w, it, trash_fd, p, e);
}

int fs_place_prune(int stage_fd, int target_fd, int trash_fd, struct fs_records *undo,
                   struct err *e)
{
    struct prune p = {.undo = undo};
    struct fs_walk *w = NULL;
    const struct fs_walk_item *it;
    int r;

    r = note_root_times(target_fd, undo, e);
    if (r == 0)
        r = levels_push_take(&p.stage, open_dir(stage_fd, "."), e);
    if (r == 0)
        r = walk_new(target_fd, &w, e);
    while (r == 0) {
        r = fs_walk_next(w, &it, e);
        if (r <= 0)
            break;
        r = prune_item(w, it, trash_fd, &p, e);
    }
    fs_walk_free(w);
    levels_done(&p.stage);
    return r;
}

/* ---- single removals ------------------------------------------------------------------------- */

/* 1 or 0. */
static int is_empty_dir(int dirfd, const char *name, const char *path, struct err *e)
{
    _cleanup_close_ int fd = fs_openat_nofollow(dirfd, name, O_RDONLY | O_DIRECTORY);
    struct fs_names names;
    int r = fd < 0 ? err_sys(e, errno, "open '%s'", path) : fs_dir_names(fd, true, &names, e);

    if (r < 0)
        return r;
    r = names.n == 0;
    fs_names_done(&names);
    return r;
}

/* The trash may have a directory of that path already, for what was in this one. */
static int remove_dir_in(int dir, const char *name, const char *path, const struct stat *st,
                         int trash_fd, struct fs_records *undo, struct err *e)
{
    _cleanup_close_ int trash = -1;
    int r = is_empty_dir(dir, name, path, e);

    if (r <= 0)
        return r;
    r = fs_open_below(trash_fd, path, true, &trash, e);
    if (r == 0)
        r = place_note(undo, STEP_SELF, st, path, e);
    if (r < 0)
        return r;
    if (renameat(dir, name, trash, SELF) < 0) {
        if (errno != EXDEV)
            return err_sys(e, errno, "take '%s' away", path);
        /* A lower directory of an overlay. */
        r = place_note(undo, STEP_RMDIR, st, path, e);
        if (r < 0 || unlinkat(dir, name, AT_REMOVEDIR) == 0)
            return r < 0 ? r : 1;
        return errno == ENOTEMPTY ? 0 : err_sys(e, errno, "take '%s' away", path);
    }
    /* Another process may have put an entry into it meanwhile. */
    r = is_empty_dir(trash, SELF, path, e);
    if (r != 0)
        return r;
    return renameat(trash, SELF, dir, name) < 0 ? err_sys(e, errno, "put '%s' back", path) : 0;
}

static int remove_in(int dir, const char *name, const char *path, bool is_dir, int trash_fd,
                     struct fs_records *undo, struct err *e)
{
    _cleanup_close_ int trash = -1;
    struct stat st;
    int r;

    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : err_sys(e, errno, "stat '%s'", path);
    if (S_ISDIR(st.st_mode) != is_dir)
        return 0;
    if (is_dir)
        return remove_dir_in(dir, name, path, &st, trash_fd, undo, e);
    r = trash_dir_for(path, trash_fd, &trash, e);
    if (r == 0)
        r = place_note(undo, STEP_TRASH, &st, path, e);
    if (r < 0)
        return r;
    if (renameat(dir, name, trash, name) < 0)
        return errno == ENOENT ? 0 : err_sys(e, errno, "take '%s' away", path);
    return 1;
}

int fs_place_remove(int target_fd, int trash_fd, const char *path, struct fs_records *undo,
                    struct err *e)
{
    size_t len = strlen(path);
    bool is_dir = len && path[len - 1] == '/';
    _cleanup_free_ char *clean = strndup(path, len - is_dir);
    _cleanup_free_ char *dir = NULL;
    _cleanup_close_ int fd = -1;
    struct err why = {0};
    struct stat st;
    const char *name;
    int r;

    dir = clean ? fs_below_parent(clean, &name) : NULL;
    if (!dir)
        return err_oom(e);
    r = fs_open_below(target_fd, dir, false, &fd, &why);
    if (r < 0 && (why.sys == ENOENT || r == -ERR_INVALID))
        return 0; /* gone with its directory, or a link is in its place */
    if (r < 0) {
        if (e)
            *e = why;
        return r;
    }
    if (fstat(fd, &st) < 0)
        return err_sys(e, errno, "stat '%s'", dir);
    r = place_note(undo, STEP_TIMES, &st, dir, e); /* the rollback brings the times back, too */
    return r < 0 ? r : remove_in(fd, name, clean, is_dir, trash_fd, undo, e);
}

/* ---- undo ------------------------------------------------------------------------------------ */

/*
 * Each of these is done again without harm: a rollback that could not take everything back is repeated later. They
 * look at what is where: a step may have been noted only, done, half done, or taken back already. They return 0, or
 * -1 with errno.
 */

/* 1: there; 0: not there. */
static int undo_look(int dirfd, const char *name, struct stat *ret)
{
    if (fstatat(dirfd, name, ret, AT_SYMLINK_NOFOLLOW) == 0)
        return 1;
    return errno == ENOENT ? 0 : -1;
}

/* Opens a directory below `base`. */
static int undo_open(int base, const char *dir)
{
    struct err why = {0};
    int fd;

    if (fs_open_below(base, dir, false, &fd, &why) == 0)
        return fd;
    errno = why.sys ? why.sys : why.code == ERR_INVALID ? ENOTDIR : EIO;
    return -1;
}

/* There is nothing to take back in a directory that is not there. */
static int undo_open_failed(void)
{
    return errno == ENOENT || errno == ENOTDIR ? 0 : -1;
}

static int undo_new(int stage_fd, int target_fd, const char *dir, const char *name, ino_t staged)
{
    _cleanup_close_ int target = undo_open(target_fd, dir);
    _cleanup_close_ int stage = -1;
    struct stat st;
    int r;

    if (target < 0)
        return undo_open_failed();
    r = undo_look(target, name, &st);
    if (r <= 0 || st.st_ino != staged)
        return r < 0 ? -1 : 0;
    stage = undo_open(stage_fd, dir);
    return stage < 0 ? -1 : move_new(target, name, stage, name);
}

/* Backwards through the steps of place_swap(). */
static int undo_swap(int stage, int target, const char *name, ino_t staged)
{
    char aside[ASIDE_BYTES];
    struct stat there, here, st;
    int in_target, in_stage, in_aside;

    aside_name(staged, aside);
    in_target = undo_look(target, name, &there);
    in_stage = undo_look(stage, name, &here);
    in_aside = undo_look(stage, aside, &st);
    if (in_target < 0 || in_stage < 0 || in_aside < 0)
        return -1;
    if (in_target && there.st_ino == staged) {
        if (!in_aside && in_stage) {
            if (sys_renameat2(stage, name, target, name, RENAME_EXCHANGE) == 0)
                return 0;
            if ((errno != EINVAL && errno != ENOSYS) || renameat(stage, name, stage, aside) < 0)
                return -1;
        } else if (!in_aside) {
            errno = ENOENT; /* the replaced entry has gone */
            return -1;
        }
        return move_new(target, name, stage, name) < 0 ? -1 : move_new(stage, aside, target, name);
    }
    if (in_aside)
        return move_new(stage, aside, target, name);
    /* Another process removed the new entry meanwhile: the old one comes back. One that it put there stays. */
    if (!in_target && in_stage && here.st_ino != staged)
        return move_new(stage, name, target, name);
    return 0;
}

static int undo_swap_at(int stage_fd, int target_fd, const char *dir, const char *name,
                        ino_t staged)
{
    _cleanup_close_ int stage = undo_open(stage_fd, dir);
    _cleanup_close_ int target = stage < 0 ? -1 : undo_open(target_fd, dir);

    return target < 0 ? -1 : undo_swap(stage, target, name, staged);
}

static int undo_trash(int trash_fd, int target_fd, const char *dir, const char *name)
{
    _cleanup_close_ int trash = undo_open(trash_fd, dir);
    _cleanup_close_ int target = -1;
    struct stat old, now;
    int r;

    if (trash < 0)
        return undo_open_failed();
    r = undo_look(trash, name, &old);
    if (r <= 0)
        return r;
    target = undo_open(target_fd, dir);
    r = target < 0 ? -1 : undo_look(target, name, &now);
    if (r < 0)
        return -1;
    /* A directory whose content was moved one by one: this held it, and is empty again. */
    if (r && S_ISDIR(old.st_mode) && S_ISDIR(now.st_mode))
        return unlinkat(trash, name, AT_REMOVEDIR);
    return move_new(trash, name, target, name);
}

static int undo_self(int trash_fd, int target_fd, const char *path, const char *dir,
                     const char *name)
{
    _cleanup_close_ int from = undo_open(trash_fd, path);
    _cleanup_close_ int to = -1;
    struct stat st;
    int r;

    if (from < 0)
        return undo_open_failed();
    r = undo_look(from, SELF, &st);
    if (r <= 0)
        return r;
    to = undo_open(target_fd, dir);
    return to < 0 ? -1 : move_new(from, SELF, to, name);
}

/* A directory of someone else keeps its own, and a disk without them has none to bring back. */
static bool undo_is_refused(void)
{
    return errno == EPERM || errno == ENOSYS || errno == EOPNOTSUPP;
}

static int undo_times(int parent, const char *name, const struct fs_record *rec)
{
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, rec->mtime};

    return utimensat(parent, name, times, AT_SYMLINK_NOFOLLOW) < 0 && !undo_is_refused() ? -1 : 0;
}

/* By a descriptor: a link could have taken the directory's place. Its mode may be one that can't be opened. */
static int undo_owner_and_mode(int parent, const char *name, const struct fs_record *rec)
{
    _cleanup_close_ int fd = fs_openat_nofollow(parent, name, O_RDONLY | O_DIRECTORY);

    if (fd < 0 && errno == EACCES && fchmodat(parent, name, 0700, AT_SYMLINK_NOFOLLOW) == 0)
        fd = fs_openat_nofollow(parent, name, O_RDONLY | O_DIRECTORY);
    if (fd < 0)
        return -1;
    if (fchown(fd, rec->uid, rec->gid) < 0 && !undo_is_refused())
        return -1;
    return fchmod(fd, rec->mode) < 0 && !undo_is_refused() ? -1 : 0;
}

static int undo_rmdir(int target_fd, const char *dir, const char *name, const struct fs_record *rec)
{
    _cleanup_close_ int target = undo_open(target_fd, dir);

    if (target < 0 || (mkdirat(target, name, 0700) < 0 && errno != EEXIST) ||
        undo_owner_and_mode(target, name, rec) < 0)
        return -1;
    return undo_times(target, name, rec);
}

static int undo_attrs(int target_fd, const char *dir, const char *name, const struct fs_record *rec)
{
    _cleanup_close_ int parent = undo_open(target_fd, dir);
    struct stat st;
    int r;

    if (parent < 0)
        return undo_open_failed();
    if (!name[0])
        name = ".";
    r = undo_look(parent, name, &st);
    if (r <= 0 || !S_ISDIR(st.st_mode))
        return r < 0 ? -1 : 0;
    if (rec->kind == STEP_ATTRS && undo_owner_and_mode(parent, name, rec) < 0)
        return -1;
    return undo_times(parent, name, rec);
}

static int undo_one(int stage_fd, int target_fd, int trash_fd, const struct fs_record *rec,
                    const char *path)
{
    const char *name;
    _cleanup_free_ char *dir = fs_below_parent(path, &name);

    if (!dir)
        return -1; /* errno is ENOMEM */
    switch ((enum step_kind)rec->kind) {
    case STEP_NEW:
        return undo_new(stage_fd, target_fd, dir, name, rec->ino);
    case STEP_SWAP:
        return undo_swap_at(stage_fd, target_fd, dir, name, rec->ino);
    case STEP_TRASH:
        return undo_trash(trash_fd, target_fd, dir, name);
    case STEP_RMDIR:
        return undo_rmdir(target_fd, dir, name, rec);
    case STEP_SELF:
        return undo_self(trash_fd, target_fd, path, dir, name);
    case STEP_ATTRS:
    case STEP_TIMES:
        return undo_attrs(target_fd, dir, name, rec);
    }
    errno = EINVAL; /* a step of a newer agent */
    return -1;
}

int fs_place_undo(int stage_fd, int target_fd, int trash_fd, struct fs_records *undo, struct err *e)
{
    struct fs_record rec;
    int first = 0;
    char *path;
    int r;

    for (;;) {
        struct err why = {0};

        r = fs_records_pop(undo, &rec, &path, &why);
        if (r < 0 && first == 0) {
            first = r;
            if (e)
                *e = why;
        }
        if (r <= 0)
            break;
        r = undo_one(stage_fd, target_fd, trash_fd, &rec, path);
        if (r < 0 && first == 0)
            first = err_sys(e, errno, "put '%s' back", path[0] ? path : ".");
        free(path);
    }
    return first < 0 ? first : fs_records_clear(undo, e);
}

int fs_place_claim(int stage_fd, struct err *e)
{
    uid_t me = (uid_t)syscall(SYS_setfsuid, (uid_t)-1);
    struct stat st;

    if (fstat(stage_fd, &st) < 0 || (st.st_uid != me && fchown(stage_fd, me, (gid_t)-1) < 0) ||
        fchmod(stage_fd, 0700) < 0)
        return err_sys(e, errno, "take the staging directory");
    return 0;
}

int fs_place_say_kept(int home_fd, const char *stage_name, const struct err *why, int r,
                      struct err *e)
{
    char link[40], home[256];
    ssize_t n;

    (void)snprintf(link, sizeof(link), "/proc/self/fd/%d", home_fd);
    n = readlink(link, home, sizeof(home));
    return err_wrap(e, r, "not everything was rolled back (%.120s), '%.*s/%s' keeps the originals",
                    why->message, n > 0 ? (int)n : 1, n > 0 ? home : ".", stage_name);
}

/* ---- attributes ------------------------------------------------------------------------------ */

static int set_attrs(int fd, const struct fs_record *rec, const char *path, struct err *e)
{
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, rec->mtime};

    if (rec->has_owner && fchown(fd, rec->uid, rec->gid) < 0)
        return err_sys(e, errno, "chown '%s'", path);
    if ((fchmod(fd, rec->mode) < 0 || futimens(fd, times) < 0) && errno != EPERM)
        return err_sys(e, errno, "set the mode of '%s'", path);
    return 0;
}

static int note_attrs(struct fs_records *undo, int fd, const char *path, struct err *e)
{
    struct stat st;

    if (fstat(fd, &st) < 0)
        return err_sys(e, errno, "stat '%s'", path);
    return place_note(undo, STEP_ATTRS, &st, path, e);
}

static int attrs_one(int base, const struct fs_record *rec, const char *path,
                     struct fs_records *undo, struct err *e)
{
    const char *name;
    _cleanup_free_ char *dir = fs_below_parent(path, &name);
    _cleanup_close_ int parent = -1;
    _cleanup_close_ int fd = -1;
    int r;

    if (!dir)
        return err_oom(e);
    r = fs_open_below(base, dir, false, &parent, e);
    if (r < 0)
        return err_wrap(e, r, "set the mode of '%s'", path);
    fd = fs_openat_nofollow(parent, name[0] ? name : ".", O_RDONLY | O_DIRECTORY);
    if (fd < 0 && errno == EACCES)
        return 0; /* an older directory that can't be read */
    if (fd < 0)
        return err_sys(e, errno, "open '%s'", path);
    r = undo ? note_attrs(undo, fd, path, e) : 0;
    return r < 0 ? r : set_attrs(fd, rec, path, e);
}

int fs_place_dir_attrs(int fd, bool with_root, struct fs_records *dirs, struct fs_records *undo,
                       struct err *e)
{
    struct fs_record rec;
    char *path;
    int r;

    for (;;) {
        r = fs_records_pop(dirs, &rec, &path, e);
        if (r <= 0)
            return r;
        r = path[0] || with_root ? attrs_one(fd, &rec, path, undo, e) : 0;
        free(path);
        if (r < 0)
            return r;
    }
}
