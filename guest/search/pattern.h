#pragma once
/*
 * pattern: a glob of ripgrep's -g or of a .gitignore line, compiled once and matched against many paths,
 * byte by byte. '*' and '?' do not cross '/'; "**" does where it stands for whole components; [a-z] and
 * [!a-z] are classes; {a,b} are alternatives (not nested); '\' quotes the next byte.
 * Matching takes time proportional to (length of the path) * (length of the glob) for every glob, and does
 * not allocate. A compiled pattern is immutable: threads may share it.
 */
#include <stdbool.h>
#include <stddef.h>

#include "common/err.h"

#define PATTERN_MAX_BYTES 512 /* of the glob's text */

struct pattern;

/* caseless: ASCII letters match in either case. A bad glob is -ERR_INVALID; the message says why. */
int pattern_new(const char *glob, size_t len, bool caseless, struct pattern **ret, struct err *e);
struct pattern *pattern_free(struct pattern *p); /* accepts NULL; returns NULL */

/* The whole of path must match. path has no leading '/'. */
bool pattern_match(const struct pattern *p, const char *path, size_t len);

/* The byte with which every matching path ends; -1: there is no such byte. */
int pattern_last_byte(const struct pattern *p);
