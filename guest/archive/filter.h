#pragma once
/*
 * filter: entries of a tree to skip: those that exclude globs match and, if asked, those that
 * ignore files hide (ripgrep's rules: .gitignore counts in a git repository, .ignore and .rgignore
 * anywhere, files above the tree's start count too). Names with a dot are not hidden by it. Follows
 * a fs_walk step by step. One thread; the identity must have been taken.
 */
#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"
#include "fs/root.h"
#include "fs/walk.h"
#include "search/tree.h"

struct filter_options {
    /* fnmatch globs: one with a slash is for the whole path below the tree's start, one without
     * for any name. A match is skipped, a directory with everything below. NULL: none. */
    char *const *excludes;
    bool ignore;
    bool no_require_git; /* .gitignore counts although there is no repository */
};

struct filter;

/* start_fd: the tree's start, opened as `path`; not kept. The globs are copied. */
int filter_new(struct fs_caller *c, const char *path, int start_fd, const struct filter_options *o,
               struct filter **ret, struct err *e);
struct filter *filter_free(struct filter *f); /* accepts NULL; returns NULL */

/* For each FS_WALK_ENTRY, in the walk's order. *ret_hidden: skip it, and do not enter it. */
int filter_see(struct filter *f, const struct fs_walk_item *it, bool *ret_hidden, struct err *e);

/* The ignore files that could not be read so far: their rules were not applied. */
const struct notes *filter_notes(const struct filter *f);
