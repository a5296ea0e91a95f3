#include "fs/notify.h"

#include <errno.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/buf.h"
#include "common/cleanup.h"
#include "common/str.h"
#include "fs/inotify_feed.h"
#include "fs/dir_names.h"
#include "fs/watch_dirs.h"

#define MASK \
    (IN_CREATE | IN_MOVED_TO | IN_MOVED_FROM | IN_MOVE_SELF | IN_ATTRIB | IN_MODIFY | IN_DELETE | \
     IN_DELETE_SELF)
#define READ_BYTES (64 * 1024)
#define READS_MAX 64 /* in one run: others want the thread too */

struct fs_notify {
    struct fs_caller *caller; /* a reference */
    struct fs_notify_options o;
    char *path;
    struct fs_feed *feed;
    struct watch_dirs *dirs;
    struct watch_dir *moved; /* the last event took it away, by a rename with this cookie */
    uint32_t cookie;
    char **early; /* told as created, and the kernel has not said so yet */
    size_t n_early;
    char *raw; /* READ_BYTES */
};

static void tell(struct fs_notify *n, enum fs_notice what, const char *rel)
{
    n->o.told(n->o.arg, what, *rel ? rel : ".");
}

/* ---- names told early ------------------------------------------------------------------------ */

static void note_early(struct fs_notify *n, const char *rel)
{
    char **grown;

    if (n->n_early == FS_NOTIFY_MAX_EARLY)
        return;
    grown = realloc(n->early, (n->n_early + 1) * sizeof(*grown));
    if (!grown)
        return;
    n->early = grown;
    n->early[n->n_early] = strdup(rel);
    n->n_early += n->early[n->n_early] != NULL;
}

/* The first word of the kernel on a name settles it. */
static bool was_told_early(struct fs_notify *n, const char *rel)
{
    for (size_t i = 0; i < n->n_early; i++)
        if (strcmp(n->early[i], rel) == 0) {
            free(n->early[i]);
            n->early[i] = n->early[--n->n_early];
            return true;
        }
    return false;
}

/* ---- directories ----------------------------------------------------------------------------- */

static int rel_of(const struct watch_dir *dir, const char *name, struct buf *out, struct err *e)
{
    int r;

    buf_clear(out);
    r = watch_dirs_path(dir, out, e);
    if (r == 0 && *name && out->len)
        r = buf_add(out, "/", 1, e);
    return r < 0 ? r : buf_adds(out, name, e);
}

static int add_watch(struct fs_notify *n, int fd, int *ret_wd, struct err *e)
{
    *ret_wd = fs_feed_add(n->feed, fd, MASK | IN_ONLYDIR);
    return *ret_wd < 0 ? err_sys(e, errno, "inotify_add_watch") : 0;
}

static void forget_wd(void *arg, int wd)
{
    const struct fs_notify *n = arg;

    fs_feed_rm(n->feed, wd);
}

static void drop(struct fs_notify *n, struct watch_dir *dir)
{
    if (n->moved && watch_dirs_is_within(n->moved, dir))
        n->moved = NULL;
    watch_dirs_drop(n->dirs, dir, forget_wd, n);
}

/* Opened from above by its path, for the place may hold a link by now. *ret_fd -1: it is gone. */
static int open_dir(struct fs_notify *n, const char *rel, int *ret_fd, struct err *e)
{
    _cleanup_free_ char *path = NULL;
    struct err inner = {0};
    int flags = O_RDONLY | O_DIRECTORY | (*rel ? O_NOFOLLOW : 0);
    int r;

    if (asprintf(&path, "%s%s%s", n->path, *rel ? "/" : "", rel) < 0)
        return err_oom(e);
    *ret_fd = -1;
    r = fs_open(n->caller, path, flags, 0, ret_fd, &inner);
    if (r < 0 && *rel &&
        (inner.sys == ENOENT || inner.sys == ENOTDIR || inner.sys == ELOOP || inner.sys == EACCES))
        return 0;
    if (r < 0 && e)
        *e = inner;
    return r;
}

