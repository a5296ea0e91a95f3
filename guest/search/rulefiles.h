#pragma once
/*
 * rulefiles: reads the ignore files of a directory, of the directories above a walk, and the user's own. A
 * file that exists but can't be read becomes a note, and the walk continues without it.
 */
#include "search/ignore.h"
#include "search/listing.h"
#include "search/notes.h"
#include "search/tree.h"

/* Puts the rules of the directory `fd`, which was just read into l, before l->ignore. vcs: including git's own
 * files. */
int rulefiles_add_own(struct listing *l, int fd, bool vcs, const struct tree_access *access,
                      struct notes *notes, struct err *e);
/* The rules of all directories above `whole`; with only_git just whether there is a repository. *ret NULL:
 * neither. */
int rulefiles_above(const char *whole, bool only_git, bool vcs, const struct tree_access *access,
                    struct notes *notes, struct ignore **ret, struct err *e);
/* core.excludesFile, or .config/git/ignore in home; *ret NULL: there is none. */
int rulefiles_global(const char *home, const struct tree_access *access, struct notes *notes,
                     struct rules **ret, struct err *e);
