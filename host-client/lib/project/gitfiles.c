#include "lib/project/gitfiles.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <fts.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/buf.h"
#include "common/cleanup.h"
#include "common/clock.h"
#include "common/io.h"
#include "common/path.h"
#include "common/str.h"
#include "lib/project/gitfiles_listing.h"
#include "lib/util/beneath.h"
#include "lib/util/hostcmd.h"

#define GIT_ANSWER_BYTES (64 * 1024)
#define MAX_GIT_ARGS 24
#define MAX_LEFT_OUT 10000

/* ---- secrets ---- */

/*
 * Whether a file holds a secret is guessed by its name; for npm's and pip's settings also by its
 * content. The guess errs on the side of leaving out: it is applied only to files that git does not
 * track, and files left out are listed.
 */

#define SETTINGS_MAX_BYTES (64 * 1024)

/* Harmless names that match the patterns below. */
static const char *const harmless_names[] = {
    ".env.example", ".env.sample", ".env.template", ".env.dist", ".env.defaults", "*.pub",
};

static const char *const secret_names[] = {
    ".env",
    ".env.*",
    "*.env",
    ".envrc",
    "*.pem",
    "*.key",
    "*.p12",
    "*.pfx",
    "*.jks",
    "*.keystore",
    "*.ppk",
    "*.kdbx",
    "*.asc",
    "id_rsa*",
    "id_dsa*",
    "id_ecdsa*",
    "id_ed25519*",
    "credentials",
    ".credentials",
    "credentials.json",
    "credentials.y*ml",
    "credentials.toml",
    "credentials.ini",
    "credentials.csv",
    "credentials.db",
    "credentials.txt",
    ".netrc",
    "_netrc",
    ".pgpass",
    ".my.cnf",
    ".git-credentials",
    ".htpasswd",
    ".dockercfg",
    "kubeconfig",
    "secrets.json",
    "secrets.y*ml",
    "secrets.toml",
    "secrets.env",
    "service-account*.json",
    "service_account*.json",
    "*.tfvars",
    "*.ovpn",
};

/* Settings files that are secret if they contain a credential. */
static const struct {
    const char *name;
    const char *word;
} settings_files[] = {
    {".npmrc", "_auth"},     {".npmrc", "_password"}, {".yarnrc.yml", "npmAuth"},
    {".pypirc", "password"}, {"pip.conf", "@"},
};

static bool matches_any(const char *const *patterns, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (fnmatch(patterns[i], name, FNM_CASEFOLD) == 0)
            return true;
    return false;
}

/* A link has none: where it leads is not sent. */
static bool has_word(int root, const char *path, const char *word)
{
    _cleanup_free_ char *text = NULL;
    struct err e = {0};

    if (beneath_read_file(root, path, SETTINGS_MAX_BYTES, &text, NULL, &e) < 0)
        return e.sys != ELOOP; /* not readable, or too long to be settings: better left out */
    return strstr(text, word) != NULL;
}

/* name: the last part of its path; path: where it is beneath the directory `root`. */
static bool secretfiles_match(const char *name, int root, const char *path)
{
    if (matches_any(harmless_names, N_ELEMENTS(harmless_names), name))
        return false;
    if (matches_any(secret_names, N_ELEMENTS(secret_names), name))
        return true;
    for (size_t i = 0; i < N_ELEMENTS(settings_files); i++)
        if (strcasecmp(settings_files[i].name, name) == 0 &&
            has_word(root, path, settings_files[i].word))
            return true;
    return false;
}

/* ---- running git ---- */

/*
 * Runs git in a repository that may belong to somebody else. safe.directory skips the check of the
 * owner, so nothing in its configuration that names a program may take effect: no monitor, no
 * hooks, and no fetch, since the configuration of a remote names a program too.
 */
int listing_run_git(const struct gitfiles_options *o, const char *dir, const char *const *args,
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
                          .debug = &o->ctx->debug,
                          .deadline_mono_ms = o->deadline_mono_ms};
    size_t n = 9, m = 3;

    for (; *args && n < MAX_GIT_ARGS - 1; args++)
        argv[n++] = *args;
    if (!env) /* for a git that ignores GIT_NO_LAZY_FETCH */
        all_env[m++] = "GIT_ALLOW_PROTOCOL=none";
    for (; env && *env && m < N_ELEMENTS(all_env) - 1; env++)
        all_env[m++] = *env;
    return hostcmd_run(&cmd, NULL, e);
}

int listing_ask_git(const struct gitfiles_options *o, const char *dir, const char *const *args,
                    char **ret, struct err *e)
{
    _cleanup_buf_ struct buf out;
    int r;

    buf_init(&out, GIT_ANSWER_BYTES);
    r = listing_run_git(o, dir, args, NULL, -1, &out, e);
    if (r < 0)
        return r;
    if (out.len && out.data[out.len - 1] == '\n')
        out.data[--out.len] = '\0';
    *ret = buf_take(&out);
    return *ret ? 0 : err_oom(e);
}

/* Opens a file without a name: it vanishes when it is closed, whatever happens. */
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

int listing_list_git(struct listing *l, const char *dir, const char *const *args, FILE **ret,
                     struct err *e)
{
    _cleanup_fclose_ FILE *f = NULL;
    int r = open_scratch(l->o->ctx, &f, e);

    if (r == 0)
        r = listing_run_git(l->o, dir, args, NULL, fileno(f), NULL, e);
    if (r < 0)
        return r;
    rewind(f);
    *ret = TAKE(f);
    return 0;
}