static unsigned depth_of(const struct watch_dir *dir)
{
    unsigned depth = 0;

    for (; dir->parent; dir = dir->parent)
        depth++;
    return depth;
}

/* Watches one directory. *ret NULL: it is gone, or too deep, or was watched here already. fd: open
 * for reading. */
static int watch_one(struct fs_notify *n, struct watch_dir *parent, const char *name,
                     struct watch_dir **ret, int *ret_fd, struct err *e)
{
    _cleanup_buf_ struct buf rel;
    struct watch_dir *dir = NULL;
    bool is_again = false;
    int r, wd;

    *ret = NULL;
    *ret_fd = -1;
    buf_init(&rel, FS_PATH_MAX);
    if (parent && depth_of(parent) == FS_NOTIFY_MAX_DEPTH)
        return 0;
    r = parent ? rel_of(parent, name, &rel, e) : 0;
    if (r == 0)
        r = open_dir(n, rel.len ? rel.data : "", ret_fd, e);
    if (r < 0 || *ret_fd < 0)
        return r;
    dir = parent ? watch_dirs_find(n->dirs, parent, name) : NULL;
    r = add_watch(n, *ret_fd, &wd, e);
    if (r == 0 && dir && dir->wd == wd)
        return 0; /* it was looked at before the kernel told of it */
    is_again = dir != NULL;
    if (dir)
        drop(n, dir); /* another one was at this place */
    if (r == 0 && (dir = watch_dirs_by_wd(n->dirs, wd))) {
        if (parent && watch_dirs_is_within(parent, dir))
            return 0; /* what is known of places is old: the events to come tell */
        drop(n, dir); /* it was elsewhere, and is no more */
        is_again = true;
    }
    if (r == 0 && is_again)
        r = add_watch(n, *ret_fd, &wd, e); /* which may have gone with what was dropped */
    if (r == 0)
        r = watch_dirs_add(n->dirs, parent, name, &dir, e);
    if (r < 0) {
        fd_close(*ret_fd);
        *ret_fd = -1;
        return r;
    }
    watch_dirs_set_wd(n->dirs, dir, wd);
    *ret = dir;
    return 0;
}

