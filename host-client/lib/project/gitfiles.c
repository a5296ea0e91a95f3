#include "lib/project/gitfiles.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/buf.h"
#include "common/cleanup.h"
#include "common/clock.h"
#include "common/io.h"
#include "common/path.h"
#include "common/str.h"
#include "lib/util/beneath.h"
#include "lib/util/dirtree.h"
#include "lib/project/gitlink.h"
#include "lib/util/hostcmd.h"
#include "lib/project/secretfiles.h"

#define IGNORE_FILE ".bellhopignore"
#define GIT_ANSWER_BYTES (64 * 1024)
#define GIT_CONFIG_BYTES (1024 * 1024)
#define MAX_GIT_ARGS 24
#define MAX_LEFT_OUT 10000

struct listing {
    const struct gitfiles_options *o;
    struct gitfiles *out;
    char **ignored;   /* sorted: what .bellhopignore takes away, directories end with '/' */
    char *ignore_arg; /* "--exclude-from=..." or NULL */
    bool is_top;      /* the source is a repository, not a part of one */
    const char *made; /* the name of one of .git that is not taken from where it is; or NULL */
};

/* ---- running git ---- */

/*
 * git for a repository that may belong to somebody else. Its owner is not asked (safe.directory),
 * so nothing of its configuration that names a program may count: no monitor, no hooks, and nothing
 * is fetched, since the configuration of a remote names a program too.
 */
static int run_git(const struct gitfiles_options *o, const char *dir, const char *const *args,
                   const char *const *env, int out_fd, struct buf *out, struct err *e)
{
    const char *argv[MAX_GIT_ARGS] = {"git",
                                      "-c",
                                      "safe.directory=*",
                                      "-c",
                                      "core.fsmonitor=false",
                                      "-c",
                                      "core.hooksPath=/dev/null",
                                      "-c",
                                      "core.quotePath=false"};
    const char *all_env[8] = {"GIT_OPTIONAL_LOCKS=0", "GIT_TERMINAL_PROMPT=0",
                              "GIT_NO_LAZY_FETCH=1"};
    struct hostcmd cmd = {.argv = argv,
                          .env = all_env,
                          .cwd = dir,
                          .out_fd = out_fd,
                          .out = out,
                          .cancel_fd = o->ctx->cancel_fd,
                          .deadline_mono_ms = o->deadline_mono_ms};
    size_t n = 9, m = 3;

    for (; *args && n < MAX_GIT_ARGS - 1; args++)
        argv[n++] = *args;
    if (!env) /* for a git that does not know GIT_NO_LAZY_FETCH */
        all_env[m++] = "GIT_ALLOW_PROTOCOL=none";
    for (; env && *env && m < N_ELEMENTS(all_env) - 1; env++)
        all_env[m++] = *env;
    return hostcmd_run(&cmd, NULL, e);
}

/* One line of an answer. */
static int ask_git(const struct gitfiles_options *o, const char *dir, const char *const *args,
                   char **ret, struct err *e)
{
    _cleanup_buf_ struct buf out;
    int r;

    buf_init(&out, GIT_ANSWER_BYTES);
    r = run_git(o, dir, args, NULL, -1, &out, e);
    if (r < 0)
        return r;
    if (out.len && out.data[out.len - 1] == '\n')
        out.data[--out.len] = '\0';
    *ret = buf_take(&out);
    return *ret ? 0 : err_oom(e);
}

/* A file without a name: gone when it is closed, whatever happens. */
static int open_scratch(const struct bh_ctx *ctx, FILE **ret, struct err *e)
{
    int fd = open(ctx->cache_dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    FILE *f;

    if (fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR)) {
        _cleanup_free_ char *path = path_join(ctx->cache_dir, "list-XXXXXX");

        if (!path)
            return err_oom(e);
        fd = mkostemp(path, O_CLOEXEC);
        if (fd >= 0)
            (void)unlink(path);
    }
    if (fd < 0)
        return err_sys(e, errno, "a temporary file in '%s'", ctx->cache_dir);
    f = fdopen(fd, "w+");
    if (!f) {
        fd_close(fd);
        return err_oom(e);
    }
    *ret = f;
    return 0;
}

