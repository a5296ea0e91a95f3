#pragma once
/*
 * resolve: guest/fs/root.c's own parts: what an fs_root is, and the resolution of a path one
 * component at a time, for kernels without openat2 and for absolute links within a root. Not for
 * other modules.
 */
#include <stdbool.h>
#include <sys/types.h>

#include "fs/root.h"

#define FS_RESOLVE_MAX_DEPTH 256 /* directories below a root that are held open on the way */

struct fs_root {
    int fd;                 /* O_PATH */
    char *path;             /* real */
    bool is_whole;          /* "/" */
    struct fs_feeds *feeds; /* borrowed, or NULL */
};

/* What follows the root in an absolute path ("" for the root itself); NULL when it is not below
 * it by its letters. Points into path. Decides nothing: ".." in the rest is for the kernel. */
const char *fs_root_relative(const struct fs_root *r, const char *path);

/* Descriptor, or -1 with errno; EXDEV: outside the root. */
int fs_resolve_walk(const struct fs_root *root, const char *path, int flags, mode_t mode);
