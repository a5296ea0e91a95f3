#pragma once
/*
 * below: files and directories below a directory that is open, by relative paths, without following
 * a symbolic link on the way.
 */
#include <stdbool.h>

#include "common/err.h"

#define FS_BELOW_DIR_MODE 0755

/* dir: "" for base itself. An O_PATH descriptor. -ERR_INVALID when a link or file is in the way. */
int fs_open_below(int base, const char *dir, bool make, int *ret_fd, struct err *e);

/* "a/b/c" -> "a/b" (owned by the caller), *ret_name "c"; "c" -> "". NULL: out of memory. */
char *fs_below_parent(const char *path, const char **ret_name);

/*
 * The path may have any length. O_CLOEXEC, O_NOCTTY and O_NONBLOCK are added to flags. Returns the
 * descriptor or -errno; -ELOOP for a symbolic link.
 */
int fs_openat_below(int base, const char *path, int flags);
