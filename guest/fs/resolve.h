#pragma once
/*
 * resolve: the parts of guest/fs/root.c: struct fs_root, and the resolution of a path one component
 * at a time, for kernels without openat2 and for absolute links within a root. Not for other
 * modules.
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

/* The part of an absolute path behind the root ("" for the root itself), pointing into path; NULL
 * if the path does not begin with the root. Lexical, so no check: the kernel resolves ".." in the
 * rest. */
const char *fs_root_relative(const struct fs_root *r, const char *path);

/* Descriptor, or -1 with errno; EXDEV: outside the root. */
int fs_resolve_walk(const struct fs_root *root, const char *path, int flags, mode_t mode);
