#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/path.h"
#include "fs/watch_own.h"

#define RAW_BYTES (256 * 1024) /* some thousand events; the kernel holds 16,384 more */
#define MAX_ROUNDS 16          /* reads in one run: the thread is shared */

/* ---- the start and the end ------------------------------------------------------------------- */

/* Only the parent gets an event when a directory is removed that a process still uses. */
static void watch_parent(struct fs_watch *w)
{
    _cleanup_close_ int dirfd = -1;

    free(w->root_name);
    w->root_name = NULL;
    w->parent_wd = -1;
    if (fs_open_parent(w->caller, w->root_path, &dirfd, &w->root_name, NULL) < 0)
        return;
    w->parent_wd = fs_feed_add(w->feed, dirfd, IN_DELETE | IN_MOVED_FROM | IN_ONLYDIR);
}

/* With the identity taken. The entries that are there are not told. */
static int changes_begin(struct fs_watch *w, struct err *e)
{
    int r = watch_open(w, IN_EXCL_UNLINK, RAW_BYTES, e);

    if (r < 0)
        return r;
    watch_parent(w);
    w->is_quiet = true;
    r = watch_scan(w, NULL, "", "", true, e);
    w->is_quiet = false;
    return r;
}

/* For one file: watches its directory, because a file that is replaced is another one. */
static int find_file(struct fs_watch *w, int fd, struct err *e)
{
    char self[40], real[PATH_MAX];
    ssize_t n;

    (void)snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
    n = readlink(self, real, sizeof(real) - 1);
    if (n <= 0)
        return err_field(e, ERR_PRECONDITION, "path", "it can't be told where '%s' is", w->shown);
    real[n] = '\0';
    w->root_path = path_dir(real);
    w->only = strdup(path_name(real));
    w->o.recursive = false;
    return w->root_path && w->only ? 0 : err_oom(e);
}

static int find_root(struct fs_watch *w, struct err *e)
{
    _cleanup_close_ int fd = -1;
    _cleanup_close_ int dirfd = -1;
    struct stat st;
    int r = fs_open(w->caller, w->shown, O_PATH, 0, &fd, e);

    if (r < 0)
        return r;
    if (fstat(fd, &st) < 0)
        return err_at(e, err_sys(e, errno, "stat '%s'", w->shown), "path");
    if (S_ISDIR(st.st_mode))
        r = fs_caller_path(w->caller, w->shown, &w->root_path, e);
    else
        r = find_file(w, fd, e);
    if (r == 0)
        r = fs_open(w->caller, w->root_path, O_PATH | O_DIRECTORY, 0, &dirfd, e);
    if (r == 0 && fstat(dirfd, &st) < 0)
        r = err_sys(e, errno, "stat '%s'", w->shown);
    w->dev = st.st_dev;
    w->ino = st.st_ino;
    return r;
}

int watch_changes_start(struct fs_watch *w, struct err *e)
{
    _fs_acting_ const struct fs_actor *acting = NULL;
    int r = fs_act(&w->caller->actor, &acting, e);

    if (r == 0)
        r = find_root(w, e);
    if (r < 0)
        return r;
    w->is_starting = true;
    r = changes_begin(w, e);
    w->is_starting = false;
    return r < 0 ? err_at(e, r, "path") : 0;
}

void watch_changes_done(struct fs_watch *w)
{
    while (w->n_todo)
        free(w->todo[--w->n_todo].rel);
    free(w->todo);
    free(w->root_path);
    free(w->root_name);
    free(w->only);
    free(w->last_from);
    free(w->last_to);
}

/* Ends the watch when its path leads elsewhere by now. */
static void check_root(struct fs_watch *w, const char *reason)
{
    _cleanup_close_ int fd = -1;

    if (watch_open_root(w, &fd, NULL) < 0)
        w->end = reason;
}

/* Starts over: the kernel's queue overflowed, or its view and ours differ. */
static int changes_resync(struct fs_watch *w, struct err *e)
{
    int r;

    w->must_resync = false;
    w->raw_len = 0;
    w->pending_ms = 0;
    free(TAKE(w->last_from));
    w->feed = fs_feed_free(w->feed);
    w->dirs = watch_dirs_free(w->dirs);
    check_root(w, "removed");
    if (w->end)
        return 0;
    r = changes_begin(w, e);
    if (r == 0)
        w->o.sink.event(w->o.sink.arg,
                        &(struct fs_watch_event){.type = FS_WATCH_OVERFLOW, .path = ""});
    return r;
}

