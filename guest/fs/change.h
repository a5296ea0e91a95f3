#pragma once
/*
 * change: operations that alter the tree: directories, moves, copies, removal, attributes. They
 * take the caller's identity and the locks of the paths themselves. A condition on a symbolic link
 * applies to the file that it leads to.
 */
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#include "common/err.h"
#include "fs/etag.h"
#include "fs/root.h"

#define FS_COPY_MAX_DEPTH 256
#define FS_TREE_MAX_DEPTH 1000 /* of a tree that is removed; a descriptor each */

/* *ret_created: false when the directory was there (not an error with `parents`). */
int fs_make_dir(struct fs_caller *c, const char *path, mode_t mode, bool parents, bool *ret_created,
                struct err *e);

struct fs_move_options {
    bool overwrite;                /* a file may replace a file, a directory an empty one */
    bool make_parents;             /* of the destination */
    struct fs_condition condition; /* on the source */
    struct fs_condition
        to_condition; /* on the entry at the destination; field "to_if_match", ... */
};

/* By rename; across mounts (and in overlayfs, which says so too) by copy, then removal. */
int fs_move(struct fs_caller *c, const char *from, const char *to, const struct fs_move_options *o,
            struct err *e);

struct fs_copy_options {
    bool recursive;
    bool overwrite; /* files replace files, directories are merged */
    bool make_parents;
    struct fs_condition condition; /* on the source, which must not change meanwhile either */
    struct fs_condition
        to_condition; /* on the entry at the destination; field "to_if_match", ... */
};

struct fs_copy_result {
    uint64_t entries;
    uint64_t bytes;
};

/* Keeps modes, times, links, xattrs and holes, shares blocks where the disk can. The owner is the
 * caller, unless that is the agent as root. */
int fs_copy(struct fs_caller *c, const char *from, const char *to, const struct fs_copy_options *o,
            struct fs_copy_result *ret, struct err *e);

struct fs_remove_options {
    bool recursive;
    bool missing_ok;
    struct fs_condition condition;
};

/* Never "/", the root, nor a directory that holds the root or is a mount point. */
int fs_remove(struct fs_caller *c, const char *path, const struct fs_remove_options *o,
              uint64_t *ret_removed, struct err *e);

/* Values that may be absent. */
struct fs_mode {
    bool is_set;
    mode_t mode;
};
struct fs_time {
    bool is_set;
    struct timespec t;
};

struct fs_attrs {
    bool set_uid, set_gid;
    uid_t uid;
    gid_t gid;
    struct fs_mode mode;
    struct fs_time mtime;
    bool follow; /* a link in the last place */
    struct fs_condition condition;
};

int fs_set_attr(struct fs_caller *c, const char *path, const struct fs_attrs *a, struct err *e);
/* A user's or group's number from a name or decimal number. Errors name field "owner"/"group". */
int fs_uid_from_name(const char *name, uid_t *ret, struct err *e);
int fs_gid_from_name(const char *name, gid_t *ret, struct err *e);

/*
 * With the identity taken, and no lock: removes dirfd's entry `name`, a directory with all below or anything else. Links are removed, not
 * followed; another mount below is an error (-ERR_PRECONDITION) and is not entered. force: a
 * directory of the caller's that it can't write is made writable first. *removed (may be NULL) is
 * counted up.
 */
int fs_remove_tree(int dirfd, const char *name, bool force, uint64_t *removed, struct err *e);
