#include <errno.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/mem.h"
#include "common/buf.h"
#include "common/cleanup.h"
#include "common/str.h"
#include "fs/walk.h"
#include "fs/watch_own.h"

#define RAW_MASK \
    (IN_CREATE | IN_MOVED_TO | IN_MOVED_FROM | IN_MOVE_SELF | IN_ATTRIB | IN_MODIFY | IN_DELETE | \
     IN_DELETE_SELF)
#define RAW_BYTES (64 * 1024)
#define READS_MAX 64 /* reads in one run: the thread is shared */

static void raw_tell(struct fs_watch *w, enum fs_watch_type type, bool is_moved, const char *rel)
{
    w->o.sink.event(
        w->o.sink.arg,
        &(struct fs_watch_event){.type = type, .path = *rel ? rel : ".", .is_moved = is_moved});
}

/* ---- names told early ------------------------------------------------------------------------ */

static void raw_note_early(struct fs_watch *w, const char *rel)
{
    if (array_grow(&w->early, &w->cap_early, w->n_early + 1, FS_WATCH_MAX_EARLY, NULL) < 0)
        return;
    w->early[w->n_early] = strdup(rel);
    w->n_early += w->early[w->n_early] != NULL;
}

/* The kernel's first event about a name ends its time on the list. */
static bool raw_was_told_early(struct fs_watch *w, const char *rel)
{
    for (size_t i = 0; i < w->n_early; i++)
        if (strcmp(w->early[i], rel) == 0) {
            free(w->early[i]);
            w->early[i] = w->early[--w->n_early];
            return true;
        }
    return false;
}

/* ---- directories ----------------------------------------------------------------------------- */

static int raw_add_watch(struct fs_watch *w, int fd, int *ret_wd, struct err *e)
{
    *ret_wd = fs_feed_add(w->feed, fd, RAW_MASK | IN_ONLYDIR);
    return *ret_wd < 0 ? err_sys(e, errno, "inotify_add_watch") : 0;
}

/* Opens by the path from the watched directory: a link may be there by now. *ret_fd -1: the
 * directory is gone. */
static int raw_open_dir(struct fs_watch *w, const char *rel, int *ret_fd, struct err *e)
{
    _cleanup_free_ char *path = NULL;
    struct err inner = {0};
    int flags = O_RDONLY | O_DIRECTORY | (*rel ? O_NOFOLLOW : 0);
    int r;

    if (asprintf(&path, "%s%s%s", w->shown, *rel ? "/" : "", rel) < 0)
        return err_oom(e);
    *ret_fd = -1;
    r = fs_open(w->caller, path, flags, 0, ret_fd, &inner);
    if (r < 0 && *rel &&
        (inner.sys == ENOENT || inner.sys == ENOTDIR || inner.sys == ELOOP || inner.sys == EACCES))
        return 0;
    if (r < 0 && e)
        *e = inner;
    return r;
}

static unsigned raw_dir_depth(const struct watch_dir *dir)
{
    unsigned depth = 0;

    for (; dir->parent; dir = dir->parent)
        depth++;
    return depth;
}

/* Watches one directory. *ret NULL: it is gone, or too deep, or was watched here already. fd: open
 * for reading. */
static int raw_watch_dir(struct fs_watch *w, struct watch_dir *parent, const char *name,
                         struct watch_dir **ret, int *ret_fd, struct err *e)
{
    _cleanup_buf_ struct buf rel = {0};
    struct watch_dir *dir = NULL;
    bool is_again = false;
    int r, wd;

    *ret = NULL;
    *ret_fd = -1;
    if (parent && raw_dir_depth(parent) == FS_WATCH_MAX_DEPTH)
        return 0;
    r = parent ? watch_rel(parent, name, &rel, e) : 0;
    if (r == 0)
        r = raw_open_dir(w, rel.len ? rel.data : "", ret_fd, e);
    if (r < 0 || *ret_fd < 0)
        return r;
    dir = parent ? watch_dirs_find(w->dirs, parent, name) : NULL;
    r = raw_add_watch(w, *ret_fd, &wd, e);
    if (r == 0 && dir && dir->wd == wd)
        return 0; /* it was looked at before the kernel told of it */
    is_again = dir != NULL;
    if (dir)
        watch_drop(w, dir); /* another one was at this place */
    if (r == 0 && (dir = watch_dirs_by_wd(w->dirs, wd))) {
        if (parent && watch_dirs_is_within(parent, dir))
            return 0;       /* the events to come tell where it is now */
        watch_drop(w, dir); /* it was elsewhere, and is no more */
        is_again = true;
    }
    if (r == 0 && is_again)
        r = raw_add_watch(w, *ret_fd, &wd, e); /* the drop may have ended it */
    if (r == 0)
        r = watch_dirs_add(w->dirs, parent, name, &dir, e);
    if (r < 0) {
        fd_close(*ret_fd);
        *ret_fd = -1;
        return r;
    }
    watch_dirs_set_wd(w->dirs, dir, wd);
    *ret = dir;
    return 0;
}

