#pragma once
/*
 * walk: a tree, depth first, parents before children, names sorted bytewise within a directory,
 * links never followed, mounts crossed unless told not to. One thread, no recursion: an explicit
 * stack of open directories bounded by max_depth; a directory's names are read whole, to be sorted.
 * The agent's temporary names are skipped unless with_temps. For archives, copies, removal and
 * List. The search walks in parallel and unsorted, on the same fs_names.
 *
 * The caller's identity must have been taken for fs_walk_next() and fs_names_read().
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "common/err.h"

#define FS_WALK_MAX_NAMES 4000000u          /* in one directory */
#define FS_WALK_MAX_NAME_BYTES (256u << 20) /* of names in one directory */

/* The names in one directory, read whole. The walk sorts them, the search takes them in the kernel's
 * order. */
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

/* fs_names_read() and fs_names_sort(). On failure *ret is empty. */
int fs_dir_names(int fd, bool with_temps, struct fs_names *ret, struct err *e);

/* The type of the entry as getdents64(2) has it: DT_REG, ..., DT_UNKNOWN. */
static inline unsigned char fs_names_type(const struct fs_names *n, size_t i)
{
    return (unsigned char)n->v[i][-1];
}

enum fs_walk_kind {
    FS_WALK_ENTRY, /* anything, directories before their content */
    FS_WALK_LEAVE, /* a directory after its content */
    FS_WALK_ERROR, /* this path could not be read: error, st may be zero */
};

struct fs_walk_item {
    enum fs_walk_kind kind;
    const char *path; /* relative to the start; "" for the start itself; valid until next() */
    const char *name; /* its last component; "." for the start */
    int dirfd;        /* of the directory that holds name; borrowed until next() */
    unsigned depth;   /* 0: the start */
    struct stat st;
    struct err error;
};

struct fs_walk_options {
    unsigned max_depth; /* entries deeper than this are not visited; a descriptor each */
    bool deep_is_error; /* a directory at max_depth is followed by an FS_WALK_ERROR */
    bool one_mount;
    bool with_temps;
    const char *after; /* start behind this relative path (List's cursor), or NULL */
};

struct fs_walk;

/* dirfd: the start, a directory open for reading; taken (closed by fs_walk_free). */
int fs_walk_new_take(int dirfd, const struct fs_walk_options *o, struct fs_walk **ret,
                     struct err *e);
/* 1: *ret_item (owned by the walk) is next; 0: the end; negative: the walk itself failed. */
int fs_walk_next(struct fs_walk *w, const struct fs_walk_item **ret_item, struct err *e);
/* After a directory's FS_WALK_ENTRY: don't enter it (its FS_WALK_LEAVE is left out too). */
void fs_walk_skip(struct fs_walk *w);
struct fs_walk *fs_walk_free(struct fs_walk *w); /* accepts NULL; returns NULL */
