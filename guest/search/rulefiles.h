#pragma once
/*
 * rulefiles: reads the ignore files of a directory, of the directories above a walk, and the user's own. A
 * file that exists but can't be read becomes a note, and the walk continues without it.
 */
#include "search/ignore.h"
#include "search/tree.h"

/* How they are read; all is borrowed. */
struct rule_source {
    const struct tree_access *access;
    struct notes *notes;
    bool vcs; /* git's own files count, too */
};

/* Marks the file if that is its name (IGNORE_FILE_EXCLUDE: ".git", which holds it), so that only files that
 * are there are opened. */
void rulefiles_see_name(const char *name, bool has[IGNORE_N_FILES]);

/* Puts the rules of the directory `fd` before *ig. dir: its absolute path, ends in '/'. has[]: the files that
 * it may have. */
int rulefiles_add_own(const struct rule_source *s, int fd, const char *dir,
                      const bool has[IGNORE_N_FILES], struct ignore **ig, struct err *e);
/* The rules of all directories above `whole`; with only_git just whether there is a repository. *ret NULL:
 * neither. */
int rulefiles_above(const struct rule_source *s, const char *whole, bool only_git,
                    struct ignore **ret, struct err *e);
/* core.excludesFile, or .config/git/ignore in home; *ret NULL: there is none. */
int rulefiles_global(const struct rule_source *s, const char *home, struct rules **ret,
                     struct err *e);