/* ---- what an event says ---------------------------------------------------------------------- */

static void entry_arrived(struct fs_watch *w, const struct watch_event *x, const char *rel,
                          bool is_moved)
{
    struct watch_dir *placeholder;
    struct watch_dir *dir = watch_dirs_find(w->dirs, x->dir, x->ev->name);

    if (dir && !x->is_dir)
        watch_drop(w, dir); /* the client forgets the entries below, so must we */
    watch_tell(w, FS_WATCH_CREATED, rel, NULL, x->is_dir, is_moved);
    if (is_moved && !x->is_dir)
        watch_tell(w, FS_WATCH_WRITTEN, rel, NULL, false, false);
    if (!x->is_dir || !w->o.recursive)
        return;
    /* If it is renamed before we look, the event must still find it. */
    if (!dir)
        (void)watch_dirs_add(w->dirs, x->dir, x->ev->name, &placeholder, NULL);
    watch_todo_add(w, rel, true);
}

static void entry_vanished(struct fs_watch *w, const struct watch_event *x, const char *rel,
                           bool is_moved)
{
    struct watch_dir *dir = watch_dirs_find(w->dirs, x->dir, x->ev->name);

    if (dir && !x->is_dir)
        return; /* a directory was told of there since */
    if (dir)
        watch_drop(w, dir);
    watch_tell(w, FS_WATCH_REMOVED, rel, NULL, x->is_dir, is_moved);
}

/*
 * Moved out of sight. If two names trade places (as when the agent replaces a file by its temporary
 * one) the event is the same, but the name is still there: then nothing has gone, unless it is a
 * directory.
 */
static void entry_departed(struct fs_watch *w, const struct watch_event *x, const char *rel)
{
    bool is_dir = false;
    bool exists = watch_exists(w, rel, &is_dir);

    if (exists && !is_dir && !x->is_dir)
        return;
    w->is_ahead = true; /* or it is there still, but under another name of a directory above */
    entry_vanished(w, x, rel, true);
    if (exists)
        watch_todo_add(w, rel, false);
}

static void look_at(void *arg, const struct watch_dir *dir)
{
    struct fs_watch *w = arg;
    _cleanup_buf_ struct buf rel = {0};

    if (watch_rel(dir->parent, dir->name, &rel, NULL) < 0)
        w->must_resync = true;
    else
        watch_todo_add(w, rel.data, true);
}

static void move_dir(struct fs_watch *w, const struct watch_event *from,
                     const struct watch_event *to, const char *from_rel, const char *to_rel)
{
    struct watch_dir *dir = watch_dirs_find(w->dirs, from->dir, from->ev->name);
    struct watch_dir *old = watch_dirs_find(w->dirs, to->dir, to->ev->name);
    bool is_ahead;

    /* A scan was ahead of the events, and has put one of them at its later place. */
    if (!dir || (old && old != dir && watch_dirs_is_within(from->dir, old))) {
        w->is_ahead = true;
        entry_vanished(w, from, from_rel, true);
        if (old && old != dir)
            watch_drop(w, old);
        entry_arrived(w, to, to_rel, true);
        return;
    }
    is_ahead = w->is_ahead || (old && old != dir && old->first_child); /* the kernel: it is empty */
    if (old && old != dir)
        watch_drop(w, old);
    if (watch_dirs_move(w->dirs, dir, to->dir, to->ev->name, NULL) < 0) {
        w->must_resync = true;
        return;
    }
    watch_tell(w, FS_WATCH_RENAMED, to_rel, from_rel, true, false);
    /* Look at directories that scans took from below it, and at those that moved before they were
     * scanned. */
    if (is_ahead)
        watch_todo_add(w, to_rel, true);
    watch_dirs_unwatched(w->dirs, dir, look_at, w);
}

static void move_file(struct fs_watch *w, const struct watch_event *from,
                      const struct watch_event *to, const char *from_rel, const char *to_rel)
{
    struct watch_dir *old = watch_dirs_find(w->dirs, to->dir, to->ev->name);

    if (watch_dirs_find(w->dirs, from->dir, from->ev->name)) {
        w->is_ahead = true;
        entry_arrived(w, to, to_rel, true); /* it has traded places with a directory */
        return;
    }
    if (old)
        watch_drop(w, old);
    watch_tell(w, FS_WATCH_RENAMED, to_rel, from_rel, from->is_dir, false);
}

