#pragma once
/*
 * rulefiles: reads the ignore files of a directory, of the directories above a walk, and the
 * user's own. A file that is there and can't be read becomes a note; the walk goes on without it.
 */
#include "search/ignore.h"
#include "search/listing.h"
#include "search/notes.h"
#include "search/tree.h"

/* Puts what the directory `fd`, just read into l, has before l->ignore. skip: where, in a whole
 * path, what is relative to it begins. */
int rulefiles_add_own(struct listing *l, int fd, const struct tree_access *access,
                      struct notes *notes, struct err *e);
/* The rules of all directories above `whole`; *ret is NULL when there are none. */
int rulefiles_above(const char *whole, const struct tree_access *access, struct notes *notes,
                    struct ignore **ret, struct err *e);
/* core.excludesFile, or .config/git/ignore in home; *ret is NULL when there is none. */
int rulefiles_global(const char *home, const struct tree_access *access, struct notes *notes,
                     struct rules **ret, struct err *e);