/* git's NUL-separated answer in a scratch file, at its beginning. */
static int list_git(struct listing *l, const char *dir, const char *const *args, FILE **ret,
                    struct err *e)
{
    _cleanup_fclose_ FILE *f = NULL;
    int r = open_scratch(l->o->ctx, &f, e);

    if (r == 0)
        r = run_git(l->o, dir, args, NULL, fileno(f), NULL, e);
    if (r < 0)
        return r;
    rewind(f);
    *ret = TAKE(f);
    return 0;
}

/* ---- the list ---- */

int gitfiles_put(struct gitfiles *g, const struct gitfiles_entry *en, struct err *e)
{
    if (fwrite(en->name, strlen(en->name) + 1, 1, g->list) != 1 ||
        fputc('0' + (int)en->root, g->list) == EOF ||
        fwrite(en->path, strlen(en->path) + 1, 1, g->list) != 1)
        return err_sys(e, errno, "the list of files");
    return 0;
}

int gitfiles_add_root(struct gitfiles *g, const char *dir, unsigned *ret, struct err *e)
{
    int fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);

    assert(g->n_roots < GITFILES_MAX_ROOTS);
    if (fd < 0)
        return err_sys(e, errno, "open '%s'", dir);
    *ret = g->n_roots;
    g->roots[g->n_roots++] = fd;
    return 0;
}

/*
 * What has gone in the meantime is not there, nor is, as for git, what is behind a link; sockets and
 * the like can't be sent.
 */
static int add_path(struct listing *l, const struct gitfiles_entry *en, struct err *e)
{
    struct stat st;

    if (strlen(en->path) > GITFILES_MAX_PATH_BYTES)
        return err_field(e, ERR_INVALID, en->name, "the path '%.80s...' is too long", en->name);
    if (beneath_stat(l->out->roots[en->root], en->path, &st) < 0)
        return errno == ENOENT || errno == ENOTDIR || errno == ELOOP
                   ? 0
                   : err_sys(e, errno, "stat '%s'", en->path);
    if (!S_ISREG(st.st_mode) && !S_ISLNK(st.st_mode) && !S_ISDIR(st.st_mode))
        return 0;
    if (!S_ISDIR(st.st_mode))
        l->out->files++;
    if (S_ISREG(st.st_mode))
        l->out->bytes += (uint64_t)st.st_size;
    return gitfiles_put(l->out, en, e);
}

/* A file of the source has the same name there and in the box. */
static int add_own(struct listing *l, const char *name, struct err *e)
{
    return add_path(l, &(struct gitfiles_entry){.name = name, .path = name}, e);
}

static int leave_out(struct listing *l, const char *name, struct err *e)
{
    if (strv_len(l->out->left_out) >= MAX_LEFT_OUT)
        return err_set(e, ERR_EXHAUSTED, "more than %d files look like secrets", MAX_LEFT_OUT);
    return strv_push(&l->out->left_out, name, e);
}

static int add_untracked(struct listing *l, const char *name, struct err *e)
{
    if (!l->o->with_secrets && secretfiles_match(path_name(name), l->out->roots[0], name))
        return leave_out(l, name, e);
    return add_own(l, name, e);
}

static int compare_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static bool is_ignored(const struct listing *l, const char *name, bool is_dir)
{
    _cleanup_free_ char *as_dir = NULL;

    if (!l->ignored)
        return false;
    if (is_dir && asprintf(&as_dir, "%s/", name) < 0)
        return false;
    if (is_dir)
        name = as_dir;
    return bsearch(&name, l->ignored, strv_len(l->ignored), sizeof(char *), compare_text) != NULL;
}

/* ---- whole trees ---- */

enum walk_kind {
    WALK_ALL,     /* as it is */
    WALK_PROJECT, /* without secrets and what .bellhopignore names */
    WALK_GIT_DIR, /* without locks that a running git holds */
};

