#pragma once
/*
 * glob: finds paths as fd does: a pattern and filters select among the entries that a walk shows. The rules for
 * ignored and hidden files are those of every walk.
 */
#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"
#include "search/match.h"
#include "search/order.h"
#include "search/tree.h"

enum glob_kind {
    GLOB_GLOB,  /* of the name, or of the path below the root if it has a '/' */
    GLOB_REGEX, /* PCRE2, found anywhere in the name */
    GLOB_FIXED, /* a text, found anywhere in the name */
};

/* As fd --type: the first four select types, the last two narrow them. */
enum glob_type {
    GLOB_FILE = 1 << TREE_FILE,
    GLOB_DIR = 1 << TREE_DIR,
    GLOB_SYMLINK = 1 << TREE_SYMLINK,
    GLOB_OTHER = 1 << TREE_OTHER,
    GLOB_EXECUTABLE = 1 << (TREE_OTHER + 1), /* has an x bit; alone: of files */
    GLOB_EMPTY =
        1 << (TREE_OTHER + 2), /* no bytes or no entries; alone: of files and directories */
};

struct glob_options {
    struct tree_options tree;
    struct order order;
    const char *pattern; /* NULL: everything */
    enum glob_kind kind;
    enum match_case letters;
    bool full_path;              /* the pattern is matched with the whole absolute path */
    unsigned types;              /* of enum glob_type; 0: all */
    char *const *extensions;     /* one of these, in any case; NULL or none: any name */
    uint64_t min_size, max_size; /* of files; others have no size: a bound excludes them */
    /* Of the last modification, since 1970; 0: no bound. Within: the last so many milliseconds. */
    int64_t changed_after_ms, changed_before_ms, changed_within_ms;
    uint64_t limit; /* results; 0: no limit */
};

struct glob_result {
    uint64_t n_files; /* found: files, symlinks and others */
    uint64_t n_dirs;
    bool limit_reached;
    struct order_place last; /* with limit_reached and an order: continue after it; owned, free() */
};

struct glob_sink {
    int (*found)(void *arg, const struct tree_entry *entry, struct err *e); /* never two at once */
    bool (*is_gone)(void *arg);
    void *arg;
};

/* Errors of the pattern have field "pattern". The result is set also on failure. */
int glob_run(int rootfd, const struct glob_options *o, const struct tree_access *access,
             const struct glob_sink *sink, struct notes *notes, struct glob_result *ret,
             struct err *e);
