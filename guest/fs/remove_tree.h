#pragma once
/* remove_tree: removes a whole tree. The identity must have been taken. */
#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"

#define FS_TREE_MAX_DEPTH 1000 /* a descriptor each */

/*
 * Removes dirfd's entry `name`, a directory with all below or anything else. Links are removed, not
 * followed; another mount below is an error (-ERR_PRECONDITION) and is not entered. force: a
 * directory of the caller's that it can't write is made writable first. *removed (may be NULL) is
 * counted up.
 */
int fs_remove_tree(int dirfd, const char *name, bool force, uint64_t *removed, struct err *e);
