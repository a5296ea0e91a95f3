#include "lib/project/gitfiles_listing.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/path.h"
#include "common/str.h"
#include "lib/util/beneath.h"

#define IGNORE_FILE ".bellhopignore"

/* ---- repositories ---- */

/* "sub": a repository within the repository, a submodule or not. */
static int add_nested(struct listing *l, const char *name, bool is_tracked, unsigned depth,
                      struct err *e)
{
    _cleanup_free_ char *host = path_join(l->o->source, name);
    _cleanup_free_ char *git = path_join(name, ".git");
    struct listing_tree t = {.host = host, .prefix = name, .kind = WALK_PROJECT};
    struct stat st;

    if (!host || !git)
        return err_oom(e);
    /* No .git: a submodule that is not checked out, or a directory in the place of a file; git
     * lists its files. */
    if (beneath_stat(l->out->roots[0], git, &st) < 0)
        return is_tracked ? listing_add_own(l, name, e) : listing_walk(l, &t, e);
    if (depth + 1 >= GITFILES_MAX_DEPTH)
        return err_field(e, ERR_INVALID, "project", "'%s': repositories are nested too deeply",
                         name);
    return listing_add_repository(l, host, name, depth + 1, e);
}

/* git never writes such a name into an index, but it believes an index that has one. */
static int check_listed(const char *rel, bool is_tracked, struct err *e)
{
    if (*rel && beneath_is_inside(rel) && !(is_tracked && beneath_names_git(rel)))
        return 0;
    return err_field(e, ERR_PRECONDITION, "project",
                     "the repository has the name '%.200s', which is no file's of a project", rel);
}

static int add_listed(struct listing *l, const char *prefix, const char *rel, bool is_tracked,
                      unsigned depth, struct err *e)
{
    /* the name of a nested repository ends with a slash */
    _cleanup_free_ char *clean = path_clean(rel);
    _cleanup_free_ char *name = clean ? listing_name_below(prefix, "", clean) : NULL;
    struct stat st;
    int r = check_listed(rel, is_tracked, e);

    if (r < 0)
        return r;
    if (!name)
        return err_oom(e);
    if (listing_is_ignored(l, name, false))
        return 0;
    if (beneath_stat(l->out->roots[0], name, &st) == 0 && S_ISDIR(st.st_mode))
        return add_nested(l, name, is_tracked, depth, e);
    return is_tracked ? listing_add_own(l, name, e) : listing_add_untracked(l, name, e);
}

static int add_all_listed(struct listing *l, const char *prefix, FILE *from, bool is_tracked,
                          unsigned depth, struct err *e)
{
    _cleanup_free_ char *rel = NULL, *last = NULL;
    size_t cap = 0;
    int r = 0;

    while (r == 0 && getdelim(&rel, &cap, '\0', from) > 0) {
        /* During a merge the index has a path up to three times. */
        if (last && str_eq(rel, last))
            continue;
        r = add_listed(l, prefix, rel, is_tracked, depth, e);
        free(last);
        last = strdup(rel);
        if (r == 0 && !last)
            r = err_oom(e);
    }
    return r == 0 && ferror(from) ? err_sys(e, errno, "the list of files") : r;
}

int listing_add_repository(struct listing *l, const char *dir, const char *prefix, unsigned depth,
                           struct err *e)
{
    static const char *const tracked_args[] = {"ls-files", "-z", "-c", NULL};
    const char *untracked_args[] = {"ls-files", "-z", "-o", "--exclude-standard", NULL, NULL};
    _cleanup_fclose_ FILE *tracked = NULL, *untracked = NULL;
    int r;

    if (!*prefix)
        untracked_args[4] = l->ignore_arg;
    r = listing_list_git(l, dir, tracked_args, &tracked, e);
    if (r == 0)
        r = listing_list_git(l, dir, untracked_args, &untracked, e);
    if (r == 0)
        r = add_all_listed(l, prefix, tracked, true, depth, e);
    if (r == 0)
        r = add_all_listed(l, prefix, untracked, false, depth, e);
    if (r < 0 || str_eq(l->o->git, "none"))
        return r;
    if (!*prefix && l->is_top && str_eq(l->o->git, "shallow"))
        return listing_add_shallow_git(l, dir, e);
    return listing_add_full_git(l, dir, prefix, e);
}

/* ---- .bellhopignore ---- */

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

bool listing_is_ignored(const struct listing *l, const char *name, bool is_dir)
{
    _cleanup_free_ char *as_dir = NULL;

    if (!l->ignored)
        return false;
    if (is_dir && asprintf(&as_dir, "%s/", name) < 0)
        return false;
    if (is_dir)
        name = as_dir;
    return bsearch(&name, l->ignored, strv_len(l->ignored), sizeof(char *), compare_names) != NULL;
}

static int read_ignored(struct listing *l, FILE *from, struct err *e)
{
    _cleanup_free_ char *rel = NULL;
    size_t cap = 0;
    int r = 0;

    while (r == 0 && getdelim(&rel, &cap, '\0', from) > 0)
        r = strv_push(&l->ignored, rel, e);
    if (l->ignored)
        qsort(l->ignored, strv_len(l->ignored), sizeof(char *), compare_names);
    return r;
}

/* git judges the patterns. Without a repository it gets an empty one for that. */
static int list_ignored_plain(struct listing *l, const char *dir, FILE **ret, struct err *e)
{
    _cleanup_free_ char *git_dir = NULL, *work_tree = NULL;
    const char *init[] = {"init", "-q", "--bare", "--template=", NULL, NULL};
    const char *list[] = {NULL, NULL, "ls-files", "-z", "-o", "-i", "--directory", NULL, NULL};
    int r = listing_make_tmp_dir(l, e);

    if (r < 0)
        return r;
    if (asprintf(&git_dir, "--git-dir=%s", l->out->tmp_dir) < 0 ||
        asprintf(&work_tree, "--work-tree=%s", dir) < 0)
        return err_oom(e);
    init[4] = l->out->tmp_dir;
    list[0] = git_dir;
    list[1] = work_tree;
    list[7] = l->ignore_arg;
    r = listing_run_git(l->o, "/", init, NULL, -1, NULL, e);
    return r < 0 ? r : listing_list_git(l, dir, list, ret, e);
}

int listing_load_ignore_file(struct listing *l, bool is_repository, struct err *e)
{
    const char *tracked[] = {"ls-files", "-z", "-c", "-i", NULL, NULL};
    _cleanup_free_ char *path = path_join(l->o->source, IGNORE_FILE);
    _cleanup_fclose_ FILE *from = NULL;
    int r;

    if (!path)
        return err_oom(e);
    if (access(path, F_OK) < 0)
        return 0;
    if (asprintf(&l->ignore_arg, "--exclude-from=%s", path) < 0) {
        l->ignore_arg = NULL;
        return err_oom(e);
    }
    tracked[4] = l->ignore_arg;
    r = is_repository ? listing_list_git(l, l->o->source, tracked, &from, e)
                      : list_ignored_plain(l, l->o->source, &from, e);
    return r < 0 ? err_wrap(e, r, "applying " IGNORE_FILE) : read_ignored(l, from, e);
}
