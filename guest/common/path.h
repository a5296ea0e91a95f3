#pragma once
/*
 * path: lexical work on path names. Never a security check: what a path reaches is decided by
 * the kernel (guest/fs/root.c). Results are the caller's to free; NULL means out of memory.
 */
#include <stdbool.h>

#include "common/err.h"

bool path_is_absolute(const char *p);
const char *path_name(const char *p);          /* what follows the last '/'; points into p */
char *path_dir(const char *p);                 /* "/a/b" -> "/a", "b" -> ".", "/a" -> "/" */
char *path_join(const char *a, const char *b); /* b alone when it is absolute */

/* Drops ".", "//" and trailing '/', resolves ".." without looking at the disk. */
char *path_clean(const char *p);
/* The same, but leaves ".." in place: means what p means also where there are symlinks. */
char *path_squeeze(const char *p);

bool path_is_within(const char *p, const char *dir); /* both cleaned; equal counts */
