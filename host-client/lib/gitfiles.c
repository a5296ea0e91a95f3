#include "lib/gitfiles.h"

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
#include "lib/hostcmd.h"
#include "lib/secretfiles.h"

#include "common/banned.h"

#define IGNORE_FILE ".bellhopignore"
#define GIT_ANSWER_BYTES (64 * 1024)
#define MAX_GIT_ARGS 24
#define MAX_LEFT_OUT 10000

struct listing {
    const struct gitfiles_options *o;
    struct gitfiles *out;
    char **ignored;   /* sorted: what .bellhopignore takes away, directories end with '/' */
    char *ignore_arg; /* "--exclude-from=..." or NULL */
    bool is_top;      /* the source is a repository, not a part of one */
};

/* ---- running git ---- */

/*
 * git for a repository that may belong to somebody else. Its owner is not asked (safe.directory),
 * so nothing of its configuration that names a program may count.
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
    const char *all_env[8] = {"GIT_OPTIONAL_LOCKS=0", "GIT_TERMINAL_PROMPT=0"};
    struct hostcmd cmd = {.argv = argv,
                          .env = all_env,
                          .cwd = dir,
                          .out_fd = out_fd,
                          .out = out,
                          .cancel_fd = o->ctx->cancel_fd,
                          .deadline_mono_ms = o->deadline_mono_ms};
    size_t n = 9, m = 2;

    for (; *args && n < MAX_GIT_ARGS - 1; args++)
        argv[n++] = *args;
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
static int open_scratch(const struct gitfiles_options *o, FILE **ret, struct err *e)
{
    int fd = open(o->ctx->cache_dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    FILE *f;

    if (fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR)) {
        _cleanup_free_ char *path = path_join(o->ctx->cache_dir, "list-XXXXXX");

        if (!path)
            return err_oom(e);
        fd = mkostemp(path, O_CLOEXEC);
        if (fd >= 0)
            (void)unlink(path);
    }
    if (fd < 0)
        return err_sys(e, errno, "a temporary file in '%s'", o->ctx->cache_dir);
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
    int r = open_scratch(l->o, &f, e);

    if (r == 0)
        r = run_git(l->o, dir, args, NULL, fileno(f), NULL, e);
    if (r < 0)
        return r;
    rewind(f);
    *ret = TAKE(f);
    return 0;
}

/* ---- the list ---- */

static int put_record(struct gitfiles *g, const char *name, const char *host_path, struct err *e)
{
    if (fwrite(name, strlen(name) + 1, 1, g->list) != 1 ||
        fwrite(host_path, strlen(host_path) + 1, 1, g->list) != 1)
        return err_sys(e, errno, "the list of files");
    return 0;
}

/* What has gone in the meantime is not there; sockets and the like can't be sent. */
static int add_path(struct listing *l, const char *name, const char *host_path, struct err *e)
{
    struct stat st;

    if (strlen(host_path) > GITFILES_MAX_PATH_BYTES)
        return err_field(e, ERR_INVALID, name, "the path '%.80s...' is too long", name);
    if (lstat(host_path, &st) < 0)
        return errno == ENOENT || errno == ENOTDIR ? 0 : err_sys(e, errno, "stat '%s'", host_path);
    if (!S_ISREG(st.st_mode) && !S_ISLNK(st.st_mode) && !S_ISDIR(st.st_mode))
        return 0;
    if (!S_ISDIR(st.st_mode))
        l->out->files++;
    if (S_ISREG(st.st_mode))
        l->out->bytes += (uint64_t)st.st_size;
    return put_record(l->out, name, host_path, e);
}

static int leave_out(struct listing *l, const char *name, struct err *e)
{
    if (strv_len(l->out->left_out) >= MAX_LEFT_OUT)
        return err_set(e, ERR_EXHAUSTED, "more than %d files look like secrets", MAX_LEFT_OUT);
    return strv_push(&l->out->left_out, name, e);
}

