#pragma once
/*
 * walk: a tree, depth first, parents before children, names sorted bytewise within a directory,
 * links never followed, mounts crossed unless told not to. One thread, no recursion: an explicit
 * stack of open directories bounded by max_depth; a directory's names are read whole, to be sorted.
 * The agent's temporary names are skipped unless with_temps. For archives, copies, removal and
 * List. The search walks in parallel and unsorted, on the same dir_names.
 *
 * The caller's identity must have been taken for fs_walk_next().
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "common/err.h"

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
