#pragma once
/*
 * gitfiles_listing: shared by the files of gitfiles while a list is made. gitfiles.c runs git and
 * walks trees, gitfiles_repository.c adds a repository's .git, its files, and those of the
 * repositories within it.
 */
#include <fts.h>
#include <stdbool.h>
#include <stdio.h>

#include "common/buf.h"
#include "common/err.h"
#include "lib/project/gitfiles.h"

struct listing {
    const struct gitfiles_options *o;
    struct gitfiles *out;
    char **ignored;   /* sorted names that .bellhopignore takes away; directories end with '/' */
    char *ignore_arg; /* "--exclude-from=..." or NULL */
    bool is_top;      /* the source is a repository, not a part of one */
    const char *made; /* a name in .git whose file is made anew instead of copied; or NULL */
};

/* ---- git ---- */

/* git in `dir`, with `env` ("K=V", or NULL) on top; its output goes to out_fd or out. */
int listing_run_git(const struct gitfiles_options *o, const char *dir, const char *const *args,
                    const char *const *env, int out_fd, struct buf *out, struct err *e);
/* One line of an answer; free() it. */
int listing_ask_git(const struct gitfiles_options *o, const char *dir, const char *const *args,
                    char **ret, struct err *e);
/* git's NUL-separated answer in a scratch file, at its beginning. */
int listing_list_git(struct listing *l, const char *dir, const char *const *args, FILE **ret,
                     struct err *e);
/* l->out->tmp_dir, a new directory in the cache. */
int listing_make_tmp_dir(struct listing *l, struct err *e);

/* ---- entries ---- */

/* Skips an entry that has vanished, lies behind a link as git sees it, or cannot be sent (a
 * socket). */
int listing_add_path(struct listing *l, const struct gitfiles_entry *en, struct err *e);
/* A file of the source, which has the same name there and in the box. */
int listing_add_own(struct listing *l, const char *name, struct err *e);
/* The same, unless it looks like a secret. */
int listing_add_untracked(struct listing *l, const char *name, struct err *e);

/* ---- trees ---- */

enum walk_kind {
    WALK_ALL,     /* as it is */
    WALK_PROJECT, /* without secrets and the names in .bellhopignore */
    WALK_GIT_DIR, /* without locks that a running git holds */
};

/* A tree of this machine. */
struct listing_tree {
    const char *host;
    const char *prefix; /* its names in the box begin with it; "": none */
    unsigned root;      /* 0: it lies in the source, at `prefix`; else it is that root itself */
    enum walk_kind kind;
};

int listing_walk(struct listing *l, const struct listing_tree *t, struct err *e);
int listing_walk_entry(struct listing *l, FTS *fts, FTSENT *ent, const struct gitfiles_entry *en,
                       enum walk_kind kind, struct err *e);
int listing_compare_fts(const FTSENT **a, const FTSENT **b);
/* "sub/file" within root, under prefix; free() it. NULL: out of memory. */
char *listing_name_below(const char *prefix, const char *root, const char *path);

/* ---- repositories ---- */

/* The repository in `dir`, with those within it, under `prefix`; depth 0 is the source itself. */
int listing_add_repository(struct listing *l, const char *dir, const char *prefix, unsigned depth,
                           struct err *e);

/* Reads .bellhopignore: sets l->ignore_arg, and l->ignored to the names that git's own listing
 * would not see as ignored. */
int listing_load_ignore_file(struct listing *l, bool is_repository, struct err *e);
bool listing_is_ignored(const struct listing *l, const char *name, bool is_dir);