/* Looks at one name of a directory. If it is a directory itself, adds it to todo. */
static int raw_look_at(struct fs_watch *w, struct watch_dir *dir, int fd, const char *name,
                       bool is_told, struct strv_list *todo, struct err *e)
{
    _cleanup_buf_ struct buf rel = {0};
    _cleanup_close_ int below = -1;
    struct watch_dir *child = NULL;
    struct stat st;
    int r;

    if (fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return 0;
    r = watch_rel(dir, name, &rel, e);
    if (r == 0 && S_ISDIR(st.st_mode))
        r = raw_watch_dir(w, dir, name, &child, &below, e);
    if (r < 0)
        return r;
    if (is_told) {
        raw_note_early(w, rel.data);
        raw_tell(w, FS_WATCH_CREATED, false, rel.data);
        /* Its writer may be done: no event of the kernel's would tell that it has content. */
        if (S_ISREG(st.st_mode) && st.st_size)
            raw_tell(w, FS_WATCH_MODIFIED, false, rel.data);
    }
    return child ? strv_list_add(todo, rel.data, e) : 0;
}

static int raw_look_into(struct fs_watch *w, const char *rel, bool is_told, struct strv_list *todo,
                         struct err *e)
{
    struct watch_dir *dir = watch_dirs_lookup(w->dirs, rel);
    _cleanup_close_ int fd = -1;
    struct fs_names names = {0};
    int r = dir ? raw_open_dir(w, rel, &fd, e) : 0;

    if (r < 0 || fd < 0 || fs_dir_names(fd, true, &names, NULL) < 0)
        return r; /* gone, or not to be read */
    for (size_t i = 0; i < names.n && r == 0; i++)
        r = raw_look_at(w, dir, fd, names.v[i], is_told, todo, e);
    fs_names_done(&names);
    return r;
}

/* Watches all directories below one that has just been watched, and tells the entries as created if
 * it is new. A directory that can't be read is passed over. */
static int raw_look_below(struct fs_watch *w, const char *rel, bool is_told, struct err *e)
{
    struct strv_list todo = {0};
    int r = raw_look_into(w, rel, is_told, &todo, e);

    for (size_t i = 0; i < todo.n && r == 0; i++) {
        _cleanup_free_ char *next = todo.v[i];

        todo.v[i] = NULL; /* the list may move, and is not needed behind us */
        r = raw_look_into(w, next, is_told, &todo, e);
    }
    for (size_t i = 0; i < todo.n; i++)
        free(todo.v[i]);
    free(todo.v);
    return r;
}

/* ---- events ---------------------------------------------------------------------------------- */

static void raw_tell_mask(struct fs_watch *w, uint32_t mask, const char *rel)
{
    if (mask & (IN_CREATE | IN_MOVED_TO))
        raw_tell(w, FS_WATCH_CREATED, false, rel);
    if (mask & (IN_MOVED_FROM | IN_MOVE_SELF))
        raw_tell(w, FS_WATCH_REMOVED, true, rel);
    if (mask & IN_ATTRIB)
        raw_tell(w, FS_WATCH_ATTRIBUTES, false, rel);
    if (mask & IN_MODIFY)
        raw_tell(w, FS_WATCH_MODIFIED, false, rel);
    if (mask & (IN_DELETE | IN_DELETE_SELF))
        raw_tell(w, FS_WATCH_REMOVED, false, rel);
}

/* An event about the directory itself. For directories below the first, the parent gets one too. */
static void raw_on_self(struct fs_watch *w, struct watch_dir *dir, uint32_t mask, const char *rel)
{
    if (mask & IN_IGNORED) {
        watch_dirs_set_wd(w->dirs, dir, -1);
        if (dir->parent)
            watch_drop(w, dir);
        return;
    }
    if (dir->parent)
        mask &= ~(uint32_t)(IN_MOVE_SELF | IN_DELETE_SELF);
    raw_tell_mask(w, mask, rel);
    if (mask & IN_MOVE_SELF)
        watch_drop(w, dir); /* its new place is unknown */
}

static void raw_leave_moved(struct fs_watch *w)
{
    if (w->moved)
        watch_drop(w, w->moved);
    w->moved = NULL;
}

/* The other half of a rename within what is watched: it keeps its place below. */
static bool raw_take_moved(struct fs_watch *w, struct watch_dir *dir, const char *name)
{
    struct watch_dir *old = watch_dirs_find(w->dirs, dir, name);

    if (old && old != w->moved)
        watch_drop(w, old); /* may have held the moved one, as far as is known here */
    if (!w->moved || watch_dirs_is_within(dir, w->moved))
        return false;
    return watch_dirs_move(w->dirs, TAKE(w->moved), dir, name, NULL) == 0;
}

/* A directory has come to this name. */
static int raw_on_new_dir(struct fs_watch *w, struct watch_dir *dir, const struct inotify_event *ev,
                          const char *rel, struct err *e)
{
    _cleanup_close_ int fd = -1;
    struct watch_dir *child = NULL;
    int r;

    if (w->moved && raw_take_moved(w, dir, ev->name)) {
        raw_tell_mask(w, ev->mask, rel);
        return 0;
    }
    r = raw_watch_dir(w, dir, ev->name, &child, &fd, e);
    if (r < 0)
        return r;
    raw_tell_mask(w, ev->mask, rel);
    return child ? raw_look_below(w, rel, true, e) : 0;
}

static int raw_on_name(struct fs_watch *w, struct watch_dir *dir, const struct inotify_event *ev,
                       const char *rel, struct err *e)
{
    bool is_early = w->n_early && raw_was_told_early(w, rel);
    bool is_dir = ev->mask & IN_ISDIR && w->o.recursive;
    struct watch_dir *child;

    if (is_early && ev->mask & (IN_CREATE | IN_MOVED_TO)) {
        raw_leave_moved(w);
        return 0; /* it was looked at then */
    }
    if (is_dir && ev->mask & (IN_CREATE | IN_MOVED_TO))
        return raw_on_new_dir(w, dir, ev, rel, e);
    raw_tell_mask(w, ev->mask, rel);
    child = is_dir ? watch_dirs_find(w->dirs, dir, ev->name) : NULL;
    if (child && ev->mask & IN_MOVED_FROM) {
        w->moved = child;
        w->moved_cookie = ev->cookie;
    } else if (child && ev->mask & IN_DELETE) {
        watch_drop(w, child);
    }
    return 0;
}

static int raw_on_event(struct fs_watch *w, const struct inotify_event *ev, struct err *e)
{
    _cleanup_buf_ struct buf rel = {0};
    struct watch_dir *dir;
    const char *text;
    int r;

    if (ev->mask & IN_Q_OVERFLOW)
        return err_set(e, ERR_EXHAUSTED, "queue or buffer overflow");
    if (!(ev->mask & IN_MOVED_TO && ev->cookie == w->moved_cookie))
        raw_leave_moved(w);
    dir = watch_dirs_by_wd(w->dirs, ev->wd);
    if (!dir || ev->mask & IN_UNMOUNT)
        return 0;
    r = watch_rel(dir, ev->len ? ev->name : "", &rel, e);
    if (r < 0)
        return r;
    text = rel.data ? rel.data : "";
    if (ev->len)
        return raw_on_name(w, dir, ev, text, e);
    raw_on_self(w, dir, ev->mask, text);
    return 0;
}

static int raw_on_events(struct fs_watch *w, struct err *e)
{
    int r = 0;

    for (size_t at = 0; at < w->raw_len && r == 0;) {
        struct watch_event x = watch_event_at(w, at);

        r = raw_on_event(w, x.ev, e);
        at += watch_event_size(&x);
    }
    w->raw_len = 0;
    return r;
}

int watch_raw_run(struct fs_watch *w, struct err *e)
{
    int r = 0;

    for (int i = 0; i < READS_MAX && r == 0; i++) {
        int n = watch_read(w, e);

        r = n > 0 ? raw_on_events(w, e) : n;
        if (n == 0)
            break;
    }
    raw_leave_moved(w); /* out of the watched tree: the other half would have come with it */
    return r;
}

/* ---- begin and end --------------------------------------------------------------------------- */

int watch_raw_start(struct fs_watch *w, struct err *e)
{
    _cleanup_close_ int fd = -1;
    struct watch_dir *root = NULL;
    int r = watch_open(w, 0, RAW_BYTES, e);

    if (r == 0)
        r = raw_watch_dir(w, NULL, "", &root, &fd, e);
    if (r == 0 && w->o.recursive)
        r = raw_look_below(w, "", false, e);
    return r;
}

void watch_raw_done(struct fs_watch *w)
{
    for (size_t i = 0; i < w->n_early; i++)
        free(w->early[i]);
    free(w->early);
}
