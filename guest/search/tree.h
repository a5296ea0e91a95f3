#pragma once
/*
 * tree: walks a directory tree by ripgrep's rules: ignore files, hidden files, globs, types, depth,
 * size. Unless `follow` asks for it no symbolic link is followed, so that nothing outside the root
 * of the walk can be opened; links are followed by tree_access, which decides what may be reached.
 * Nothing but directories and ignore files is opened. A walk may use a second thread; struct
 * tree_visitor says what that means for the visitor. No recursion; memory is bounded by the names
 * in one directory times the depth.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "common/err.h"

#define TREE_MAX_WORKERS 2
#define NOTES_MAX 100 /* kept; more are only counted */

enum tree_type {
    TREE_FILE,
    TREE_DIR,
    TREE_SYMLINK,
    TREE_OTHER, /* FIFO, socket, device */
};

struct tree_options {
    const char *shown; /* the name of the walk's root in paths; "" for none */
    const char *whole; /* the root's absolute path, to find the ignore files above it */
    bool hidden;
    bool no_ignore;        /* no ignore files at all; the next two leave some of them out */
    bool no_ignore_vcs;    /* .gitignore, .git/info/exclude, the global excludes */
    bool no_ignore_parent; /* ignore files of directories above the root */
    bool follow;           /* symbolic links; one to a directory above itself becomes a note */
    bool one_file_system;  /* directories of other file systems are shown, but not entered */
    bool sort;             /* by path, one thread */
    const char *after;     /* with sort: only what comes behind this path below the root; or NULL */
    bool with_after;       /* and that path itself */
    uint32_t min_depth;    /* entries less deep are not shown */
    uint32_t max_depth;    /* the root's entries have depth 1; UINT32_MAX: no limit */
    uint64_t max_filesize; /* UINT64_MAX: no limit */
    char *const *globs;    /* may be NULL, as all the lists */
    char *const *iglobs;
    char *const *exclude;
    char *const *types;
    char *const *type_not;
    char *const *type_add;
    const char *home;   /* for the user's global excludes; NULL: none */
    unsigned n_workers; /* 1 or TREE_MAX_WORKERS */
};

struct tree_entry {
    const char *path; /* as shown: the root's name joined with what is below it */
    size_t path_len;
    const char *below; /* relative to the root */
    size_t below_len;
    const char *whole; /* absolute */
    const char *name;  /* relative to dirfd: one component, or more once collected */
    int dirfd;
    enum tree_type type; /* with via_link: of what the link points to */
    bool via_link;       /* by a symbolic link that was followed, itself or on the way to it */
    bool to_nowhere;     /* a symbolic link that was to be followed, and leads to nothing */
    uint32_t depth;
    int64_t key; /* the sort key if order_walk() collects; else 0 */
};

/*
 * How the walk reaches the disk, and on whose behalf. All functions may be called by both workers
 * at once.
 */
struct tree_access {
    /* A descriptor or -errno for an absolute path, links followed (ignore files above the root,
     * links that are followed). */
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
    /* For order_walk(): whether an entry is worth collecting; may be NULL. */
    bool (*wants)(void *arg, unsigned worker, const struct tree_entry *entry);
    bool (*is_gone)(void *arg); /* the walk ends with ERR_CANCELED; asked often; may be NULL */
    void *arg;
};

struct note {
    char *path;
    char *error;
};

/* The paths that a search could not read, and the reasons: a bounded list and an exact count.
 * Thread-safe. Embedded: notes_init()/notes_done(). */
struct notes {
    pthread_mutex_t lock;
    struct note list[NOTES_MAX]; /* guarded by lock */
    size_t n;                    /* guarded by lock: in the list */
    uint64_t total;              /* guarded by lock: ever added */
};

void notes_init(struct notes *n);
void notes_done(struct notes *n);
void notes_add(struct notes *n, const char *path, const char *error);
void notes_add_errno(struct notes *n, const char *path, int sys);

struct tree;

/* Checks the options: errors are -ERR_INVALID with the field. The options' strings are borrowed
 * until tree_free(). rootfd: a directory; borrowed too. */
int tree_new(int rootfd, const struct tree_options *o, const struct tree_access *access,
             struct notes *notes, struct tree **ret, struct err *e);
struct tree *tree_free(struct tree *t); /* accepts NULL; returns NULL */
int tree_walk(struct tree *t, const struct tree_visitor *v, struct err *e);

/* Opens an entry that is no directory, or -errno; flags as for open(2). */
int tree_entry_open(const struct tree_entry *entry, const struct tree_access *access, int flags);
/* 0 or -errno. */
int tree_entry_stat(const struct tree_entry *entry, const struct tree_access *access,
                    struct stat *ret);
