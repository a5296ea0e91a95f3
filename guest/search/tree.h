#pragma once
/*
 * tree: walks a directory tree by ripgrep's rules: ignore files, hidden files, globs, types,
 * depth, size. Symbolic links are never followed, below the root of the walk nothing outside it
 * can be opened, and nothing but directories and ignore files is. A walk may use a second thread;
 * what the visitor must know about that is said there. No recursion; memory is bounded by the
 * names in one directory times the depth.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"
#include "search/notes.h"

#define TREE_MAX_WORKERS 2
#define TREE_DIR_MAX_BYTES (256u * 1024 * 1024) /* names of one directory */

enum tree_type {
    TREE_FILE,
    TREE_DIR,
    TREE_SYMLINK,
    TREE_OTHER, /* FIFO, socket, device */
};

struct tree_options {
    const char *shown; /* what the walk's root is called in paths; "" for none */
    const char *whole; /* the root's absolute path, to find the ignore files above it */
    bool hidden;
    bool no_ignore;
    bool sort;             /* by path, one thread */
    uint32_t max_depth;    /* the root's entries have depth 1; UINT32_MAX: no limit */
    uint64_t max_filesize; /* UINT64_MAX: no limit */
    char *const *globs;    /* may be NULL, as the next two */
    char *const *types;
    char *const *type_not;
    const char *home;        /* for the user's global excludes; NULL: none */
    const char *skip_prefix; /* names that begin so do not exist; NULL: none */
    unsigned n_workers;      /* 1 or TREE_MAX_WORKERS */
};

struct tree_entry {
    const char *path; /* as shown: the root's name joined with what is below it */
    size_t path_len;
    const char *below; /* relative to the root */
    size_t below_len;
    const char *name; /* relative to dirfd */
    int dirfd;
    enum tree_type type;
    uint32_t depth;
};

/*
 * How the walk reaches the disk, and on whose behalf. All functions may be called by both workers
 * at once.
 */
struct tree_access {
    /* A descriptor or -errno for an absolute path, links followed (ignore files above the root). */
    int (*open)(void *arg, const char *path, int flags);
    /* On a worker thread of the walk's own, around all it does; may be NULL. */
    int (*enter)(void *arg, struct err *e);
    void (*leave)(void *arg);
    void *arg;
};

struct tree_visitor {
    /* For every file, and for directories and the rest too. `worker`: 0 or 1; calls with the same
     * number are never made at once. A negative result ends the walk with that error. */
    int (*visit)(void *arg, unsigned worker, const struct tree_entry *entry, struct err *e);
    bool (*is_gone)(void *arg); /* the walk ends with ERR_CANCELED; asked often; may be NULL */
    void *arg;
};

struct tree;

/* Checks the options: errors are -ERR_INVALID with the field. The options' strings are borrowed
 * until tree_free(). rootfd: a directory; borrowed too. */
int tree_new(int rootfd, const struct tree_options *o, const struct tree_access *access,
             struct notes *notes, struct tree **ret, struct err *e);
struct tree *tree_free(struct tree *t); /* accepts NULL; returns NULL */
int tree_walk(struct tree *t, const struct tree_visitor *v, struct err *e);
