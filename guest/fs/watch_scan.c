/*
 * A scan is ahead of the events that wait to be read: it may find a directory at a place that no
 * event has told yet. The rule that keeps both in step: an entry that a scan finds is told as it is
 * now, an event is told as it was, and an event about a new entry makes us look again. The last
 * thing told about each place is then true.
 */
#include "fs/watch_own.h"

#include <errno.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/vfs.h>

#include "common/cleanup.h"
#include "common/io.h"
#include "common/mem.h"
#include "common/path.h"
#include "fs/root.h"
#include "fs/temp.h"
#include "fs/walk.h"

#define MAX_TODO 65536 /* places; past that, the whole tree is scanned */
#define REL_MAX_BYTES (64 * 1024 + 256)
#define WATCH_MASK \
    (IN_CREATE | IN_DELETE | IN_MODIFY | IN_CLOSE_WRITE | IN_ATTRIB | IN_MOVED_FROM | \
     IN_MOVED_TO | IN_ONLYDIR | IN_EXCL_UNLINK)
#define LIMIT_FILE "/proc/sys/fs/inotify/max_user_watches"

void watch_tell(struct fs_watch *w, enum fs_watch_type type, const char *rel, const char *from_rel,
                bool is_dir, bool is_moved)
{
    _cleanup_free_ char *path = NULL;
    _cleanup_free_ char *from = NULL;

    if (w->is_quiet || w->end)
        return;
    path = rel[0] && !w->only ? path_join(w->shown, rel) : strdup(w->shown);
    from = from_rel ? path_join(w->shown, from_rel) : NULL;
    if (!path || (from_rel && !from)) {
        w->must_resync = true;
        return;
    }
    w->o.sink.event(
        w->o.sink.arg,
        &(struct fs_watch_event){
            .type = type, .path = path, .from = from, .is_dir = is_dir, .is_moved = is_moved});
}

void watch_tell_unwatched(struct fs_watch *w, const char *rel, const struct err *why)
{
    _cleanup_free_ char *path = rel[0] ? path_join(w->shown, rel) : strdup(w->shown);

    if (path)
        w->o.sink.event(w->o.sink.arg, &(struct fs_watch_event){.type = FS_WATCH_UNWATCHED,
                                                                .path = path,
                                                                .is_dir = true,
                                                                .error = why});
}

bool watch_is_hidden(const struct fs_watch *w, const char *rel, const char *name, bool is_dir)
{
    if (fs_temp_is_name(name) || (w->only && strcmp(name, w->only) != 0))
        return true;
    return w->o.sink.is_excluded && w->o.sink.is_excluded(w->o.sink.arg, rel, is_dir);
}

/* ---- the disk -------------------------------------------------------------------------------- */

int watch_open_root(struct fs_watch *w, int *ret_fd, struct err *e)
{
    _cleanup_close_ int fd = -1;
    struct stat st;
    int r = fs_open(w->caller, w->root_path, O_PATH | O_DIRECTORY, 0, &fd, e);

    if (r < 0)
        return r;
    if (fstat(fd, &st) < 0 || st.st_dev != w->dev || st.st_ino != w->ino)
        return err_sys(e, ENOENT, "'%s' is another directory by now", w->shown);
    *ret_fd = TAKE_FD(fd);
    return 0;
}

/* O_PATH. */
static int scan_open_dir(struct fs_watch *w, const char *rel, int *ret_fd, struct err *e)
{
    _cleanup_close_ int root = -1;
    int r = watch_open_root(w, &root, e);

    return r < 0 ? r : fs_open_below(root, rel, false, ret_fd, e);
}

/* It went, or became something else: its parent's events tell that. */
static bool has_vanished(const struct err *why)
{
    return why->sys == ENOENT || why->sys == ENOTDIR || why->sys == ELOOP ||
           why->code == ERR_INVALID;
}

/* Whether the path leads to the directory that the events so far have put there. */
static bool is_same(struct fs_watch *w, const char *rel, int fd)
{
    const struct watch_dir *dir = watch_dirs_lookup(w->dirs, rel);
    struct stat st;

    if (!dir || dir->wd < 0)
        return true;
    return fstat(fd, &st) == 0 && st.st_ino == dir->ino && st.st_dev == dir->dev;
}