/* One name in a directory that is looked into. A directory is put on the list of those to come. */
static int look_at(struct fs_notify *n, struct watch_dir *dir, int fd, const char *name,
                   bool is_told, struct strv_list *todo, struct err *e)
{
    _cleanup_buf_ struct buf rel;
    _cleanup_close_ int below = -1;
    struct watch_dir *child = NULL;
    struct stat st;
    int r;

    buf_init(&rel, FS_PATH_MAX);
    if (fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return 0;
    r = rel_of(dir, name, &rel, e);
    if (r == 0 && S_ISDIR(st.st_mode))
        r = watch_one(n, dir, name, &child, &below, e);
    if (r < 0)
        return r;
    if (is_told) {
        note_early(n, rel.data);
        tell(n, FS_NOTICE_CREATE, rel.data);
        if (S_ISREG(st.st_mode) && st.st_size)
            tell(n, FS_NOTICE_WRITE, rel.data); /* who waits for it would wait for ever */
    }
    return child ? strv_list_add(todo, rel.data, e) : 0;
}

static int look_into(struct fs_notify *n, const char *rel, bool is_told, struct strv_list *todo,
                     struct err *e)
{
    struct watch_dir *dir = watch_dirs_lookup(n->dirs, rel);
    _cleanup_close_ int fd = -1;
    struct fs_names names = {0};
    int r = dir ? open_dir(n, rel, &fd, e) : 0;

    if (r < 0 || fd < 0 || fs_dir_names(fd, true, &names, NULL) < 0)
        return r; /* gone, or not to be read */
    for (size_t i = 0; i < names.n && r == 0; i++)
        r = look_at(n, dir, fd, names.v[i], is_told, todo, e);
    fs_names_done(&names);
    return r;
}

/* What is in a directory that has just been watched, and below: watched too, and told as created
 * when it is new. What can't be read is passed over. */
static int look_below(struct fs_notify *n, const char *rel, bool is_told, struct err *e)
{
    struct strv_list todo = {0};
    int r = look_into(n, rel, is_told, &todo, e);

    for (size_t i = 0; i < todo.n && r == 0; i++) {
        _cleanup_free_ char *next = todo.v[i];

        todo.v[i] = NULL; /* the list may move, and what was looked into is not needed */
        r = look_into(n, next, is_told, &todo, e);
    }
    for (size_t i = 0; i < todo.n; i++)
        free(todo.v[i]);
    free(todo.v);
    return r;
}

/* ---- events ---------------------------------------------------------------------------------- */

static void tell_all(struct fs_notify *n, uint32_t mask, const char *rel)
{
    if (mask & (IN_CREATE | IN_MOVED_TO))
        tell(n, FS_NOTICE_CREATE, rel);
    if (mask & (IN_MOVED_FROM | IN_MOVE_SELF))
        tell(n, FS_NOTICE_RENAME, rel);
    if (mask & IN_ATTRIB)
        tell(n, FS_NOTICE_CHMOD, rel);
    if (mask & IN_MODIFY)
        tell(n, FS_NOTICE_WRITE, rel);
    if (mask & (IN_DELETE | IN_DELETE_SELF))
        tell(n, FS_NOTICE_REMOVE, rel);
}

/* Of the directory itself. Those below are told of by what holds them. */
static void on_self(struct fs_notify *n, struct watch_dir *dir, uint32_t mask, const char *rel)
{
    if (mask & IN_IGNORED) {
        watch_dirs_set_wd(n->dirs, dir, -1);
        if (dir->parent)
            drop(n, dir);
        return;
    }
    if (dir->parent)
        mask &= ~(uint32_t)(IN_MOVE_SELF | IN_DELETE_SELF);
    tell_all(n, mask, rel);
    if (mask & IN_MOVE_SELF)
        drop(n, dir); /* where it is now nobody knows */
}

static void leave_moved(struct fs_notify *n)
{
    if (n->moved)
        drop(n, n->moved);
    n->moved = NULL;
}

/* The other half of a rename within what is watched: it keeps its place below. */
static bool take_moved(struct fs_notify *n, struct watch_dir *dir, const char *name)
{
    struct watch_dir *old = watch_dirs_find(n->dirs, dir, name);

    if (old && old != n->moved)
        drop(n, old); /* which may have held the moved one, as far as is known here */
    if (!n->moved || watch_dirs_is_within(dir, n->moved))
        return false;
    return watch_dirs_move(n->dirs, TAKE(n->moved), dir, name, NULL) == 0;
}

/* A directory has come to this name. */
static int on_new_dir(struct fs_notify *n, struct watch_dir *dir, const struct inotify_event *ev,
                      const char *rel, struct err *e)
{
    _cleanup_close_ int fd = -1;
    struct watch_dir *child = NULL;
    int r;

    if (n->moved && take_moved(n, dir, ev->name)) {
        tell_all(n, ev->mask, rel);
        return 0;
    }
    r = watch_one(n, dir, ev->name, &child, &fd, e);
    if (r < 0)
        return r;
    tell_all(n, ev->mask, rel);
    return child ? look_below(n, rel, true, e) : 0;
}

static int on_name(struct fs_notify *n, struct watch_dir *dir, const struct inotify_event *ev,
                   const char *rel, struct err *e)
{
    bool is_early = n->n_early && was_told_early(n, rel);
    bool is_dir = ev->mask & IN_ISDIR && n->o.recursive;
    struct watch_dir *child;

    if (is_early && ev->mask & (IN_CREATE | IN_MOVED_TO)) {
        leave_moved(n);
        return 0; /* and what it is was looked at then */
    }
    if (is_dir && ev->mask & (IN_CREATE | IN_MOVED_TO))
        return on_new_dir(n, dir, ev, rel, e);
    tell_all(n, ev->mask, rel);
    child = is_dir ? watch_dirs_find(n->dirs, dir, ev->name) : NULL;
    if (child && ev->mask & IN_MOVED_FROM) {
        n->moved = child;
        n->cookie = ev->cookie;
    } else if (child && ev->mask & IN_DELETE) {
        drop(n, child);
    }
    return 0;
}

static int on_event(struct fs_notify *n, const struct inotify_event *ev, struct err *e)
{
    _cleanup_buf_ struct buf rel;
    struct watch_dir *dir;
    const char *text;
    int r;

    if (ev->mask & IN_Q_OVERFLOW)
        return err_set(e, ERR_EXHAUSTED, "queue or buffer overflow");
    if (!(ev->mask & IN_MOVED_TO && ev->cookie == n->cookie))
        leave_moved(n);
    dir = watch_dirs_by_wd(n->dirs, ev->wd);
    if (!dir || ev->mask & IN_UNMOUNT)
        return 0;
    buf_init(&rel, FS_PATH_MAX + NAME_MAX);
    r = rel_of(dir, ev->len ? ev->name : "", &rel, e);
    if (r < 0)
        return r;
    text = rel.data ? rel.data : "";
    if (ev->len)
        return on_name(n, dir, ev, text, e);
    on_self(n, dir, ev->mask, text);
    return 0;
}

static int on_events(struct fs_notify *n, size_t len, struct err *e)
{
    int r = 0;

    for (size_t at = 0; at < len && r == 0;) {
        const struct inotify_event *ev = (const void *)(n->raw + at);

        r = on_event(n, ev, e);
        at += sizeof(*ev) + ev->len;
    }
    return r;
}

int fs_notify_run(struct fs_notify *n, struct err *e)
{
    int r = 0;

    for (int i = 0; i < READS_MAX && r == 0; i++) {
        ssize_t len = fs_feed_read(n->feed, n->raw, READ_BYTES);

        if (len < 0 && errno == EINTR)
            continue;
        if (len < 0 && errno == EAGAIN)
            break;
        if (len <= 0)
            return err_sys(e, errno, "read inotify");
        r = on_events(n, (size_t)len, e);
    }
    leave_moved(n); /* out of what is watched: the other half would have come with it */
    return r;
}

/* ---- begin and end --------------------------------------------------------------------------- */

static int start(struct fs_notify *n, struct err *e)
{
    _cleanup_close_ int fd = -1;
    struct watch_dir *root = NULL;
    int r = fs_feed_new(fs_root_feeds(n->caller->root), 0, &n->feed, e);

    if (r < 0)
        return r;
    n->raw = malloc(READ_BYTES);
    if (!n->raw)
        return err_oom(e);
    r = watch_dirs_new(FS_NOTIFY_MAX_DIRS, &n->dirs, e);
    if (r == 0)
        r = watch_one(n, NULL, "", &root, &fd, e);
    if (r == 0 && n->o.recursive)
        r = look_below(n, "", false, e);
    return r;
}

int fs_notify_new(struct fs_caller *c, const char *path, const struct fs_notify_options *o,
                  struct fs_notify **ret, struct err *e)
{
    struct fs_notify *n = calloc(1, sizeof(*n));
    int r;

    if (!n)
        return err_oom(e);
    n->o = *o;
    n->caller = fs_caller_ref(c);
    n->path = strdup(path);
    r = n->path ? start(n, e) : err_oom(e);
    if (r < 0) {
        fs_notify_free(n);
        return r;
    }
    *ret = n;
    return 0;
}

struct fs_notify *fs_notify_free(struct fs_notify *n)
{
    if (!n)
        return NULL;
    fs_feed_free(n->feed);
    watch_dirs_free(n->dirs);
    for (size_t i = 0; i < n->n_early; i++)
        free(n->early[i]);
    free(n->early);
    free(n->raw);
    free(n->path);
    fs_caller_unref(n->caller);
    free(n);
    return NULL;
}

int fs_notify_fd(const struct fs_notify *n)
{
    return fs_feed_fd(n->feed);
}
