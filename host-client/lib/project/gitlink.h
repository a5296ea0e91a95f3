#pragma once
/*
 * gitlink: a ".git" that is no directory of its own leads to a repository elsewhere: that of a linked
 * work tree (git worktree add), or of a submodule. Anybody can write such a file, so what it leads to
 * is believed only when it names the work tree in turn; else a project that somebody else has made
 * could have any repository of this machine sent.
 */
#include "common/err.h"

/*
 * dir: the work tree; own, common: its git directory and the one that has its objects, as git says;
 * worktree: core.worktree of `own`, or NULL. -ERR_PRECONDITION with field "git".
 */
int gitlink_check(const char *dir, const char *own, const char *common, const char *worktree,
                  struct err *e);

/* What a clone reads of a git directory is in it: no references or objects behind a symbolic link.
 * -ERR_PRECONDITION with field "git". */
int gitlink_check_inside(const char *git_dir, struct err *e);
