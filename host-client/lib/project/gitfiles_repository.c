#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/io.h"
#include "common/path.h"
#include "common/str.h"
#include "lib/project/gitfiles_listing.h"
#include "lib/util/beneath.h"

#define IGNORE_FILE ".bellhopignore"

/* ---- a .git that leads elsewhere ---- */

/*
 * A ".git" can lead to a repository elsewhere: of a linked work tree (git worktree add), or of a
 * submodule. Anybody can write such a file. It is believed only if the repository names the work
 * tree in turn; otherwise a hostile project could send any repository of this machine.
 */

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

/*
 * dir: the work tree; own, common: its git directory and the one that has its objects, as git says;
 * worktree: core.worktree of `own`, or NULL. -ERR_PRECONDITION with field "git".
 */
static int gitlink_check(const char *dir, const char *own, const char *common, const char *worktree,
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

/* Every file of a git directory that a clone reads lies within it: no references or objects
 * behind a symbolic link. -ERR_PRECONDITION with field "git". */
static int gitlink_check_inside(const char *git_dir, struct err *e)
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

/* ---- a whole .git ---- */

#define GIT_CONFIG_BYTES (1024 * 1024)

/* Adds a git directory outside the source as ".git". */
static int walk_git_dir(struct listing *l, const char *git_dir, struct err *e)
{
    struct listing_tree t = {.host = git_dir, .prefix = ".git", .kind = WALK_GIT_DIR};
    int r = gitfiles_add_root(l->out, git_dir, &t.root, e);

    return r < 0 ? r : listing_walk(l, &t, e);
}

/* A linked work tree's own git directory lies over the one that it shares with other work
 * trees. */
struct overlay {
    const char *own; /* the work tree's git directory */
};

static bool is_in_overlay(const struct overlay *o, const char *rel)
{
    _cleanup_free_ char *path = path_join(o->own, rel);
    struct stat st;

    return path && lstat(path, &st) == 0 && !S_ISDIR(st.st_mode);
}

/* Adds one entry of the shared git directory or of the work tree's own. */
static int add_worktree_entry(struct listing *l, FTS *fts, FTSENT *ent, struct gitfiles_entry *en,
                              const struct overlay *over, struct err *e)
{
    static const char *const own_links[] = {"gitdir", "commondir", "locked"};
    const char *rel = en->path;
    _cleanup_free_ char *name = NULL;

    if (over && str_eq(rel, "worktrees")) {
        (void)fts_set(fts, ent, FTS_SKIP);
        return 0;
    }
    if (over && is_in_overlay(over, rel))
        return 0;
    for (size_t i = 0; !over && i < N_ELEMENTS(own_links); i++)
        if (str_eq(rel, own_links[i]))
            return 0;
    if (asprintf(&name, ".git/%s", rel) < 0)
        return err_oom(e);
    en->name = name;
    return listing_walk_entry(l, fts, ent, en, WALK_GIT_DIR, e);
}

static int walk_worktree_part(struct listing *l, const char *root, const struct overlay *over,
                              struct err *e)
{
    char *const roots[] = {(char *)root, NULL};
    struct gitfiles_entry en = {0};
    int r = gitfiles_add_root(l->out, root, &en.root, e);
    FTS *fts = r < 0 ? NULL : fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, listing_compare_fts);
    FTSENT *ent;

    if (!fts)
        return r < 0 ? r : err_sys(e, errno, "read '%s'", root);
    while (r == 0 && ((void)(errno = 0), ent = fts_read(fts))) {
        const char *rel = ent->fts_path + strlen(root);

        rel += *rel == '/';
        /* The shared directory names a directory that both have. */
        if (ent->fts_info == FTS_DP || !*rel || (!over && ent->fts_info == FTS_D))
            continue;
        en.path = rel;
        r = add_worktree_entry(l, fts, ent, &en, over, e);
    }
    if (r == 0 && errno)
        r = err_sys(e, errno, "read '%s'", root);
    (void)fts_close(fts);
    return r;
}

/* Objects that lie elsewhere would be missing in the box. */
static int check_alternates(const char *git_dir, struct err *e)
{
    _cleanup_free_ char *path = path_join(git_dir, "objects/info/alternates");

    if (!path)
        return err_oom(e);
    if (access(path, F_OK) < 0)
        return 0;
    return err_field(
        e, ERR_PRECONDITION, "git",
        "the repository borrows objects of another one (%s): use --git shallow or none", path);
}

