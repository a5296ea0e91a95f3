#pragma once
/*
 * watch_dirs: the directories that a watch has in view, found by the kernel's watch descriptor (wd)
 * and by place (parent and name). A directory that moves keeps everything below it. For the
 * watch_*.c files. One thread at a time.
 */
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "common/buf.h"
#include "common/err.h"

struct watch_dir {
    int wd;                   /* -1: known, but not watched */
    struct watch_dir *parent; /* NULL: the root */
    char *name;               /* "" for the root */
    dev_t dev;                /* the owner's: the directory that the wd is for */
    ino_t ino;
    /* for watch_dirs.c: */
    struct watch_dir *first_child, *next, *prev; /* among the parent's children */
    struct watch_dir *next_of_wd, *next_of_place;
};

struct watch_dirs;

int watch_dirs_new(size_t max, struct watch_dirs **ret, struct err *e);
struct watch_dirs *watch_dirs_free(struct watch_dirs *d); /* accepts NULL; returns NULL */
size_t watch_dirs_count(const struct watch_dirs *d);

struct watch_dir *watch_dirs_by_wd(struct watch_dirs *d, int wd);
struct watch_dir *watch_dirs_find(struct watch_dirs *d, const struct watch_dir *parent,
                                  const char *name);
/* rel: "" or "a/b", from the root. */
struct watch_dir *watch_dirs_lookup(struct watch_dirs *d, const char *rel);

/* Below it, or itself. */
bool watch_dirs_is_within(const struct watch_dir *dir, const struct watch_dir *above);

/* The place must be free; wd is -1. -ERR_EXHAUSTED past the maximum. */
int watch_dirs_add(struct watch_dirs *d, struct watch_dir *parent, const char *name,
                   struct watch_dir **ret, struct err *e);
void watch_dirs_set_wd(struct watch_dirs *d, struct watch_dir *dir, int wd);
/* The place must be free. -ERR_INVALID when it is below dir. */
int watch_dirs_move(struct watch_dirs *d, struct watch_dir *dir, struct watch_dir *parent,
                    const char *name, struct err *e);
/* With all below; `gone` (may be NULL) is called for each that has a wd. */
void watch_dirs_drop(struct watch_dirs *d, struct watch_dir *dir, void (*gone)(void *arg, int wd),
                     void *arg);

/* Calls fn for each directory without a wd among dir and all below. fn must not change the
 * table. */
void watch_dirs_unwatched(const struct watch_dirs *d, const struct watch_dir *dir,
                          void (*fn)(void *arg, const struct watch_dir *dir), void *arg);

/* Appends the path from the root, without a slash at either end. */
int watch_dirs_path(const struct watch_dir *dir, struct buf *out, struct err *e);