/* A rename there and then back looks the same as two directories that trade places: look. */
static bool is_way_back(const struct fs_watch *w, const char *from_rel, const char *to_rel)
{
    return w->last_from && strcmp(w->last_from, to_rel) == 0 && strcmp(w->last_to, from_rel) == 0;
}

static void remember_rename(struct fs_watch *w, const char *from_rel, const char *to_rel,
                            bool is_dir)
{
    w->is_last_dir = is_dir;
    free(w->last_from);
    free(w->last_to);
    w->last_from = strdup(from_rel);
    w->last_to = strdup(to_rel);
    if (!w->last_from || !w->last_to)
        w->must_resync = true;
}

static void rename_seen(struct fs_watch *w, const struct watch_event *from,
                        const struct watch_event *to, const char *from_rel, const char *to_rel)
{
    bool is_back = is_way_back(w, from_rel, to_rel);
    bool is_dir;

    w->is_ahead |= is_back;
    if (!from->is_dir || !w->o.recursive) {
        move_file(w, from, to, from_rel, to_rel);
    } else if (is_back) {
        if (w->is_last_dir || watch_dirs_find(w->dirs, from->dir, from->ev->name))
            entry_vanished(w, from, from_rel, true);
        if (w->is_last_dir)
            entry_vanished(w, to, to_rel, true);
        entry_arrived(w, to, to_rel, true);
    } else {
        move_dir(w, from, to, from_rel, to_rel);
    }
    remember_rename(w, from_rel, to_rel, from->is_dir);
    /* They may have traded places, or it was made again. */
    if (watch_exists(w, from_rel, &is_dir))
        watch_todo_add(w, from_rel, false);
}

static void on_rename(struct fs_watch *w, const struct watch_event *from,
                      const struct watch_event *to, const char *from_rel, bool is_from_hidden)
{
    _cleanup_buf_ struct buf to_rel = {0};
    bool is_to_hidden;

    if (watch_rel(to->dir, to->ev->name, &to_rel, NULL) < 0) {
        w->must_resync = true;
        return;
    }
    is_to_hidden = watch_is_hidden(w, to_rel.data, to->ev->name, to->is_dir);
    if (!is_from_hidden && !is_to_hidden)
        rename_seen(w, from, to, from_rel, to_rel.data);
    else if (!is_from_hidden)
        entry_departed(w, from, from_rel);
    else if (!is_to_hidden)
        entry_arrived(w, to, to_rel.data, true);
}

/*
 * A file that has no name yet (O_TMPFILE) is "#" and its number to the kernel, which tells of its
 * attributes; a file that is really called so is there.
 */
static bool is_nameless(struct fs_watch *w, const char *rel, const char *name)
{
    bool is_dir;

    return name[0] == '#' && name[1] && !name[1 + strspn(name + 1, "0123456789")] &&
           !watch_exists(w, rel, &is_dir);
}

/* About the content or attributes of an entry. */
static void on_change(struct fs_watch *w, const struct watch_event *x, const char *rel)
{
    uint32_t mask = x->ev->mask;

    if (is_nameless(w, rel, x->ev->name))
        return;
    if (mask & IN_MODIFY)
        watch_tell(w, FS_WATCH_MODIFIED, rel, NULL, false, false);
    else if (mask & IN_CLOSE_WRITE)
        watch_tell(w, FS_WATCH_WRITTEN, rel, NULL, false, false);
    else if (mask & IN_ATTRIB)
        watch_tell(w, FS_WATCH_ATTRIBUTES, rel, NULL, x->is_dir, false);
}

/* About an entry of a directory. `to`: the other half of a rename, or NULL. */
static void on_entry(struct fs_watch *w, const struct watch_event *x, const struct watch_event *to)
{
    _cleanup_buf_ struct buf rel = {0};
    uint32_t mask = x->ev->mask;
    bool is_hidden;

    if (watch_rel(x->dir, x->ev->name, &rel, NULL) < 0) {
        w->must_resync = true;
        return;
    }
    is_hidden = watch_is_hidden(w, rel.data, x->ev->name, x->is_dir);
    if (to) {
        on_rename(w, x, to, rel.data, is_hidden);
        return;
    }
    if (is_hidden)
        return;
    if (mask & IN_MOVED_FROM)
        entry_departed(w, x, rel.data);
    else if (mask & (IN_CREATE | IN_MOVED_TO))
        entry_arrived(w, x, rel.data, mask & IN_MOVED_TO);
    else if (mask & IN_DELETE)
        entry_vanished(w, x, rel.data, false);
    else
        on_change(w, x, rel.data);
}

