#pragma once
/*
 * gitlink: verifies a ".git" that leads to a repository elsewhere: a linked work tree (git
 * worktree add), or a submodule. Anybody can write such a file. It is believed only if the
 * repository names the work tree in turn; otherwise a hostile project could send any repository of
 * this machine.
 */
#include "common/err.h"

/*
 * dir: the work tree; own, common: its git directory and the one that has its objects, as git says;
 * worktree: core.worktree of `own`, or NULL. -ERR_PRECONDITION with field "git".
 */
int gitlink_check(const char *dir, const char *own, const char *common, const char *worktree,
                  struct err *e);

/* Every file of a git directory that a clone reads lies within it: no references or objects
 * behind a symbolic link. -ERR_PRECONDITION with field "git". */
int gitlink_check_inside(const char *git_dir, struct err *e);