/* A submodule's configuration has the path of its work tree on this machine: sends a copy
 * without it. */
static int add_config_without_work_tree(struct listing *l, const char *git_dir, const char *name,
                                        struct err *e)
{
    const char *unset[] = {"config", "--file", NULL, "--unset-all", "core.worktree", NULL};
    struct gitfiles_entry en = {.name = name, .path = path_name(name)};
    _cleanup_close_ int fd = open(git_dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    _cleanup_free_ char *text = NULL, *copy = NULL;
    size_t len;
    int r = fd < 0 ? err_sys(e, errno, "open '%s'", git_dir) : listing_make_tmp_dir(l, e);

    if (r == 0)
        r = beneath_read_file(fd, en.path, GIT_CONFIG_BYTES, &text, &len, e);
    if (r < 0)
        return r;
    copy = path_join(l->out->tmp_dir, en.path);
    unset[2] = copy;
    r = copy ? io_write_file(AT_FDCWD, copy, text, len, 0644, false, e) : err_oom(e);
    if (r == 0)
        r = listing_run_git(l->o, "/", unset, NULL, -1, NULL, e);
    if (r == 0)
        r = gitfiles_add_root(l->out, l->out->tmp_dir, &en.root, e);
    l->made = name;
    return r < 0 ? r : listing_add_path(l, &en, e);
}

/* The git directories of a work tree, and the file that names the work tree. */
struct git_dirs {
    char *own, *common;
    const char *config; /* name of that file in the box, or NULL */
};

static void git_dirs_done(struct git_dirs *g)
{
    free(g->own);
    free(g->common);
}
#define _cleanup_git_dirs_ _cleanup_(git_dirs_done)

/* Refuses a repository that is not this work tree's own. */
static int find_git_dirs(struct listing *l, const char *dir, struct git_dirs *g, struct err *e)
{
    static const char *const ask_own[] = {"rev-parse", "--absolute-git-dir", NULL};
    static const char *const ask_common[] = {"rev-parse", "--path-format=absolute",
                                             "--git-common-dir", NULL};
    static const char *const ask_work_tree[] = {"config", "--local",       "--no-includes",
                                                "--get",  "core.worktree", NULL};
    static const char *const ask_own_work_tree[] = {"config", "--worktree",    "--no-includes",
                                                    "--get",  "core.worktree", NULL};
    _cleanup_free_ char *worktree = NULL;
    int r = listing_ask_git(l->o, dir, ask_own, &g->own, e);

    if (r == 0)
        r = listing_ask_git(l->o, dir, ask_common, &g->common, e);
    if (r < 0)
        return r;
    if (listing_ask_git(l->o, dir, ask_work_tree, &worktree, NULL) == 0)
        g->config = ".git/config";
    else if (listing_ask_git(l->o, dir, ask_own_work_tree, &worktree, NULL) == 0)
        g->config = ".git/config.worktree";
    return gitlink_check(dir, g->own, g->common, worktree, e);
}

/* A linked work tree (`git worktree add`) becomes a repository of its own. */
static int add_linked_git(struct listing *l, const char *dir, struct err *e)
{
    _cleanup_git_dirs_ struct git_dirs g = {0};
    struct overlay over;
    int r = find_git_dirs(l, dir, &g, e);

    if (r == 0)
        r = check_alternates(g.common, e);
    if (r == 0 && g.config)
        r = add_config_without_work_tree(l, str_eq(g.config, ".git/config") ? g.common : g.own,
                                         g.config, e);
    if (r < 0)
        return r;
    over.own = g.own;
    if (str_eq(g.own, g.common)) /* a submodule's, or made by --separate-git-dir */
        return walk_git_dir(l, g.own, e);
    r = walk_worktree_part(l, g.common, &over, e);
    return r < 0 ? r : walk_worktree_part(l, g.own, NULL, e);
}

/* The .git of `dir`: of a linked work tree, one repository made of both directories. */
static int listing_add_full_git(struct listing *l, const char *dir, const char *prefix,
                                struct err *e)
{
    _cleanup_free_ char *host = path_join(dir, ".git");
    _cleanup_free_ char *name = listing_name_below(prefix, "", ".git");
    struct stat st;
    int r;

