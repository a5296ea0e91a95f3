#pragma once
/*
 * glob: finds paths whose name, or whose path below the root when the glob has a '/', matches a
 * glob; ignore and hidden rules as ever (fd's meaning: the glob selects among what is shown).
 */
#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"
#include "search/tree.h"

struct glob_options {
    struct tree_options tree;
    const char *pattern;                /* NULL: everything */
    bool files, dirs, symlinks, others; /* which types are found */
    uint64_t limit;                     /* results; 0: no limit */
};

struct glob_result {
    uint64_t n_files; /* found: files, symlinks and others */
    uint64_t n_dirs;
    bool limit_reached;
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
