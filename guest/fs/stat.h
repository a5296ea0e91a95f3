#pragma once
/*
 * stat: attributes of an entry, and the entries of a directory. The functions take the caller's
 * identity themselves.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "common/err.h"
#include "fs/etag.h"
#include "fs/root.h"

#define FS_LIST_DEFAULT 1000
#define FS_LIST_MAX 20000 /* entries in one reply, 1 KiB each; a cursor goes on */
#define FS_LIST_MAX_DEPTH 64

/* The last user and group that were looked up: most files of a directory have the same. Zeroed to
 * begin with; for one thread. */
struct fs_owners {
    bool has_user, has_group;
    uid_t uid;
    gid_t gid;
    char user[64];
    char group[64];
};
/* "" when the number has no name; good until the next call. */
const char *fs_owners_user(struct fs_owners *o, uid_t uid);
const char *fs_owners_group(struct fs_owners *o, gid_t gid);

struct fs_info {
    char *path; /* as asked (Stat) or as asked plus what follows (List) */
    struct stat st;
    char *target;  /* of a symbolic link, else NULL */
    char user[64]; /* "" when the number has no name */
    char group[64];
    char etag[FS_ETAG_BYTES]; /* "" unless asked for and a regular file */
    struct err error; /* List: code is not 0 when st is not known; Stat never returns such */
};

struct fs_stat_options {
    bool follow; /* a link in the last place */
    bool etag;
};

/* "file", "directory", "symlink", "fifo", "socket", "block", "char". */
const char *fs_type_name(mode_t mode);

int fs_stat(struct fs_caller *c, const char *path, const struct fs_stat_options *o,
            struct fs_info *ret, struct err *e);
void fs_info_done(struct fs_info *i);

enum fs_list_sort {
    FS_LIST_BY_PATH, /* bytewise, a component at a time: parents before children */
    FS_LIST_BY_NAME,
    FS_LIST_BY_SIZE,
    FS_LIST_BY_MTIME,
};

struct fs_list_options {
    unsigned depth; /* 1: the directory's own entries */
    unsigned limit;
    const char *after; /* the last reply's `next`, or NULL */
    bool etag;
    bool no_hidden; /* leave out names that begin with a dot, and everything below them */
    enum fs_list_sort sort;
    bool reverse;
    bool directories_first;
};

struct fs_listing {
    struct fs_info *entries;
    size_t n_entries;
    char *next; /* the cursor when there is more, else NULL */
};

/* An order other than by path walks the whole tree for each page. File contents are read only for
 * tags that are asked for. A subdirectory that can't be read becomes an entry with its error; if
 * the directory itself can't be read, the call fails. */
int fs_list(struct fs_caller *c, const char *path, const struct fs_list_options *o,
            struct fs_listing *ret, struct err *e);
void fs_listing_done(struct fs_listing *l);

/* Negative, zero or positive as List has a before, with or behind b. dir_len: of the directory's path, with its
 * '/', at the beginning of both paths. */
int fs_list_compare(const struct fs_list_options *o, size_t dir_len, const struct fs_info *a,
                    const struct fs_info *b);
