#include "fs/watch.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>

#include "common/cleanup.h"
#include "fs/watch_own.h"

#define EVENT_MAX_BYTES (sizeof(struct inotify_event) + NAME_MAX + 1)
#define REL_MAX_BYTES (64 * 1024 + 256)
#define FIRST_SLOTS 64
#define PATH_LEVELS 1024 /* more than a watch goes down */

/* ---- the table of directories ----------------------------------------------------------------- */

struct watch_dirs {
    struct watch_dir *root;
    struct watch_dir **of_wd, **of_place; /* n_slots chains each */
    size_t n_slots;                       /* a power of two */
    size_t n, max, n_unwatched;
};

static size_t slot_of_wd(const struct watch_dirs *d, int wd)
{
    return ((uint32_t)wd * 2654435761u) & (d->n_slots - 1);
}

static size_t slot_of_place(const struct watch_dirs *d, const struct watch_dir *parent,
                            const char *name)
{
    uint64_t h = 14695981039346656037u ^ (uint64_t)(uintptr_t)parent;

    for (; *name; name++)
        h = (h ^ (unsigned char)*name) * 1099511628211u;
    return (size_t)(h ^ (h >> 29)) & (d->n_slots - 1);
}

int watch_dirs_new(size_t max, struct watch_dirs **ret, struct err *e)
{
    struct watch_dirs *d = calloc(1, sizeof(*d));

    if (!d)
        return err_oom(e);
    d->max = max;
    d->n_slots = FIRST_SLOTS;
    d->of_wd = calloc(d->n_slots, sizeof(struct watch_dir *));
    d->of_place = calloc(d->n_slots, sizeof(struct watch_dir *));
    if (!d->of_wd || !d->of_place) {
        watch_dirs_free(d);
        return err_oom(e);
    }
    *ret = d;
    return 0;
}

struct watch_dirs *watch_dirs_free(struct watch_dirs *d)
{
    if (!d)
        return NULL;
    if (d->root)
        watch_dirs_drop(d, d->root, NULL, NULL);
    free(d->of_wd);
    free(d->of_place);
    free(d);
    return NULL;
}

size_t watch_dirs_count(const struct watch_dirs *d)
{
    return d->n;
}

struct watch_dir *watch_dirs_by_wd(struct watch_dirs *d, int wd)
{
    struct watch_dir *dir = d->of_wd[slot_of_wd(d, wd)];

    while (dir && dir->wd != wd)
        dir = dir->next_of_wd;
    return dir;
}

struct watch_dir *watch_dirs_find(struct watch_dirs *d, const struct watch_dir *parent,
                                  const char *name)
{
    struct watch_dir *dir = d->of_place[slot_of_place(d, parent, name)];

    while (dir && (dir->parent != parent || strcmp(dir->name, name) != 0))
        dir = dir->next_of_place;
    return dir;
}

struct watch_dir *watch_dirs_lookup(struct watch_dirs *d, const char *rel)
{
    _cleanup_free_ char *copy = strdup(rel);
    struct watch_dir *dir = d->root;
    char *rest = copy, *name;

    if (!copy)
        return NULL;
    while (dir && rest && *rest && (name = strsep(&rest, "/")))
        dir = watch_dirs_find(d, dir, name);
    return dir;
}

/* ---- the chains ------------------------------------------------------------------------------ */

static void put_wd(struct watch_dirs *d, struct watch_dir *dir)
{
    struct watch_dir **head = &d->of_wd[slot_of_wd(d, dir->wd)];

    dir->next_of_wd = *head;
    *head = dir;
}

static void take_wd(struct watch_dirs *d, struct watch_dir *dir)
{
    struct watch_dir **at = &d->of_wd[slot_of_wd(d, dir->wd)];

    while (*at != dir)
        at = &(*at)->next_of_wd;
    *at = dir->next_of_wd;
}

static void put_place(struct watch_dirs *d, struct watch_dir *dir)
{
    struct watch_dir **head = &d->of_place[slot_of_place(d, dir->parent, dir->name)];
    struct watch_dir *parent = dir->parent;

    dir->next_of_place = *head;
    *head = dir;
    if (!parent)
        return;
    dir->prev = NULL;
    dir->next = parent->first_child;
    if (dir->next)
        dir->next->prev = dir;
    parent->first_child = dir;
}

static void take_place(struct watch_dirs *d, struct watch_dir *dir)
{
    struct watch_dir **at = &d->of_place[slot_of_place(d, dir->parent, dir->name)];

    while (*at != dir)
        at = &(*at)->next_of_place;
    *at = dir->next_of_place;
    if (!dir->parent)
        return;
    if (dir->next)
        dir->next->prev = dir->prev;
    if (dir->prev)
        dir->prev->next = dir->next;
    else
        dir->parent->first_child = dir->next;
}

