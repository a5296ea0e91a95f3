#pragma once
/*
 * pattern: a glob as ripgrep's -g and a .gitignore line have it, compiled once and matched against
 * many paths, byte by byte. '*' and '?' do not cross '/', "**" does where it stands for whole
 * components, [a-z] and [!a-z] are classes, {a,b} alternatives (not nested), '\' takes the next
 * byte as it is.
 * Matching takes time proportional to (length of the path) * (length of the glob), whatever the
 * glob, and does not allocate. A compiled pattern does not change: threads may share it.
 */
#include <stdbool.h>
#include <stddef.h>

#include "common/err.h"

#define PATTERN_MAX_BYTES 512 /* of the glob's text */

struct pattern;

/* Errors are -ERR_INVALID and say what is wrong with the glob. */
/* caseless: letters of ASCII match in either case. */
int pattern_new(const char *glob, size_t len, bool caseless, struct pattern **ret, struct err *e);
struct pattern *pattern_free(struct pattern *p); /* accepts NULL; returns NULL */

/* The whole of path must match. path has no leading '/'. */
bool pattern_match(const struct pattern *p, const char *path, size_t len);

/* The byte that every path which matches ends with; -1 when there is no such byte. */
int pattern_last_byte(const struct pattern *p);
