#pragma once
/*
 * path: lexical operations on path names. Never a security check: the kernel decides which file a path reaches
 * (guest/fs/root.c). The caller frees results; NULL: out of memory.
 */
#include <stdbool.h>

#include "common/err.h"

bool path_is_absolute(const char *p);
const char *path_name(const char *p);          /* the part after the last '/'; points into p */
char *path_dir(const char *p);                 /* "/a/b" -> "/a", "b" -> ".", "/a" -> "/" */
char *path_join(const char *a, const char *b); /* b if it is absolute */

/* Drops ".", "//" and trailing '/', and resolves ".." lexically. */
char *path_clean(const char *p);
/* The same, but keeps "..": the result names the same file as p even if there are symlinks. */
char *path_squeeze(const char *p);

bool path_is_within(const char *p, const char *dir); /* both cleaned; equal counts */

/* As strcmp(3), but component by component, as a sorted walk has it: "a/b" before "a.b". */
int path_compare(const char *a, const char *b);