static int compare_fts(const FTSENT **a, const FTSENT **b)
{
    return strcmp((*a)->fts_name, (*b)->fts_name);
}

static int walk_entry(struct listing *l, FTS *fts, FTSENT *ent, const struct gitfiles_entry *en,
                      enum walk_kind kind, struct err *e)
{
    bool is_dir = ent->fts_info == FTS_D;

    if (kind == WALK_PROJECT && is_ignored(l, en->name, is_dir)) {
        (void)fts_set(fts, ent, FTS_SKIP);
        return 0;
    }
    if (kind == WALK_PROJECT && str_eq(l->o->git, "none") && str_eq(ent->fts_name, ".git")) {
        (void)fts_set(fts, ent, FTS_SKIP);
        return 0;
    }
    if (kind == WALK_GIT_DIR && !is_dir && str_has_suffix(ent->fts_name, ".lock"))
        return 0;
    if (kind == WALK_GIT_DIR && str_eq(en->name, l->made))
        return 0;
    if (ent->fts_info == FTS_DNR || ent->fts_info == FTS_ERR)
        return err_sys(e, ent->fts_errno, "read '%s'", ent->fts_path);
    if (kind == WALK_PROJECT && !is_dir)
        return add_untracked(l, en->name, e);
    return add_path(l, en, e);
}

/* "sub/file" within root, under prefix. */
static char *name_below(const char *prefix, const char *root, const char *path)
{
    const char *rest = path + strlen(root);
    char *name = NULL;

    rest += *rest == '/';
    if (asprintf(&name, "%s%s%s", prefix, *prefix && *rest ? "/" : "", rest) < 0)
        return NULL;
    return name;
}

/* A tree of this machine and what its names begin with in the box ("": nothing). */
struct tree {
    const char *host;
    const char *prefix;
    unsigned root; /* 0: it is in the source, at `prefix`; else it is that root itself */
    enum walk_kind kind;
};

static int walk_open(struct listing *l, FTS *fts, const struct tree *t, struct err *e)
{
    FTSENT *ent;

    while (((void)(errno = 0), ent = fts_read(fts))) {
        _cleanup_free_ char *name = name_below(t->prefix, t->host, ent->fts_path);
        struct gitfiles_entry en = {.name = name, .root = t->root, .path = name};
        int r;

        if (!name)
            return err_oom(e);
        if (ent->fts_info == FTS_DP || ent->fts_level == FTS_ROOTLEVEL)
            continue;
        if (t->root)
            en.path = ent->fts_path + strlen(t->host) + 1;
        r = walk_entry(l, fts, ent, &en, t->kind, e);
        if (r < 0)
            return r;
    }
    return errno ? err_sys(e, errno, "read '%s'", t->host) : 0;
}

static int walk(struct listing *l, const struct tree *t, struct err *e)
{
    char *const roots[] = {(char *)t->host, NULL};
    FTS *fts = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, compare_fts);
    int r;

    if (!fts)
        return err_sys(e, errno, "read '%s'", t->host);
    r = walk_open(l, fts, t, e);
    (void)fts_close(fts);
    return r;
}

/* A git directory that is not in the source, as ".git". */
static int walk_git_dir(struct listing *l, const char *git_dir, struct err *e)
{
    struct tree t = {.host = git_dir, .prefix = ".git", .kind = WALK_GIT_DIR};
    int r = gitfiles_add_root(l->out, git_dir, &t.root, e);

    return r < 0 ? r : walk(l, &t, e);
}

/* ---- .git ---- */

/* What a linked work tree has of its own goes over what it shares with the others. */
struct overlay {
    const char *own; /* the work tree's git directory */
};

static bool is_in_overlay(const struct overlay *o, const char *rel)
{
    _cleanup_free_ char *path = path_join(o->own, rel);
    struct stat st;

    return path && lstat(path, &st) == 0 && !S_ISDIR(st.st_mode);
}

/* One entry of the shared directory or of the work tree's own. */
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
    return walk_entry(l, fts, ent, en, WALK_GIT_DIR, e);
}