static int add_untracked(struct listing *l, const char *name, const char *host_path, struct err *e)
{
    if (!l->o->with_secrets && secretfiles_match(path_name(name), host_path))
        return leave_out(l, name, e);
    return add_path(l, name, host_path, e);
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

static int walk_entry(struct listing *l, FTS *fts, FTSENT *ent, const char *name,
                      enum walk_kind kind, struct err *e)
{
    bool is_dir = ent->fts_info == FTS_D;

    if (kind == WALK_PROJECT && is_ignored(l, name, is_dir)) {
        (void)fts_set(fts, ent, FTS_SKIP);
        return 0;
    }
    if (kind == WALK_PROJECT && str_eq(l->o->git, "none") && str_eq(ent->fts_name, ".git")) {
        (void)fts_set(fts, ent, FTS_SKIP);
        return 0;
    }
    if (kind == WALK_GIT_DIR && !is_dir && str_has_suffix(ent->fts_name, ".lock"))
        return 0;
    if (ent->fts_info == FTS_DNR || ent->fts_info == FTS_ERR)
        return err_sys(e, ent->fts_errno, "read '%s'", ent->fts_path);
    if (kind == WALK_PROJECT && !is_dir)
        return add_untracked(l, name, ent->fts_path, e);
    return add_path(l, name, ent->fts_path, e);
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

static int walk_open(struct listing *l, FTS *fts, const char *root, const char *prefix,
                     enum walk_kind kind, struct err *e)
{
    FTSENT *ent;

    while (((void)(errno = 0), ent = fts_read(fts))) {
        _cleanup_free_ char *name = name_below(prefix, root, ent->fts_path);
        int r;

        if (!name)
            return err_oom(e);
        if (ent->fts_info == FTS_DP || !*name)
            continue;
        r = walk_entry(l, fts, ent, name, kind, e);
        if (r < 0)
            return r;
    }
    return errno ? err_sys(e, errno, "read '%s'", root) : 0;
}

/* A tree of this machine, its names under prefix ("": the top). */
static int walk(struct listing *l, const char *root, const char *prefix, enum walk_kind kind,
                struct err *e)
{
    char *const roots[] = {(char *)root, NULL};
    FTS *fts = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, compare_fts);
    int r;

    if (!fts)
        return err_sys(e, errno, "read '%s'", root);
    r = walk_open(l, fts, root, prefix, kind, e);
    (void)fts_close(fts);
    return r;
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
static int add_worktree_entry(struct listing *l, FTS *fts, FTSENT *ent, const char *rel,
                              const struct overlay *over, struct err *e)
{
    static const char *const own_links[] = {"gitdir", "commondir", "locked"};
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
    return walk_entry(l, fts, ent, name, WALK_GIT_DIR, e);
}

static int walk_worktree_part(struct listing *l, const char *root, const struct overlay *over,
                              struct err *e)
{
    char *const roots[] = {(char *)root, NULL};
    FTS *fts = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, compare_fts);
    FTSENT *ent;
    int r = 0;

    if (!fts)
        return err_sys(e, errno, "read '%s'", root);
    while (r == 0 && ((void)(errno = 0), ent = fts_read(fts))) {
        const char *rel = ent->fts_path + strlen(root);

        rel += *rel == '/';
        /* A directory that both have is named once, by the shared one. */
        if (ent->fts_info == FTS_DP || !*rel || (!over && ent->fts_info == FTS_D))
            continue;
        r = add_worktree_entry(l, fts, ent, rel, over, e);
    }
    if (r == 0 && errno)
        r = err_sys(e, errno, "read '%s'", root);
    (void)fts_close(fts);
    return r;
}

/* A linked work tree (`git worktree add`) becomes a repository of its own. */
static int add_linked_git(struct listing *l, const char *dir, struct err *e)
{
    static const char *const ask_own[] = {"rev-parse", "--absolute-git-dir", NULL};
    static const char *const ask_common[] = {"rev-parse", "--path-format=absolute",
                                             "--git-common-dir", NULL};
    _cleanup_free_ char *own = NULL, *common = NULL;
    struct overlay over;
    int r = ask_git(l->o, dir, ask_own, &own, e);

    if (r == 0)
        r = ask_git(l->o, dir, ask_common, &common, e);
    if (r < 0)
        return r;
    over.own = own;
    if (str_eq(own, common)) /* a submodule's, or made by --separate-git-dir */
        return walk(l, own, ".git", WALK_GIT_DIR, e);
    r = walk_worktree_part(l, common, &over, e);
    return r < 0 ? r : walk_worktree_part(l, own, NULL, e);
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
        r = check_alternates(host, e);
        return r < 0 ? r : walk(l, host, name, WALK_GIT_DIR, e);
    }
    /* A submodule's ".git" leads into the .git of the whole by a relative path. */
    return *prefix ? add_path(l, name, host, e) : add_linked_git(l, dir, e);
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
    static const char *const ask[] = {"config", "--get", "remote.origin.url", NULL};
    static const char *const forget[] = {"remote", "remove", "origin", NULL};
    const char *set[] = {"remote", "set-url", "origin", NULL, NULL};
    _cleanup_free_ char *url = NULL;

    if (ask_git(l->o, dir, ask, &url, NULL) < 0)
        return run_git(l->o, clone, forget, NULL, -1, NULL, e);
    set[3] = url;
    return run_git(l->o, clone, set, NULL, -1, NULL, e);
}