    if (!host || !name)
        return err_oom(e);
    if (lstat(host, &st) < 0)
        return errno == ENOENT ? 0 : err_sys(e, errno, "stat '%s'", host);
    if (S_ISDIR(st.st_mode)) {
        struct listing_tree t = {.host = host, .prefix = name, .kind = WALK_GIT_DIR};

        r = check_alternates(host, e);
        return r < 0 ? r : listing_walk(l, &t, e);
    }
    /* The ".git" of a submodule is a relative path into the .git of the whole. */
    return *prefix ? listing_add_own(l, name, e) : add_linked_git(l, dir, e);
}

/* ---- a shallow copy of .git ---- */

/* git clone starts a second git that checks the owner and does not get our -c options: they go
 * into a file. */
static int write_clone_config(const char *tmp, char **ret_env, struct err *e)
{
    static const char config[] = "[safe]\n\tdirectory = *\n[core]\n\tfsmonitor = false\n"
                                 "\thooksPath = /dev/null\n";
    _cleanup_free_ char *path = path_join(tmp, "config");
    int r;

    if (!path)
        return err_oom(e);
    r = io_write_file(AT_FDCWD, path, config, strlen(config), 0600, false, e);
    if (r < 0)
        return r;
    return asprintf(ret_env, "GIT_CONFIG_GLOBAL=%s", path) < 0 ? err_oom(e) : 0;
}

/* The copy's "origin" leads where the original's does. */
static int set_origin(struct listing *l, const char *dir, const char *clone, struct err *e)
{
    /* --no-includes: an included file may be another file of this machine */
    static const char *const ask[] = {"config", "--local",           "--no-includes",
                                      "--get",  "remote.origin.url", NULL};
    static const char *const forget[] = {"remote", "remove", "origin", NULL};
    const char *set[] = {"remote", "set-url", "--", "origin", NULL, NULL};
    _cleanup_free_ char *url = NULL;

    if (listing_ask_git(l->o, dir, ask, &url, NULL) < 0)
        return listing_run_git(l->o, clone, forget, NULL, -1, NULL, e);
    set[4] = url;
    return listing_run_git(l->o, clone, set, NULL, -1, NULL, e);
}

/* A clone reads whatever git finds: all of it must belong to this work tree. */
static int check_clone_source(struct listing *l, const char *dir, struct err *e)
{
    _cleanup_git_dirs_ struct git_dirs g = {0};
    _cleanup_free_ char *host = path_join(dir, ".git");
    _cleanup_free_ char *elsewhere = path_join(dir, ".git/commondir");
    struct stat st;
    int r;

    if (!host || !elsewhere)
        return err_oom(e);
    if (lstat(host, &st) == 0 && S_ISDIR(st.st_mode) && lstat(elsewhere, &st) < 0)
        return gitlink_check_inside(host, e);
    r = find_git_dirs(l, dir, &g, e);
    if (r == 0)
        r = gitlink_check_inside(g.own, e);
    return r == 0 && !str_eq(g.own, g.common) ? gitlink_check_inside(g.common, e) : r;
}

/* A clone with one commit instead of it. */
static int listing_add_shallow_git(struct listing *l, const char *dir, struct err *e)
{
    static const char *const reset[] = {"read-tree", "HEAD", NULL};
    _cleanup_free_ char *url = NULL, *clone = NULL, *config = NULL, *git = NULL;
    const char *args[] = {"clone",       "-q", "--depth", "1", "--no-checkout",
                          "--template=", NULL, NULL,      NULL};
    const char *env[] = {NULL, "GIT_ALLOW_PROTOCOL=file", NULL};
    int r = check_clone_source(l, dir, e);

    if (r == 0)
        r = listing_make_tmp_dir(l, e);
    if (r < 0)
        return r;
    clone = path_join(l->out->tmp_dir, "clone");
    git = path_join(l->out->tmp_dir, "clone/.git");
    if (!clone || !git || asprintf(&url, "file://%s", dir) < 0)
        return err_oom(e);
    r = write_clone_config(l->out->tmp_dir, &config, e);
    if (r < 0)
        return r;
    args[6] = url;
    args[7] = clone;
    env[0] = config;
    r = listing_run_git(l->o, "/", args, env, -1, NULL, e);
    if (r == 0)
        r = listing_run_git(l->o, clone, reset, NULL, -1, NULL, e);
    if (r == 0)
        r = set_origin(l, dir, clone, e);
    return r < 0 ? err_wrap(e, r, "a shallow copy of .git") : walk_git_dir(l, git, e);
}

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
