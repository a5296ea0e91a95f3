#pragma once
/*
 * dir_names: the names in one directory, read whole. Every walk stands on it: walk.h sorts them,
 * the search takes them in the kernel's order. The identity must have been taken.
 */
#include <stdbool.h>
#include <stddef.h>

#include "common/err.h"

#define FS_WALK_MAX_NAMES 4000000u          /* in one directory */
#define FS_WALK_MAX_NAME_BYTES (256u << 20) /* of names in one directory */

struct fs_names {
    char *block; /* for each entry its type and its NUL-terminated name */
    char **v;    /* the names, in `block` */
    size_t n;
};

/*
 * Reads the names that the directory fd has, which is open for reading; its offset is used. "." and
 * ".." are left out, and the names of the agent's temporary files unless with_temps. If reading
 * fails half-way, *ret holds what was read before the error. fs_names_done() in any case.
 */
int fs_names_read(int fd, bool with_temps, struct fs_names *ret, struct err *e);
void fs_names_sort(struct fs_names *n); /* bytewise */
void fs_names_done(struct fs_names *n);

/* fs_names_read() and fs_names_sort(). On failure *ret needs no fs_names_done(). */
int fs_dir_names(int fd, bool with_temps, struct fs_names *ret, struct err *e);

/* The type of the entry as getdents64(2) has it: DT_REG, ..., DT_UNKNOWN. */
static inline unsigned char fs_names_type(const struct fs_names *n, size_t i)
{
    return (unsigned char)n->v[i][-1];
}
