#pragma once
/* dirs: directories made on the way to a file, owned by the user they are made for. Blocks. */
#include <sys/types.h>

#include "common/err.h"
#include "fs/root.h"

struct owner {
    uid_t uid;
    gid_t gid;
};

/* mkdir -p with 0755; existing directories stay as they are. -ERR_INTERNAL: "path is a file: ..."
 * and the kernel's error. With ".." behind a directory that is missing nothing is made: there is no
 * such path. */
int dirs_make(const struct fs_caller *c, const char *path, const struct owner *o, struct err *e);
/* The same for the directory that holds path; 0 if there is no such path. */
int dirs_make_parents(const struct fs_caller *c, const char *path, const struct owner *o,
                      struct err *e);