/* Fills *st with the entry at this place. False also if another directory is in the way by now. */
static bool stat_place(struct fs_watch *w, const char *rel, struct stat *st)
{
    _cleanup_close_ int dirfd = -1;
    _cleanup_free_ char *dir = NULL;
    const char *name;

    dir = fs_below_parent(rel, &name);
    if (!dir || scan_open_dir(w, dir, &dirfd, NULL) < 0)
        return false;
    if (!is_same(w, dir, dirfd)) {
        w->is_ahead = true;
        return false;
    }
    return fstatat(dirfd, name, st, AT_SYMLINK_NOFOLLOW) == 0;
}

bool watch_exists(struct fs_watch *w, const char *rel, bool *ret_is_dir)
{
    struct stat st;

    if (!stat_place(w, rel, &st))
        return false;
    *ret_is_dir = S_ISDIR(st.st_mode);
    return true;
}

static int limit_reached(struct err *e)
{
    _cleanup_free_ char *text = NULL;
    size_t n = 0;

    (void)io_read_file(AT_FDCWD, LIMIT_FILE, 64, &text, &n, NULL);
    return err_field(
        e, ERR_EXHAUSTED, "path",
        "the kernel's limit of watches is reached: fs.inotify.max_user_watches is %.*s",
        text ? (int)strcspn(text, "\n") : 7, text ? text : "unknown");
}

/* fd: the directory, by O_PATH. Needs the right to read it. */
static int add_watch(struct fs_watch *w, int fd, int *ret_wd, struct err *e)
{
    int wd = fs_feed_add(w->feed, fd, WATCH_MASK);

    if (wd < 0 && errno == ENOSPC)
        return limit_reached(e);
    if (wd < 0 && errno == ENOENT)
        return err_set(e, ERR_PRECONDITION, "there is no /proc here: nothing can be watched");
    if (wd < 0)
        return err_sys(e, errno, "watch");
    *ret_wd = wd;
    return 0;
}

/* inotify does not report changes of files that the kernel makes up. */
static bool is_made_up(int fd)
{
    struct statfs fs;

    if (fstatfs(fd, &fs) < 0)
        return false;
    switch ((unsigned long)fs.f_type) {
    case PROC_SUPER_MAGIC:
    case SYSFS_MAGIC:
    case CGROUP_SUPER_MAGIC:
    case CGROUP2_SUPER_MAGIC:
    case DEBUGFS_MAGIC:
    case TRACEFS_MAGIC:
    case SECURITYFS_MAGIC:
    case DEVPTS_SUPER_MAGIC:
    case BPF_FS_MAGIC:
        return true;
    default:
        return false;
    }
}

/* ---- one directory --------------------------------------------------------------------------- */

/* Whether the directory is still where the events so far have put it. */
static bool is_still_at(struct fs_watch *w, const char *rel, int fd)
{
    struct stat there, here;

    return stat_place(w, rel, &there) && fstat(fd, &here) == 0 && there.st_ino == here.st_ino &&
           there.st_dev == here.st_dev;
}

/*
 * The kernel knows the directory under another place: either a mount shows it twice, or it moved
 * and the events that say so are still to come.
 */
static int scan_take_over(struct fs_watch *w, struct watch_dir *known, int fd,
                          struct watch_dir *parent, const char *name, struct err *e)
{
    _cleanup_buf_ struct buf rel = {0};
    int r;

    if (!known->parent)
        return err_set(e, ERR_EXISTS, "it is the watched directory itself");
    r = watch_rel(known->parent, known->name, &rel, e);
    if (r < 0)
        return r;
    if (is_still_at(w, rel.data, fd))
        return err_set(e, ERR_EXISTS, "it is the same directory as '%.300s'", rel.data);
    r = watch_dirs_move(w->dirs, known, parent, name, NULL);
    if (r < 0) {
        w->must_resync = true;
        return err_sys(e, ENOENT, "it moved meanwhile");
    }
    w->is_ahead = true;
    watch_tell(w, FS_WATCH_REMOVED, rel.data, NULL, true, true);
    watch_todo_add(w, rel.data, false);
    return 0;
}