static int add_shallow_git(struct listing *l, const char *dir, struct err *e)
{
    static const char *const reset[] = {"read-tree", "HEAD", NULL};
    _cleanup_free_ char *tmp = path_join(l->o->ctx->cache_dir, "clone-XXXXXX");
    _cleanup_free_ char *url = NULL, *clone = NULL, *config = NULL, *git = NULL;
    const char *args[] = {"clone",       "-q", "--depth", "1", "--no-checkout",
                          "--template=", NULL, NULL,      NULL};
    const char *env[] = {NULL, NULL};
    int r;

    if (!tmp)
        return err_oom(e);
    if (!mkdtemp(tmp))
        return err_sys(e, errno, "mkdir '%s'", tmp);
    l->out->tmp_dir = TAKE(tmp);
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
    return r < 0 ? err_wrap(e, r, "a shallow copy of .git") : walk(l, git, ".git", WALK_GIT_DIR, e);
}

/* ---- repositories ---- */

static int add_repository(struct listing *l, const char *dir, const char *prefix, unsigned depth,
                          struct err *e);

/* "sub" or "sub/": a repository within the repository, a submodule or not. */
static int add_nested(struct listing *l, const char *dir, const char *prefix, const char *rel,
                      bool is_tracked, unsigned depth, struct err *e)
{
    _cleanup_free_ char *trimmed = path_clean(rel);
    _cleanup_free_ char *sub = trimmed ? path_join(dir, trimmed) : NULL;
    _cleanup_free_ char *name = trimmed ? name_below(prefix, "", trimmed) : NULL;
    _cleanup_free_ char *git = sub ? path_join(sub, ".git") : NULL;

    if (!sub || !name || !git)
        return err_oom(e);
    /* A submodule that is not there, or a directory where a file was: git lists what is in it. */
    if (access(git, F_OK) < 0)
        return is_tracked ? add_path(l, name, sub, e) : walk(l, sub, name, WALK_PROJECT, e);
    if (depth + 1 >= GITFILES_MAX_DEPTH)
        return err_field(e, ERR_INVALID, "project", "'%s': repositories are nested too deeply",
                         name);
    return add_repository(l, sub, name, depth + 1, e);
}

