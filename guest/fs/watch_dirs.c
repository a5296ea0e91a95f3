#include "fs/watch_dirs.h"

#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"

#define FIRST_SLOTS 64
#define PATH_LEVELS 1024 /* more than a watch goes down */

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