/* Watches the directory of fd as the one at this place. *ret_is_new: another one was there. */
static int have_dir(struct fs_watch *w, int fd, struct watch_dir *parent, const char *name,
                    const char *rel, struct watch_dir **ret, bool *ret_is_new, struct err *e)
{
    struct watch_dir *dir = watch_dirs_find(w->dirs, parent, name);
    struct watch_dir *known;
    struct stat st;
    int wd, r;

    *ret_is_new = false;
    if (fstat(fd, &st) < 0)
        return err_sys(e, errno, "stat '%s'", rel);
    r = add_watch(w, fd, &wd, e);
    if (r == 0 && dir && dir->wd >= 0 && dir->wd != wd) {
        watch_drop(w, dir); /* may have been above the one that we look at: watch that again */
        dir = NULL;
        *ret_is_new = w->is_ahead = true;
        watch_tell(w, FS_WATCH_REMOVED, rel, NULL, true, false);
        r = add_watch(w, fd, &wd, e);
    }
    if (r < 0)
        return r;
    known = watch_dirs_by_wd(w->dirs, wd);
    if (known && known != dir) {
        if (dir)
            watch_drop(w, dir);
        *ret = known;
        return scan_take_over(w, known, fd, parent, name, e);
    }
    if (!dir)
        r = watch_dirs_add(w->dirs, parent, name, &dir, e);
    if (r < 0) {
        fs_feed_rm(w->feed, wd);
        return r;
    }
    if (dir->wd < 0)
        watch_dirs_set_wd(w->dirs, dir, wd);
    dir->dev = st.st_dev;
    dir->ino = st.st_ino;
    *ret = dir;
    return 0;
}

/* ---- trees ----------------------------------------------------------------------------------- */

struct scan {
    struct fs_watch *w;
    const char *rel;                               /* of the start */
    struct watch_dir *way[FS_WATCH_MAX_DEPTH + 1]; /* from the start down to where the walk is */
    struct buf at;                                 /* the item's path from the watch's root */
};

/* Tells why a directory is not watched; at the start, a reached limit fails the whole watch. */
static int leave_out(struct fs_watch *w, const char *rel, const struct err *why, struct err *e)
{
    if (has_vanished(why))
        return 0;
    if (w->is_starting && why->code == ERR_EXHAUSTED) {
        if (e)
            *e = *why;
        return -why->code;
    }
    watch_tell_unwatched(w, rel, why);
    return 0;
}

/* 1: go into it. */
static int scan_dir(struct scan *s, const struct fs_walk_item *it, struct err *e)
{
    struct fs_watch *w = s->w;
    _cleanup_close_ int fd = fs_openat_nofollow(it->dirfd, it->name, O_PATH | O_DIRECTORY);
    struct err why = {0};
    bool is_new;
    int r;

    if (fd < 0)
        r = err_sys(&why, errno, "open '%s'", it->path);
    else if (it->st.st_dev != w->dev && is_made_up(fd))
        r = err_set(&why, ERR_PRECONDITION, "the kernel makes these files up");
    else
        r = have_dir(w, fd, s->way[it->depth - 1], it->name, s->at.data, &s->way[it->depth],
                     &is_new, &why);
    watch_tell(w, FS_WATCH_CREATED, s->at.data, NULL, true, false);
    return r < 0 ? leave_out(w, s->at.data, &why, e) : 1;
}

static int scan_item(struct scan *s, struct fs_walk *walk, const struct fs_walk_item *it,
                     struct err *e)
{
    struct fs_watch *w = s->w;
    bool is_dir = S_ISDIR(it->st.st_mode);
    int r;

    if (it->kind == FS_WALK_LEAVE || it->depth == 0)
        return 0;
    buf_clear(&s->at);
    r = s->rel[0] ? buf_addf(&s->at, e, "%s/%s", s->rel, it->path) : buf_adds(&s->at, it->path, e);
    if (r < 0)
        return r;
    if (it->kind == FS_WALK_ERROR)
        return leave_out(w, s->at.data, &it->error, e);
    if (watch_is_hidden(w, s->at.data, it->name, is_dir)) {
        fs_walk_skip(walk);
        return 0;
    }
    if (!is_dir || !w->o.recursive) {
        watch_tell(w, FS_WATCH_CREATED, s->at.data, NULL, is_dir, false);
        fs_walk_skip(walk);
        return 0;
    }
    r = scan_dir(s, it, e);
    if (r <= 0)
        fs_walk_skip(walk);
    return r < 0 ? r : 0;
}

