#pragma once
/*
 * glob: finds paths as fd does: a pattern and filters select among what the walk shows. Ignore and
 * hidden rules as ever.
 */
#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"
#include "search/match.h"
#include "search/order.h"
#include "search/tree.h"

enum glob_kind {
    GLOB_GLOB,  /* of the name, or of the path below the root when it has a '/' */
    GLOB_REGEX, /* PCRE2, found anywhere in the name */
    GLOB_FIXED, /* a text, found anywhere in the name */
};

struct glob_options {
    struct tree_options tree;
    struct order order;
    const char *pattern; /* NULL: everything */
    enum glob_kind kind;
    enum match_case letters;
    bool full_path;                     /* the pattern is for the whole absolute path */
    bool files, dirs, symlinks, others; /* which types are found */
    bool executable;                    /* only what has an x bit */
    bool empty;                         /* only files of no bytes, and directories of no entries */
    char *const *extensions;            /* one of these, in any case; NULL: whatever */
    uint64_t min_size, max_size;        /* of files; others have none and are not found */
    bool has_size;
    int64_t changed_after_ns, changed_before_ns; /* of the last modification; 0: no bound */
    uint64_t limit;                              /* results; 0: no limit */
};

struct glob_result {
    uint64_t n_files; /* found: files, symlinks and others */
    uint64_t n_dirs;
    bool limit_reached;
    struct order_place last; /* with limit_reached and an order: go on after it; owned, free() */
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