/* About a watched directory itself. */
static void on_self(struct fs_watch *w, const struct watch_event *x)
{
    bool is_root = !x->dir->parent;

    if (x->ev->mask & IN_UNMOUNT) {
        if (is_root)
            w->end = "unmounted";
        else
            w->must_resync = true; /* the entries that the mount covered are visible again */
    } else if (x->ev->mask & IN_IGNORED) {
        watch_dirs_set_wd(w->dirs, x->dir, -1);
        if (is_root && !w->end)
            w->end = "removed";
    } else if (is_root && x->ev->mask & IN_ATTRIB && !w->only) {
        check_root(w, "removed");
        watch_tell(w, FS_WATCH_ATTRIBUTES, "", NULL, true, false);
    }
}

static void on_event(struct fs_watch *w, struct watch_event *x, const struct watch_event *to)
{
    struct inotify_event *ev = x->ev;

    if (ev->mask & IN_Q_OVERFLOW)
        w->must_resync = true;
    else if (ev->wd == w->parent_wd && ev->len && strcmp(ev->name, w->root_name) == 0)
        check_root(w, ev->mask & IN_MOVED_FROM ? "moved" : "removed");
    if (w->must_resync || w->end || !x->dir)
        return;
    if (ev->len)
        on_entry(w, x, to);
    else
        on_self(w, x);
}

/* ---- the queue ------------------------------------------------------------------------------- */

/* The other half of a rename, if it was read yet. */
static bool find_partner(struct fs_watch *w, size_t from, struct watch_event *ret)
{
    const struct inotify_event *ev = watch_event_at(w, from).ev;
    uint32_t cookie = ev->cookie;

    for (size_t at = from + sizeof(*ev) + ev->len; at < w->raw_len; at += watch_event_size(ret)) {
        *ret = watch_event_at(w, at);
        if (ret->ev->mask & IN_MOVED_TO && ret->ev->cookie == cookie)
            return true;
    }
    return false;
}

/* Whether to go on waiting for the other half of the rename at the front. */
static bool must_wait(struct fs_watch *w, const struct inotify_event *ev)
{
    int64_t now_ms = clock_mono_ms();

    if (!w->pending_ms || w->pending_cookie != ev->cookie) {
        w->pending_cookie = ev->cookie;
        w->pending_ms = now_ms;
    }
    return now_ms - w->pending_ms < FS_WATCH_PAIR_MS && !watch_is_full(w);
}

/* Handles the events in raw; stops at a rename whose other half is awaited. */
static int handle_all(struct fs_watch *w, struct err *e)
{
    size_t at = 0;
    int r = 0;

    while (at < w->raw_len && r == 0 && !w->end && !w->must_resync) {
        struct watch_event x = watch_event_at(w, at), to;
        bool has_to = false;

        if (x.ev->mask & IN_MOVED_FROM && x.dir) {
            has_to = find_partner(w, at, &to);
            if (!has_to && must_wait(w, x.ev))
                break;
            has_to = has_to && to.dir;
        }
        w->pending_ms = 0;
        on_event(w, &x, has_to ? &to : NULL);
        if (has_to)
            to.ev->mask = 0;
        at += watch_event_size(&x);
        r = watch_todo_run(w, e);
    }
    memmove(w->raw, w->raw + at, w->raw_len - at);
    w->raw_len -= at;
    return r;
}

static int changes_drain(struct fs_watch *w, struct err *e)
{
    int r = 1;

    for (int i = 0; i < MAX_ROUNDS && r > 0 && !w->end && !w->must_resync; i++) {
        int filled = watch_read(w, e);

        r = filled < 0 ? filled : handle_all(w, e);
        if (!filled && !w->raw_len)
            w->is_ahead = false;
        if (r == 0)
            r = filled;
        if (w->o.sink.is_gone(w->o.sink.arg))
            return err_set(e, ERR_CANCELED, "the client has gone");
    }
    return r < 0 ? r : 0;
}

int watch_changes_run(struct fs_watch *w, enum fs_watch_state *ret, struct err *e)
{
    _fs_acting_ const struct fs_actor *acting = NULL;
    int r = fs_act(&w->caller->actor, &acting, e);

    if (r == 0)
        r = changes_drain(w, e);
    if (r == 0 && w->must_resync && !w->end)
        r = changes_resync(w, e);
    if (r < 0)
        return r;
    if (w->end)
        *ret = FS_WATCH_ENDED;
    else
        *ret = w->pending_ms ? FS_WATCH_PENDING : FS_WATCH_IDLE;
    return 0;
}