static bool is_real_dir(const char *path)
{
    struct stat st;

    return lstat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static int add_listed(struct listing *l, const char *dir, const char *prefix, const char *rel,
                      bool is_tracked, unsigned depth, struct err *e)
{
    _cleanup_free_ char *host = path_join(dir, rel);
    _cleanup_free_ char *name = name_below(prefix, "", rel);

    if (!host || !name)
        return err_oom(e);
    if (is_ignored(l, name, false))
        return 0;
    if (is_real_dir(host))
        return add_nested(l, dir, prefix, rel, is_tracked, depth, e);
    return is_tracked ? add_path(l, name, host, e) : add_untracked(l, name, host, e);
}

static int add_all_listed(struct listing *l, const char *dir, const char *prefix, FILE *from,
                          bool is_tracked, unsigned depth, struct err *e)
{
    _cleanup_free_ char *rel = NULL, *last = NULL;
    size_t cap = 0;
    int r = 0;

    while (r == 0 && getdelim(&rel, &cap, '\0', from) > 0) {
        /* In the middle of a merge a path stands there up to three times. */
        if (last && str_eq(rel, last))
            continue;
        r = add_listed(l, dir, prefix, rel, is_tracked, depth, e);
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
        r = add_all_listed(l, dir, prefix, tracked, true, depth, e);
    if (r == 0)
        r = add_all_listed(l, dir, prefix, untracked, false, depth, e);
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
    _cleanup_free_ char *tmp = path_join(l->o->ctx->cache_dir, "clone-XXXXXX");
    _cleanup_free_ char *git_dir = NULL, *work_tree = NULL;
    const char *init[] = {"init", "-q", "--bare", "--template=", NULL, NULL};
    const char *list[] = {NULL, NULL, "ls-files", "-z", "-o", "-i", "--directory", NULL, NULL};
    int r;

    if (!tmp)
        return err_oom(e);
    if (!mkdtemp(tmp))
        return err_sys(e, errno, "mkdir '%s'", tmp);
    l->out->tmp_dir = TAKE(tmp);
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
    int is_repository = find_repository(l->o, &l->is_top, e);
    int r;

    if (is_repository < 0)
        return is_repository;
    r = load_ignore_file(l, is_repository, e);
    if (r < 0)
        return r;
    if (!is_repository)
        return walk(l, l->o->source, "", WALK_PROJECT, e);
    if (!l->is_top)
        l->out->note = strdup("a part of a repository: sent without .git");
    return add_repository(l, l->o->source, "", 0, e);
}

static int list_as_is(struct listing *l, struct err *e)
{
    struct stat st;

    if (stat(l->o->source, &st) < 0)
        return err_sys(e, errno, "stat '%s'", l->o->source);
    if (S_ISDIR(st.st_mode))
        return walk(l, l->o->source, "", WALK_ALL, e);
    return add_path(l, l->o->as ? l->o->as : path_name(l->o->source), l->o->source, e);
}

int gitfiles_list(const struct gitfiles_options *o, struct gitfiles *ret, struct err *e)
{
    struct gitfiles out = {0};
    struct listing l = {.o = o, .out = &out};
    int r = open_scratch(o, &out.list, e);

    if (r == 0)
        r = str_eq(o->git, "as-is") ? list_as_is(&l, e) : list_project(&l, e);
    strv_free(l.ignored);
    free(l.ignore_arg);
    if (r == 0 && fflush(out.list) != 0)
        r = err_sys(e, errno, "the list of files");
    if (r < 0) {
        gitfiles_done(&out);
        return r;
    }
    rewind(out.list);
    *ret = out;
    return 0;
}

int gitfiles_next(struct gitfiles *g, const char **ret_name, const char **ret_host_path,
                  struct err *e)
{
    errno = 0;
    if (getdelim(&g->path, &g->path_cap, '\0', g->list) <= 0 ||
        getdelim(&g->host_path, &g->host_cap, '\0', g->list) <= 0)
        return ferror(g->list) ? err_sys(e, errno, "the list of files") : 0;
    *ret_name = g->path;
    *ret_host_path = g->host_path;
    return 1;
}

static void remove_tree(const char *dir)
{
    char *const roots[] = {(char *)dir, NULL};
    FTS *fts = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR | FTS_NOSTAT, NULL);
    FTSENT *ent;

    while (fts && (ent = fts_read(fts))) {
        if (ent->fts_info == FTS_D)
            continue;
        if (remove(ent->fts_accpath) < 0)
            break; /* it is our cache: what stays is found there */
    }
    if (fts)
        (void)fts_close(fts);
}

void gitfiles_done(struct gitfiles *g)
{
    if (!g)
        return;
    if (g->list)
        (void)fclose(g->list);
    if (g->tmp_dir)
        remove_tree(g->tmp_dir);
    free(g->tmp_dir);
    strv_free(g->left_out);
    free(g->note);
    free(g->path);
    free(g->host_path);
    *g = (struct gitfiles){0};
}
