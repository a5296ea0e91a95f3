#include "fs/watch.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>

#include "fs/watch_own.h"

#define EVENT_MAX_BYTES (sizeof(struct inotify_event) + NAME_MAX + 1)
#define REL_MAX_BYTES (64 * 1024 + 256)

/* ---- the kernel's events --------------------------------------------------------------------- */

int watch_open(struct fs_watch *w, uint32_t feed_flags, size_t raw_size, struct err *e)
{
    int r = fs_feed_new(fs_root_feeds(w->caller->root), feed_flags, &w->feed, e);

    if (r == 0)
        r = watch_dirs_new(w->o.max_dirs ? w->o.max_dirs : FS_WATCH_MAX_DIRS, &w->dirs, e);
    if (r == 0 && !w->raw) {
        w->raw = malloc(raw_size);
        w->raw_size = raw_size;
        r = w->raw ? 0 : err_oom(e);
    }
    return r;
}

bool watch_is_full(const struct fs_watch *w)
{
    return w->raw_size - w->raw_len < EVENT_MAX_BYTES;
}

int watch_read(struct fs_watch *w, struct err *e)
{
    ssize_t n;

    if (watch_is_full(w))
        return 0;
    n = fs_feed_read(w->feed, w->raw + w->raw_len, w->raw_size - w->raw_len);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (n < 0)
        return err_sys(e, errno, "read what happened to '%s'", w->shown);
    w->raw_len += (size_t)n;
    return n > 0;
}

struct watch_event watch_event_at(const struct fs_watch *w, size_t at)
{
    struct inotify_event *ev = (struct inotify_event *)(void *)(w->raw + at);

    return (struct watch_event){
        .ev = ev,
        .dir = ev->wd < 0 ? NULL : watch_dirs_by_wd(w->dirs, ev->wd),
        .is_dir = ev->mask & IN_ISDIR,
    };
}

/* ---- the directories in view ----------------------------------------------------------------- */

int watch_rel(const struct watch_dir *dir, const char *name, struct buf *out, struct err *e)
{
    int r;

    buf_clear(out);
    out->max = REL_MAX_BYTES;
    r = watch_dirs_path(dir, out, e);
    if (r == 0 && *name && out->len)
        r = buf_adds(out, "/", e);
    return r < 0 ? r : buf_adds(out, name, e);
}

static void watch_forget_wd(void *arg, int wd)
{
    const struct fs_watch *w = arg;

    fs_feed_rm(w->feed, wd);
}

void watch_drop(struct fs_watch *w, struct watch_dir *dir)
{
    if (w->moved && watch_dirs_is_within(w->moved, dir))
        w->moved = NULL;
    watch_dirs_drop(w->dirs, dir, watch_forget_wd, w);
}

/* ---- the watch ------------------------------------------------------------------------------- */

int fs_watch_new(struct fs_caller *c, const char *path, const struct fs_watch_options *o,
                 struct fs_watch **ret, struct err *e)
{
    struct fs_watch *w = calloc(1, sizeof(*w));
    int r;

    if (!w)
        return err_oom(e);
    w->parent_wd = -1;
    w->caller = fs_caller_ref(c);
    w->o = *o;
    w->shown = strdup(path);
    if (!w->shown)
        r = err_oom(e);
    else
        r = o->raw ? watch_raw_start(w, e) : watch_changes_start(w, e);
    if (r < 0) {
        fs_watch_free(w);
        return r;
    }
    *ret = w;
    return 0;
}

struct fs_watch *fs_watch_free(struct fs_watch *w)
{
    if (!w)
        return NULL;
    fs_feed_free(w->feed); /* the kernel's watches go with it */
    watch_dirs_free(w->dirs);
    watch_raw_done(w);
    watch_changes_done(w);
    free(w->raw);
    free(w->shown);
    fs_caller_unref(w->caller);
    free(w);
    return NULL;
}

int fs_watch_fd(const struct fs_watch *w)
{
    return w->feed ? fs_feed_fd(w->feed) : -1;
}

size_t fs_watch_dirs(const struct fs_watch *w)
{
    return w->dirs ? watch_dirs_count(w->dirs) : 0;
}

int fs_watch_run(struct fs_watch *w, enum fs_watch_state *ret, struct err *e)
{
    int r;

    if (!w->o.raw)
        return watch_changes_run(w, ret, e);
    r = watch_raw_run(w, e);
    if (r == 0)
        *ret = FS_WATCH_IDLE;
    return r;
}

const char *fs_watch_end(const struct fs_watch *w)
{
    return w->end;
}