int listing_make_tmp_dir(struct listing *l, struct err *e)
{
    _cleanup_free_ char *tmp = path_join(l->o->ctx->cache_dir, "clone-XXXXXX");

    if (!tmp)
        return err_oom(e);
    if (!mkdtemp(tmp))
        return err_sys(e, errno, "mkdir '%s'", tmp);
    l->out->tmp_dir = TAKE(tmp);
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
 * A vanished file is skipped, as is a file behind a link, as git does. Sockets and the like cannot
 * be sent.
 */
int listing_add_path(struct listing *l, const struct gitfiles_entry *en, struct err *e)
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

int listing_add_own(struct listing *l, const char *name, struct err *e)
{
    return listing_add_path(l, &(struct gitfiles_entry){.name = name, .path = name}, e);
}

static int leave_out(struct listing *l, const char *name, struct err *e)
{
    if (strv_len(l->out->left_out) >= MAX_LEFT_OUT)
        return err_set(e, ERR_EXHAUSTED, "more than %d files look like secrets", MAX_LEFT_OUT);
    return strv_push(&l->out->left_out, name, e);
}

int listing_add_untracked(struct listing *l, const char *name, struct err *e)
{
    if (!l->o->with_secrets && secretfiles_match(path_name(name), l->out->roots[0], name))
        return leave_out(l, name, e);
    return listing_add_own(l, name, e);
}

/* ---- whole trees ---- */

int listing_compare_fts(const FTSENT **a, const FTSENT **b)
{
    return strcmp((*a)->fts_name, (*b)->fts_name);
}

int listing_walk_entry(struct listing *l, FTS *fts, FTSENT *ent, const struct gitfiles_entry *en,
                       enum walk_kind kind, struct err *e)
{
    bool is_dir = ent->fts_info == FTS_D;

    if (kind == WALK_PROJECT && listing_is_ignored(l, en->name, is_dir)) {
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
        return listing_add_untracked(l, en->name, e);
    return listing_add_path(l, en, e);
}

char *listing_name_below(const char *prefix, const char *root, const char *path)
{
    const char *rest = path + strlen(root);
    char *name = NULL;

    rest += *rest == '/';
    if (asprintf(&name, "%s%s%s", prefix, *prefix && *rest ? "/" : "", rest) < 0)
        return NULL;
    return name;
}

static int walk_open(struct listing *l, FTS *fts, const struct listing_tree *t, struct err *e)
{
    FTSENT *ent;

    while (((void)(errno = 0), ent = fts_read(fts))) {
        _cleanup_free_ char *name = listing_name_below(t->prefix, t->host, ent->fts_path);
        struct gitfiles_entry en = {.name = name, .root = t->root, .path = name};
        int r;

        if (!name)
            return err_oom(e);
        if (ent->fts_info == FTS_DP || ent->fts_level == FTS_ROOTLEVEL)
            continue;
        if (t->root)
            en.path = ent->fts_path + strlen(t->host) + 1;
        r = listing_walk_entry(l, fts, ent, &en, t->kind, e);
        if (r < 0)
            return r;
    }
    return errno ? err_sys(e, errno, "read '%s'", t->host) : 0;
}

int listing_walk(struct listing *l, const struct listing_tree *t, struct err *e)
{
    char *const roots[] = {(char *)t->host, NULL};
    FTS *fts = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, listing_compare_fts);
    int r;

    if (!fts)
        return err_sys(e, errno, "read '%s'", t->host);
    r = walk_open(l, fts, t, e);
    (void)fts_close(fts);
    return r;
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
    r = listing_ask_git(o, o->source, args, &top, &why);
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
    struct listing_tree t = {.host = l->o->source, .prefix = "", .kind = WALK_PROJECT};
    int is_repository = find_repository(l->o, &l->is_top, e);
    unsigned root;
    int r;

    if (is_repository < 0)
        return is_repository;
    r = listing_load_ignore_file(l, is_repository, e);
    if (r == 0)
        r = gitfiles_add_root(l->out, l->o->source, &root, e);
    if (r < 0)
        return r;
    if (!is_repository)
        return listing_walk(l, &t, e);
    if (!l->is_top)
        l->out->note = strdup("a part of a repository: sent without .git");
    return listing_add_repository(l, l->o->source, "", 0, e);
}

static int list_one_file(struct listing *l, struct err *e)
{
    const char *path = l->o->source, *as = l->o->as;
    _cleanup_free_ char *dir = path_dir(path);
    struct gitfiles_entry en = {.name = as ? as : path_name(path), .path = path_name(path)};
    int r = dir ? gitfiles_add_root(l->out, dir, &en.root, e) : err_oom(e);

    return r < 0 ? r : listing_add_path(l, &en, e);
}

static int list_as_is(struct listing *l, struct err *e)
{
    struct listing_tree t = {.host = l->o->source, .prefix = "", .kind = WALK_ALL};
    struct stat st;
    unsigned root;
    int r;

    if (stat(l->o->source, &st) < 0)
        return err_sys(e, errno, "stat '%s'", l->o->source);
    if (!S_ISDIR(st.st_mode))
        return list_one_file(l, e);
    r = gitfiles_add_root(l->out, l->o->source, &root, e);
    return r < 0 ? r : listing_walk(l, &t, e);
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
        /* it lies in our cache: leftovers are found there */
        (void)dirtree_remove(g->tmp_dir, NULL);
    free(g->tmp_dir);
    strv_free(g->left_out);
    free(g->note);
    free(g->name);
    free(g->path);
    *g = (struct gitfiles){0};
}
