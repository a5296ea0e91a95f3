#pragma once
/*
 * beneath: opens files of this machine by names that a box or a repository chose. A name is
 * relative to a directory's descriptor, and no symbolic link is followed, neither on the way nor
 * in the last place. The kernel resolves it (openat2), or, without openat2, a walk that opens one
 * component at a time. All functions are thread-safe. None blocks on a FIFO.
 */
#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "common/err.h"

/* Relative, and without a component "..". */
bool beneath_is_inside(const char *name);
/* Has a component that git takes for a repository's on some file system: ".git" in any case,
 * also followed by dots and blanks. */
bool beneath_names_git(const char *name);

/*
 * A descriptor, or -1 with errno. ELOOP or ENOTDIR: a link is in the way; EXDEV: the name leads
 * outside. "" is the root itself. O_CLOEXEC, O_NOFOLLOW, O_NOCTTY and O_NONBLOCK are added; O_PATH
 * opens a link in the last place itself.
 */
int beneath_open(int root, const char *name, int flags);
/* As lstat(); -1 with errno. */
int beneath_stat(int root, const char *name, struct stat *ret);
/* The text of a link, at most size - 1 bytes and a NUL. Its length, or -1 with errno. */
ssize_t beneath_readlink(int root, const char *name, char *out, size_t size);
/* As io_read_file(), of a regular file. */
int beneath_read_file(int root, const char *name, size_t max, char **ret, size_t *ret_len,
                      struct err *e);

/* Sets the mode of one entry of a directory. -1 with errno: ELOOP for a link. */
int beneath_chmod(int dir, const char *name, mode_t mode);

/* For tests: from now on behave as if the kernel had no openat2. */
void beneath_force_walk(bool on);

/* ---- removal ---- */

/* Removes a directory tree. */

/* Works at any depth. Does not follow links; fails on a mount below; a missing path is no
 * error. */
int dirtree_remove(const char *path, struct err *e);
/* The bytes on the disk of what is below, at least. False: there are more than max_entries, or some
 * could not be read. */
bool dirtree_measure(const char *path, size_t max_entries, uint64_t *ret_bytes);
