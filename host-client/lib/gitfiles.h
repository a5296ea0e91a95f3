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
#include "lib/context.h"

#define GITFILES_MAX_DEPTH 8 /* repositories within repositories */
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
    char *tmp_dir; /* what a shallow copy of .git was made in; removed with the list */
    uint64_t files;
    uint64_t bytes;
    char **left_out; /* strv: secret-looking, relative to source */
    char *note;      /* what the user should know of the list, or NULL */
    /* of gitfiles_next() */
    char *path;
    char *host_path;
    size_t path_cap, host_cap;
};

int gitfiles_list(const struct gitfiles_options *o, struct gitfiles *ret, struct err *e);
/* 1 and the next file's name in the box (relative) and path here (both valid until the next
 * call), 0 at the end. */
int gitfiles_next(struct gitfiles *g, const char **ret_name, const char **ret_host_path,
                  struct err *e);
void gitfiles_done(struct gitfiles *g); /* accepts zeroed */
