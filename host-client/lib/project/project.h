#pragma once
/*
 * project: the project of a box, and the default name of a project's box. Two directories of one
 * name, or names that become the same (A_b, a-b), are two projects and get two boxes: the second
 * box's name ends with digits of a hash of its path or URL.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bellhop/bellhop.h"
#include "common/err.h"
#include "lib/util/context.h"

#define PROJECT_NAME_BYTES 64
#define PROJECT_N_NAMES 4 /* 0, 6, 10 and 16 digits */

struct project {
    char *path;   /* absolute, without symlinks; "": a repository to clone, or no project */
    char *remote; /* the git remote, or the repository's URL, without user and password; or "" */
    char base[PROJECT_NAME_BYTES]; /* the name without digits; "": none */
};

/* Reads the project from opts->project or opts->repo_url. A directory that does not exist has
 * no path. */
int project_read(struct bh_ctx *ctx, const struct bh_create_options *opts, struct project *ret,
                 struct err *e);
void project_done(struct project *p); /* accepts zeroed */

/* The i-th name that a box of this project may have. */
void project_name(const struct project *p, size_t i, char out[PROJECT_NAME_BYTES]);

/* Is a box with this path and remote a box of the project? A box that does not know its project
 * (path NULL) can be anybody's. Two paths are compared; without them, two remotes. */
bool project_has_box(const struct project *p, const char *path, const char *remote);
