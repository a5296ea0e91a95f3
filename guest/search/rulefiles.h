#pragma once
/*
 * rulefiles: reads the ignore files of a directory, of the directories above a walk, and the
 * user's own. A file that is there and can't be read becomes a note; the walk goes on without it.
 */
#include "search/ignore.h"
#include "search/listing.h"
#include "search/notes.h"
#include "search/tree.h"

/* Puts what the directory `fd`, just read into l, has before l->ignore. vcs: git's own files count
 * too. */
int rulefiles_add_own(struct listing *l, int fd, bool vcs, const struct tree_access *access,
                      struct notes *notes, struct err *e);
/* The rules of all directories above `whole`, or only that there is a repository; *ret is NULL when
 * there is nothing to say. */
int rulefiles_above(const char *whole, bool only_git, bool vcs, const struct tree_access *access,
                    struct notes *notes, struct ignore **ret, struct err *e);
/* core.excludesFile, or .config/git/ignore in home; *ret is NULL when there is none. */
int rulefiles_global(const char *home, const struct tree_access *access, struct notes *notes,
                     struct rules **ret, struct err *e);