static int dirs_grow(struct watch_dirs *d, struct err *e)
{
    struct watch_dirs bigger = *d;

    if (d->n < d->n_slots)
        return 0;
    bigger.n_slots = d->n_slots * 2;
    bigger.of_wd = calloc(bigger.n_slots, sizeof(struct watch_dir *));
    bigger.of_place = calloc(bigger.n_slots, sizeof(struct watch_dir *));
    if (!bigger.of_wd || !bigger.of_place) {
        free(bigger.of_wd);
        free(bigger.of_place);
        return err_oom(e);
    }
    for (size_t i = 0; i < d->n_slots; i++) {
        for (struct watch_dir *dir = d->of_place[i], *next; dir; dir = next) {
            size_t slot = slot_of_place(&bigger, dir->parent, dir->name);

            next = dir->next_of_place;
            dir->next_of_place = bigger.of_place[slot];
            bigger.of_place[slot] = dir;
            if (dir->wd >= 0)
                put_wd(&bigger, dir);
        }
    }
    free(d->of_wd);
    free(d->of_place);
    *d = bigger;
    return 0;
}

/* ---- changes --------------------------------------------------------------------------------- */

int watch_dirs_add(struct watch_dirs *d, struct watch_dir *parent, const char *name,
                   struct watch_dir **ret, struct err *e)
{
    struct watch_dir *dir;
    int r;

    if (d->n >= d->max)
        return err_set(e, ERR_EXHAUSTED, "a watch has at most %zu directories", d->max);
    r = dirs_grow(d, e);
    if (r < 0)
        return r;
    dir = calloc(1, sizeof(*dir));
    if (!dir || !(dir->name = strdup(name))) {
        free(dir);
        return err_oom(e);
    }
    dir->wd = -1;
    dir->parent = parent;
    put_place(d, dir);
    if (!parent)
        d->root = dir;
    d->n++;
    d->n_unwatched++;
    *ret = dir;
    return 0;
}

void watch_dirs_set_wd(struct watch_dirs *d, struct watch_dir *dir, int wd)
{
    if (dir->wd >= 0)
        take_wd(d, dir);
    d->n_unwatched += (size_t)(wd < 0) - (size_t)(dir->wd < 0);
    dir->wd = wd;
    if (wd >= 0)
        put_wd(d, dir);
}

bool watch_dirs_is_within(const struct watch_dir *dir, const struct watch_dir *above)
{
    while (dir && dir != above)
        dir = dir->parent;
    return dir;
}

int watch_dirs_move(struct watch_dirs *d, struct watch_dir *dir, struct watch_dir *parent,
                    const char *name, struct err *e)
{
    char *copy;

    if (watch_dirs_is_within(parent, dir))
        return err_set(e, ERR_INVALID, "a directory can't be below itself");
    copy = strdup(name);
    if (!copy)
        return err_oom(e);
    take_place(d, dir);
    free(dir->name);
    dir->name = copy;
    dir->parent = parent;
    put_place(d, dir);
    return 0;
}

/* Without recursion: down to a directory that has none below, drop it, go on from its parent. */
void watch_dirs_drop(struct watch_dirs *d, struct watch_dir *dir, void (*gone)(void *arg, int wd),
                     void *arg)
{
    struct watch_dir *at = dir;

    for (;;) {
        struct watch_dir *up = at->parent;
        bool is_last = at == dir;

        if (at->first_child) {
            at = at->first_child;
            continue;
        }
        if (at->wd >= 0) {
            take_wd(d, at);
            if (gone)
                gone(arg, at->wd);
        } else {
            d->n_unwatched--;
        }
        take_place(d, at);
        if (at == d->root)
            d->root = NULL;
        free(at->name);
        free(at);
        d->n--;
        if (is_last)
            return;
        at = up;
    }
}

void watch_dirs_unwatched(const struct watch_dirs *d, const struct watch_dir *dir,
                          void (*fn)(void *arg, const struct watch_dir *dir), void *arg)
{
    const struct watch_dir *at = dir;

    if (!d->n_unwatched)
        return;
    for (;;) {
        if (at->wd < 0)
            fn(arg, at);
        if (at->first_child) {
            at = at->first_child;
            continue;
        }
        while (at != dir && !at->next)
            at = at->parent;
        if (at == dir)
            return;
        at = at->next;
    }
}

int watch_dirs_path(const struct watch_dir *dir, struct buf *out, struct err *e)
{
    const struct watch_dir *way[PATH_LEVELS];
    size_t n = 0;
    int r = buf_adds(out, "", e);

    for (; dir->parent; dir = dir->parent) {
        if (n == PATH_LEVELS)
            return err_set(e, ERR_EXHAUSTED, "deeper than %d directories", PATH_LEVELS);
        way[n++] = dir;
    }
    for (size_t i = n; r == 0 && i > 0; i--) {
        if (i < n)
            r = buf_adds(out, "/", e);
        if (r == 0)
            r = buf_adds(out, way[i - 1]->name, e);
    }
    return r;
}

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
