#include "lib/project/gitlink.h"

#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/path.h"
#include "common/str.h"
#include "lib/util/beneath.h"

#define POINTER_MAX_BYTES (2 * PATH_MAX)

/* Is `path`, seen from `from`, the directory `dir`? */
static bool is_dir(const char *path, const char *from, const char *dir)
{
    _cleanup_free_ char *joined = path_join(from, path);
    _cleanup_free_ char *real = joined ? realpath(joined, NULL) : NULL;

    return real && str_eq(real, dir);
}

/* Does its file "gitdir" hold the path of the work tree's ".git"? */
static bool names_work_tree(const char *own, const char *dir)
{
    _cleanup_close_ int fd = open(own, O_PATH | O_DIRECTORY | O_CLOEXEC);
    _cleanup_free_ char *text = NULL;
    _cleanup_free_ char *parent = NULL;

    if (fd < 0 || beneath_read_file(fd, "gitdir", POINTER_MAX_BYTES, &text, NULL, NULL) < 0)
        return false;
    text[strcspn(text, "\r\n")] = '\0';
    parent = path_dir(text);
    return parent && str_eq(path_name(text), ".git") && is_dir(parent, own, dir);
}

/* git uses <common>/worktrees/<name>; making it takes write access to common. */
static bool is_worktree_of(const char *own, const char *common)
{
    _cleanup_free_ char *worktrees = path_dir(own);
    _cleanup_free_ char *above = worktrees ? path_dir(worktrees) : NULL;

    return above && str_eq(path_name(worktrees), "worktrees") && str_eq(above, common);
}

int gitlink_check(const char *dir, const char *own, const char *common, const char *worktree,
                  struct err *e)
{
    _cleanup_free_ char *real_own = realpath(own, NULL);
    _cleanup_free_ char *real_common = realpath(common, NULL);
    bool is_mutual = false;

    if (!real_own || !real_common)
        return err_sys(e, errno, "the repository '%.200s'", own);
    if (!str_eq(real_own, real_common))
        is_mutual = is_worktree_of(real_own, real_common) && names_work_tree(real_own, dir);
    else if (worktree)
        is_mutual = is_dir(worktree, real_own, dir);
    if (is_mutual)
        return 0;
    return err_field(e, ERR_PRECONDITION, "git",
                     "'%.120s/.git' leads to the repository '%.120s', which does not name that "
                     "directory in turn: use --git none, or make it do so ('git worktree repair', "
                     "or core.worktree)",
                     dir, real_common);
}

/* Other files, such as hooks, may be links. */
static bool is_read_by_clone(const char *rel)
{
    static const char *const read[] = {"HEAD",        "config",  "config.worktree",
                                       "packed-refs", "refs",    "reftable",
                                       "objects",     "shallow", "commondir"};

    for (size_t i = 0; i < N_ELEMENTS(read); i++) {
        size_t n = strlen(read[i]);

        if (strncmp(rel, read[i], n) == 0 && (rel[n] == '\0' || rel[n] == '/'))
            return true;
    }
    return false;
}

int gitlink_check_inside(const char *git_dir, struct err *e)
{
    char *const roots[] = {(char *)(uintptr_t)git_dir, NULL};
    FTS *fts = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
    FTSENT *ent;
    int r = 0;

    if (!fts)
        return err_sys(e, errno, "read '%s'", git_dir);
    while (r == 0 && (ent = fts_read(fts))) {
        const char *rel = ent->fts_path + strlen(git_dir);

        rel += strspn(rel, "/");
        if (!*rel || ent->fts_info == FTS_DP)
            continue;
        if (!is_read_by_clone(rel))
            (void)fts_set(fts, ent, FTS_SKIP);
        else if (ent->fts_info == FTS_SL || ent->fts_info == FTS_SLNONE)
            r = err_field(e, ERR_PRECONDITION, "git",
                          "'%.300s' is a symbolic link: use --git full or none", ent->fts_path);
    }
    (void)fts_close(fts);
    return r;
}