static int scan_below(struct scan *s, int fd, struct err *e)
{
    struct fs_walk_options o = {.max_depth = FS_WATCH_MAX_DEPTH, .deep_is_error = true};
    const struct fs_walk_item *it;
    struct fs_walk *walk = NULL;
    struct err why = {0};
    int r = fs_walk_new_take(fd, &o, &walk, e);

    while (r == 0) {
        if (s->w->o.sink.is_gone(s->w->o.sink.arg)) {
            r = err_set(e, ERR_CANCELED, "the client has gone");
            break;
        }
        r = fs_walk_next(walk, &it, &why);
        if (r < 0) /* the start itself: errors below are items */
            r = leave_out(s->w, s->rel, &why, e);
        else if (r > 0 && (r = scan_item(s, walk, it, e)) == 0)
            continue;
        break;
    }
    fs_walk_free(walk);
    return r;
}

/* *ret_fd: readable. */
static int scan_start(struct scan *s, struct watch_dir *parent, const char *name, bool is_told,
                      int *ret_fd, struct err *e)
{
    struct fs_watch *w = s->w;
    _cleanup_close_ int fd = -1;
    bool is_new = false;
    int r = scan_open_dir(w, s->rel, &fd, e);

    if (r < 0)
        return r;
    if (is_made_up(fd))
        r = err_field(e, ERR_PRECONDITION, "path",
                      "the kernel makes the files of '%s' up: "
                      "it tells nobody of changes",
                      s->rel[0] ? s->rel : w->shown);
    if (r == 0)
        r = have_dir(w, fd, parent, name, s->rel, &s->way[0], &is_new, e);
    if (!is_told || is_new)
        watch_tell(w, FS_WATCH_CREATED, s->rel, NULL, true, false);
    if (r < 0)
        return r;
    *ret_fd = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return *ret_fd < 0 ? err_sys(e, errno, "open '%s'", s->rel) : 0;
}

int watch_scan(struct fs_watch *w, struct watch_dir *parent, const char *name, const char *rel,
               bool is_told, struct err *e)
{
    _cleanup_free_ struct scan *s = calloc(1, sizeof(*s));
    struct err why = {0};
    int fd, r;

    if (!s)
        return err_oom(e);
    s->w = w;
    s->rel = rel;
    buf_init(&s->at, REL_MAX_BYTES);
    r = scan_start(s, parent, name, is_told, &fd, &why);
    if (r < 0 && parent)
        r = leave_out(w, rel, &why, e);
    else if (r < 0 && e)
        *e = why;
    else if (r == 0)
        r = scan_below(s, fd, e);
    buf_done(&s->at);
    return r;
}

/* ---- places to look at ----------------------------------------------------------------------- */

void watch_todo_add(struct fs_watch *w, const char *rel, bool is_told)
{
    char *copy = strdup(rel);

    if (!copy || array_grow(&w->todo, &w->cap_todo, w->n_todo + 1, MAX_TODO, NULL) < 0) {
        free(copy);
        w->must_resync = true;
        return;
    }
    w->todo[w->n_todo++] = (struct watch_todo){copy, is_told};
}

static int scan_look(struct fs_watch *w, const struct watch_todo *t, struct err *e)
{
    _cleanup_free_ char *dir = NULL;
    struct watch_dir *parent, *known;
    const char *name;
    struct stat st;

    dir = fs_below_parent(t->rel, &name);
    if (!dir)
        return err_oom(e);
    parent = watch_dirs_lookup(w->dirs, dir);
    if (!parent || !stat_place(w, t->rel, &st) ||
        watch_is_hidden(w, t->rel, name, S_ISDIR(st.st_mode)))
        return 0;
    if (S_ISDIR(st.st_mode) && w->o.recursive)
        return watch_scan(w, parent, name, t->rel, t->is_told, e);
    known = watch_dirs_find(w->dirs, parent, name);
    if (known) /* and is no directory any more */
        watch_drop(w, known);
    if (!t->is_told || known)
        watch_tell(w, FS_WATCH_CREATED, t->rel, NULL, S_ISDIR(st.st_mode), false);
    return 0;
}

int watch_todo_run(struct fs_watch *w, struct err *e)
{
    int r = 0;

    while (w->n_todo) {
        struct watch_todo t = w->todo[--w->n_todo];

        if (r == 0 && !w->must_resync)
            r = scan_look(w, &t, e);
        free(t.rel);
    }
    return r;
}
