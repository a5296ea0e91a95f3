#pragma once
/*
 * copy: trees and files copied by descriptors: blocks shared where the disk can, holes kept. Also the
 * parts of it that archives need: extended attributes, and files with several names. The identity must
 * have been taken.
 */
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "common/err.h"
#include "fs/change.h"

struct fs_copy_how {
    bool keep_owner;
    struct fs_copy_result *counts; /* added to */
    /* Of a directory, the copy's descriptor, which the caller closes: while it is open, no recovery takes the hidden
     * name of an unfinished copy for a dead agent's. */
    int *ret_lock_fd;
};

/* Copies from_dirfd's entry `name`, of any kind but device and socket, to to_dirfd's entry to_name,
 * which must not exist. On failure a partial copy stays: the caller removes it. */
int fs_copy_entry(int from_dirfd, const char *name, int to_dirfd, const char *to_name,
                  const struct fs_copy_how *how, struct err *e);

/* Bytes from one file to another, by the kernel where it can (which may share the blocks). The positions of the
 * descriptors do not matter. *ret_len is less than len if `from` ends before. */
int fs_copy_bytes(int from, off_t from_at, int to, off_t to_at, uint64_t len, uint64_t *ret_len,
                  struct err *e);

#define FS_XATTR_LIST_MAX (64 * 1024) /* the kernel's own limits */
#define FS_XATTR_VALUE_MAX (64 * 1024)

/*
 * Extended attributes from one open file to another: user.* and the access list, which must arrive (-1 with errno when one can't); others are tried.
 * Capabilities are never copied: they belong to the old bytes. A disk without xattrs has none.
 */
int fs_xattr_copy(int from, int to);

#define LINKS_MAX 4000000u

/* Remembers the first name of each file that has several. One thread. */
struct links;

int links_new(struct links **ret, struct err *e);
struct links *links_free(struct links *l); /* accepts NULL; returns NULL */
/* *ret_first: the name that the file was first seen under (borrowed), or NULL: it is this one. */
int links_see(struct links *l, dev_t dev, ino_t ino, const char *name, const char **ret_first,
              struct err *e);
