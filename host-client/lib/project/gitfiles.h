#pragma once
/*
 * gitfiles: which files of a project go into a box, in order, with where they are on this
 * machine. git says what is tracked and ignored; it is run with a clean environment and without
 * the project's own hooks. The list is kept in an unnamed file, so a large project costs
 * no memory.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "common/err.h"
#include "lib/util/context.h"

#define GITFILES_MAX_DEPTH 8 /* repositories within repositories */
/* The source, two git directories, what was made for them, a sync's list of removals. */
#define GITFILES_MAX_ROOTS 5
#define GITFILES_MAX_PATH_BYTES (64 * 1024)

struct gitfiles_options {
    struct bh_ctx *ctx;
    const char *source; /* a directory, or with "as-is" also a file; absolute, no symlink */
    const char *git;    /* "full", "shallow", "none", "as-is" */
    const char *as;     /* a single file's name in the box; NULL: its own */
    bool with_secrets;
    int64_t deadline_mono_ms;
};

struct gitfiles {
    FILE *list;
    int roots[GITFILES_MAX_ROOTS]; /* 0: the source, or the directory of the one file */
    unsigned n_roots;
    char *tmp_dir; /* what was made for .git; removed with the list */
    uint64_t files;
    uint64_t bytes;
    char **left_out; /* strv: secret-looking, relative to source */
    char *note;      /* what the user should know of the list, or NULL */
    /* of gitfiles_next() */
    char *name;
    char *path;
    size_t name_cap, path_cap;
};

struct gitfiles_entry {
    const char *name; /* in the box, relative */
    unsigned root;
    const char *path; /* beneath roots[root] */
};

int gitfiles_list(const struct gitfiles_options *o, struct gitfiles *ret, struct err *e);
/* 1 and the next entry (valid until the next call), 0 at the end. */
int gitfiles_next(struct gitfiles *g, struct gitfiles_entry *ret, struct err *e);
void gitfiles_done(struct gitfiles *g); /* accepts zeroed */

/* For a list of one's own: the roots stay, files and bytes are 0. */
int gitfiles_restart(struct gitfiles *g, const struct bh_ctx *ctx, struct err *e);
int gitfiles_add_root(struct gitfiles *g, const char *dir, unsigned *ret, struct err *e);
int gitfiles_put(struct gitfiles *g, const struct gitfiles_entry *en, struct err *e);
int gitfiles_rewind(struct gitfiles *g, struct err *e); /* to be read from the beginning */