static int walk_worktree_part(struct listing *l, const char *root, const struct overlay *over,
                              struct err *e)
{
    char *const roots[] = {(char *)root, NULL};
    struct gitfiles_entry en = {0};
    int r = gitfiles_add_root(l->out, root, &en.root, e);
    FTS *fts = r < 0 ? NULL : fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, compare_fts);
    FTSENT *ent;

    if (!fts)
        return r < 0 ? r : err_sys(e, errno, "read '%s'", root);
    while (r == 0 && ((void)(errno = 0), ent = fts_read(fts))) {
        const char *rel = ent->fts_path + strlen(root);

        rel += *rel == '/';
        /* A directory that both have is named once, by the shared one. */
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

/* Objects that are elsewhere would be missing in the box. */
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

static int make_tmp_dir(struct listing *l, struct err *e)
{
    _cleanup_free_ char *tmp = path_join(l->o->ctx->cache_dir, "clone-XXXXXX");

    if (!tmp)
        return err_oom(e);
    if (!mkdtemp(tmp))
        return err_sys(e, errno, "mkdir '%s'", tmp);
    l->out->tmp_dir = TAKE(tmp);
    return 0;
}

/* A submodule's configuration says where its files are, seen from where it is here: without that. */
static int add_config_without_work_tree(struct listing *l, const char *git_dir, const char *name,
                                        struct err *e)
{
    const char *unset[] = {"config", "--file", NULL, "--unset-all", "core.worktree", NULL};
    struct gitfiles_entry en = {.name = name, .path = path_name(name)};
    _cleanup_close_ int fd = open(git_dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    _cleanup_free_ char *text = NULL, *copy = NULL;
    size_t len;
    int r = fd < 0 ? err_sys(e, errno, "open '%s'", git_dir) : make_tmp_dir(l, e);

    if (r == 0)
        r = beneath_read_file(fd, en.path, GIT_CONFIG_BYTES, &text, &len, e);
    if (r < 0)
        return r;
    copy = path_join(l->out->tmp_dir, en.path);
    unset[2] = copy;
    r = copy ? io_write_file(AT_FDCWD, copy, text, len, 0644, false, e) : err_oom(e);
    if (r == 0)
        r = run_git(l->o, "/", unset, NULL, -1, NULL, e);
    if (r == 0)
        r = gitfiles_add_root(l->out, l->out->tmp_dir, &en.root, e);
    l->made = name;
    return r < 0 ? r : add_path(l, &en, e);
}

/* Where git has a work tree's repository, and which of its files says where the work tree is. */
struct git_dirs {
    char *own, *common;
    const char *config; /* its name in the box, or NULL */
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
    int r = ask_git(l->o, dir, ask_own, &g->own, e);

    if (r == 0)
        r = ask_git(l->o, dir, ask_common, &g->common, e);
    if (r < 0)
        return r;
    if (ask_git(l->o, dir, ask_work_tree, &worktree, NULL) == 0)
        g->config = ".git/config";
    else if (ask_git(l->o, dir, ask_own_work_tree, &worktree, NULL) == 0)
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

static int add_full_git(struct listing *l, const char *dir, const char *prefix, struct err *e)
{
    _cleanup_free_ char *host = path_join(dir, ".git");
    _cleanup_free_ char *name = name_below(prefix, "", ".git");
    struct stat st;
    int r;

    if (!host || !name)
        return err_oom(e);
    if (lstat(host, &st) < 0)
        return errno == ENOENT ? 0 : err_sys(e, errno, "stat '%s'", host);
    if (S_ISDIR(st.st_mode)) {
        struct tree t = {.host = host, .prefix = name, .kind = WALK_GIT_DIR};

        r = check_alternates(host, e);
        return r < 0 ? r : walk(l, &t, e);
    }
    /* A submodule's ".git" leads into the .git of the whole by a relative path. */
    return *prefix ? add_own(l, name, e) : add_linked_git(l, dir, e);
}

/* ---- a shallow copy of .git ---- */

/* The clone's git asks for the owner of what it clones: its command line is not passed on. */
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

/* Where the copy's "origin" should lead: where the original's does. */
static int set_origin(struct listing *l, const char *dir, const char *clone, struct err *e)
{
    /* Its own word for it: what it includes may be another file of this machine. */
    static const char *const ask[] = {"config", "--local",           "--no-includes",
                                      "--get",  "remote.origin.url", NULL};
    static const char *const forget[] = {"remote", "remove", "origin", NULL};
    const char *set[] = {"remote", "set-url", "--", "origin", NULL, NULL};
    _cleanup_free_ char *url = NULL;

    if (ask_git(l->o, dir, ask, &url, NULL) < 0)
        return run_git(l->o, clone, forget, NULL, -1, NULL, e);
    set[4] = url;
    return run_git(l->o, clone, set, NULL, -1, NULL, e);
}

/* A clone takes whatever git finds: all of it has to be this work tree's. */
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

static int add_shallow_git(struct listing *l, const char *dir, struct err *e)
{
    static const char *const reset[] = {"read-tree", "HEAD", NULL};
    _cleanup_free_ char *url = NULL, *clone = NULL, *config = NULL, *git = NULL;
    const char *args[] = {"clone",       "-q", "--depth", "1", "--no-checkout",
                          "--template=", NULL, NULL,      NULL};
    const char *env[] = {NULL, "GIT_ALLOW_PROTOCOL=file", NULL};
    int r = check_clone_source(l, dir, e);

    if (r == 0)
        r = make_tmp_dir(l, e);
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
    r = run_git(l->o, "/", args, env, -1, NULL, e);
    if (r == 0)
        r = run_git(l->o, clone, reset, NULL, -1, NULL, e);
    if (r == 0)
        r = set_origin(l, dir, clone, e);
    return r < 0 ? err_wrap(e, r, "a shallow copy of .git") : walk_git_dir(l, git, e);
}

/* ---- repositories ---- */

static int add_repository(struct listing *l, const char *dir, const char *prefix, unsigned depth,
                          struct err *e);

/* "sub": a repository within the repository, a submodule or not. */
static int add_nested(struct listing *l, const char *name, bool is_tracked, unsigned depth,
                      struct err *e)
{
    _cleanup_free_ char *host = path_join(l->o->source, name);
    _cleanup_free_ char *git = path_join(name, ".git");
    struct tree t = {.host = host, .prefix = name, .kind = WALK_PROJECT};
    struct stat st;

    if (!host || !git)
        return err_oom(e);
    /* A submodule that is not there, or a directory where a file was: git lists what is in it. */
    if (beneath_stat(l->out->roots[0], git, &st) < 0)
        return is_tracked ? add_own(l, name, e) : walk(l, &t, e);
    if (depth + 1 >= GITFILES_MAX_DEPTH)
        return err_field(e, ERR_INVALID, "project", "'%s': repositories are nested too deeply",
                         name);
    return add_repository(l, host, name, depth + 1, e);
}

/* git writes no such names into an index, but it believes one that has them. */
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
    _cleanup_free_ char *clean = path_clean(rel); /* a repository within has a slash at its end */
    _cleanup_free_ char *name = clean ? name_below(prefix, "", clean) : NULL;
    struct stat st;
    int r = check_listed(rel, is_tracked, e);

    if (r < 0)
        return r;
    if (!name)
        return err_oom(e);
    if (is_ignored(l, name, false))
        return 0;
    if (beneath_stat(l->out->roots[0], name, &st) == 0 && S_ISDIR(st.st_mode))
        return add_nested(l, name, is_tracked, depth, e);
    return is_tracked ? add_own(l, name, e) : add_untracked(l, name, e);
}

static int add_all_listed(struct listing *l, const char *prefix, FILE *from, bool is_tracked,
                          unsigned depth, struct err *e)
{
    _cleanup_free_ char *rel = NULL, *last = NULL;
    size_t cap = 0;
    int r = 0;

    while (r == 0 && getdelim(&rel, &cap, '\0', from) > 0) {
        /* In the middle of a merge a path stands there up to three times. */
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

static int add_repository(struct listing *l, const char *dir, const char *prefix, unsigned depth,
                          struct err *e)
{
    static const char *const tracked_args[] = {"ls-files", "-z", "-c", NULL};
    const char *untracked_args[] = {"ls-files", "-z", "-o", "--exclude-standard", NULL, NULL};
    _cleanup_fclose_ FILE *tracked = NULL, *untracked = NULL;
    int r;

    if (!*prefix)
        untracked_args[4] = l->ignore_arg;
    r = list_git(l, dir, tracked_args, &tracked, e);
    if (r == 0)
        r = list_git(l, dir, untracked_args, &untracked, e);
    if (r == 0)
        r = add_all_listed(l, prefix, tracked, true, depth, e);
    if (r == 0)
        r = add_all_listed(l, prefix, untracked, false, depth, e);
    if (r < 0 || str_eq(l->o->git, "none"))
        return r;
    if (!*prefix && l->is_top && str_eq(l->o->git, "shallow"))
        return add_shallow_git(l, dir, e);
    return add_full_git(l, dir, prefix, e);
}

/* ---- .bellhopignore ---- */

static int read_ignored(struct listing *l, FILE *from, struct err *e)
{
    _cleanup_free_ char *rel = NULL;
    size_t cap = 0;
    int r = 0;

    while (r == 0 && getdelim(&rel, &cap, '\0', from) > 0)
        r = strv_push(&l->ignored, rel, e);
    if (l->ignored)
        qsort(l->ignored, strv_len(l->ignored), sizeof(char *), compare_text);
    return r;
}

/* git is the judge of the patterns; without a repository it gets an empty one for it. */
static int list_ignored_plain(struct listing *l, const char *dir, FILE **ret, struct err *e)
{
    _cleanup_free_ char *git_dir = NULL, *work_tree = NULL;
    const char *init[] = {"init", "-q", "--bare", "--template=", NULL, NULL};
    const char *list[] = {NULL, NULL, "ls-files", "-z", "-o", "-i", "--directory", NULL, NULL};
    int r = make_tmp_dir(l, e);

    if (r < 0)
        return r;
    if (asprintf(&git_dir, "--git-dir=%s", l->out->tmp_dir) < 0 ||
        asprintf(&work_tree, "--work-tree=%s", dir) < 0)
        return err_oom(e);
    init[4] = l->out->tmp_dir;
    list[0] = git_dir;
    list[1] = work_tree;
    list[7] = l->ignore_arg;
    r = run_git(l->o, "/", init, NULL, -1, NULL, e);
    return r < 0 ? r : list_git(l, dir, list, ret, e);
}

/* Sets l->ignored: what the patterns take that the listing would not see as ignored by itself. */
static int load_ignore_file(struct listing *l, bool is_repository, struct err *e)
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
    r = is_repository ? list_git(l, l->o->source, tracked, &from, e)
                      : list_ignored_plain(l, l->o->source, &from, e);
    return r < 0 ? err_wrap(e, r, "applying " IGNORE_FILE) : read_ignored(l, from, e);
}

/* ---- the whole ---- */

/* 1: the top or a part of a work tree; 0: not in one. */
static int find_repository(const struct gitfiles_options *o, bool *ret_is_top, struct err *e)
{
    static const char *const args[] = {"rev-parse", "--show-toplevel", NULL};
    _cleanup_free_ char *top = NULL, *git = path_join(o->source, ".git");
    struct err why = {0};
    bool has_git;
    int r;

    if (!git)
        return err_oom(e);
    has_git = access(git, F_OK) == 0;
    r = ask_git(o, o->source, args, &top, &why);
    if (r == -ERR_CANCELED || r == -ERR_DEADLINE || (r < 0 && has_git))
        return err_field(e, (enum err_code) - r, "project", "the repository '%.200s': %s",
                         o->source, why.message);
    if (r < 0)
        return 0;
    *ret_is_top = str_eq(top, o->source);
    return 1;
}

static int list_project(struct listing *l, struct err *e)
{
    struct tree t = {.host = l->o->source, .prefix = "", .kind = WALK_PROJECT};
    int is_repository = find_repository(l->o, &l->is_top, e);
    unsigned root;
    int r;

    if (is_repository < 0)
        return is_repository;
    r = load_ignore_file(l, is_repository, e);
    if (r == 0)
        r = gitfiles_add_root(l->out, l->o->source, &root, e);
    if (r < 0)
        return r;
    if (!is_repository)
        return walk(l, &t, e);
    if (!l->is_top)
        l->out->note = strdup("a part of a repository: sent without .git");
    return add_repository(l, l->o->source, "", 0, e);
}

static int list_one_file(struct listing *l, struct err *e)
{
    const char *path = l->o->source, *as = l->o->as;
    _cleanup_free_ char *dir = path_dir(path);
    struct gitfiles_entry en = {.name = as ? as : path_name(path), .path = path_name(path)};
    int r = dir ? gitfiles_add_root(l->out, dir, &en.root, e) : err_oom(e);

    return r < 0 ? r : add_path(l, &en, e);
}

static int list_as_is(struct listing *l, struct err *e)
{
    struct tree t = {.host = l->o->source, .prefix = "", .kind = WALK_ALL};
    struct stat st;
    unsigned root;
    int r;

    if (stat(l->o->source, &st) < 0)
        return err_sys(e, errno, "stat '%s'", l->o->source);
    if (!S_ISDIR(st.st_mode))
        return list_one_file(l, e);
    r = gitfiles_add_root(l->out, l->o->source, &root, e);
    return r < 0 ? r : walk(l, &t, e);
}

int gitfiles_list(const struct gitfiles_options *o, struct gitfiles *ret, struct err *e)
{
    struct gitfiles out = {0};
    struct listing l = {.o = o, .out = &out};
    int r = open_scratch(o->ctx, &out.list, e);

    if (r == 0)
        r = str_eq(o->git, "as-is") ? list_as_is(&l, e) : list_project(&l, e);
    strv_free(l.ignored);
    free(l.ignore_arg);
    if (r == 0)
        r = gitfiles_rewind(&out, e);
    if (r < 0) {
        gitfiles_done(&out);
        return r;
    }
    *ret = out;
    return 0;
}

int gitfiles_restart(struct gitfiles *g, const struct bh_ctx *ctx, struct err *e)
{
    FILE *list;
    int r = open_scratch(ctx, &list, e);

    if (r < 0)
        return r;
    if (g->list)
        (void)fclose(g->list);
    g->list = list;
    g->files = g->bytes = 0;
    return 0;
}

int gitfiles_rewind(struct gitfiles *g, struct err *e)
{
    if (fflush(g->list) != 0)
        return err_sys(e, errno, "the list of files");
    rewind(g->list);
    return 0;
}

int gitfiles_next(struct gitfiles *g, struct gitfiles_entry *ret, struct err *e)
{
    errno = 0;
    if (getdelim(&g->name, &g->name_cap, '\0', g->list) <= 0 ||
        getdelim(&g->path, &g->path_cap, '\0', g->list) <= 0)
        return ferror(g->list) ? err_sys(e, errno, "the list of files") : 0;
    *ret = (struct gitfiles_entry){
        .name = g->name, .root = (unsigned)(g->path[0] - '0'), .path = g->path + 1};
    return 1;
}

void gitfiles_done(struct gitfiles *g)
{
    if (!g)
        return;
    if (g->list)
        (void)fclose(g->list);
    for (unsigned i = 0; i < g->n_roots; i++)
        fd_close(g->roots[i]);
    if (g->tmp_dir)
        (void)dirtree_remove(g->tmp_dir, NULL); /* it is our cache: what stays is found there */
    free(g->tmp_dir);
    strv_free(g->left_out);
    free(g->note);
    free(g->name);
    free(g->path);
    *g = (struct gitfiles){0};
}
