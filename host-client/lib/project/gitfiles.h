#pragma once
/*
 * gitfiles: lists the files of a project that go into a box, in order, with their place on this
 * machine. git says which files are tracked and ignored; it runs with a clean environment and
 * without the project's hooks. The list is kept in an unnamed file, so a large project costs no
 * memory.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "common/err.h"
#include "lib/util/context.h"

#define GITFILES_MAX_DEPTH 8 /* repositories within repositories */
/* The source, two git directories, the files made for them, and the list of removals of a sync. */
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
    int roots[GITFILES_MAX_ROOTS]; /* root 0: the source, or the directory of the one file */
    unsigned n_roots;
    char *tmp_dir; /* holds the files made for .git; removed with the list */
    uint64_t files;
    uint64_t bytes;
    char **left_out; /* strv: files that look like secrets, relative to source */
    char *note;      /* a note for the user, or NULL */
    /* buffers of gitfiles_next() */
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

/* Begins an empty list with the same roots; files and bytes are 0. */
int gitfiles_restart(struct gitfiles *g, const struct bh_ctx *ctx, struct err *e);
int gitfiles_add_root(struct gitfiles *g, const char *dir, unsigned *ret, struct err *e);
int gitfiles_put(struct gitfiles *g, const struct gitfiles_entry *en, struct err *e);
int gitfiles_rewind(struct gitfiles *g, struct err *e); /* the next entry is the first */
