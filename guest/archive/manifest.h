#pragma once
/*
 * manifest: the entries of a tree, with the digests of its files if asked; and the entries of a
 * list from elsewhere that a tree lacks. Both stay below the tree's start and follow no link. The
 * identity must have been taken. One thread each.
 */
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "archive/filter.h"
#include "common/err.h"
#include "fs/change.h"
#include "fs/etag.h"
#include "fs/root.h"

#define MANIFEST_MAX_INCOMPLETE 100 /* unreadable paths that are named; the rest is counted */

struct manifest_entry {
    const char *path;   /* relative to the start; never "" */
    const char *target; /* of a symbolic link, else NULL */
    struct stat st;
    bool has_digest;
    uint8_t digest[FS_SHA256_BYTES];
};

struct manifest_options {
    struct filter_options filter;
    bool digests;
};

struct manifest_sink {
    /* Everything is borrowed. A negative result ends the walk with it. */
    int (*entry)(void *arg, const struct manifest_entry *m, struct err *e);
    int (*unread)(void *arg, const char *path, const struct err *why, struct err *e);
    void *arg;
};

struct manifest_counts {
    uint64_t entries;
    uint64_t files;
    uint64_t bytes;        /* of the files' sizes */
    uint64_t hashed_bytes; /* read now: the rest was known */
};

/* path: a directory. */
int manifest_walk(struct fs_caller *c, const char *path, const struct manifest_options *o,
                  const struct manifest_sink *sink, struct manifest_counts *ret, struct err *e);

#define MANIFEST_ANY_SIZE UINT64_MAX

/* An entry as the other side has it: the fields that are set must be equal here. */
struct manifest_claim {
    const char *path;
    mode_t type;        /* S_IFREG, S_IFDIR or S_IFLNK */
    const char *target; /* of a link; NULL: any */
    uint64_t size;      /* MANIFEST_ANY_SIZE: any */
    struct fs_mode mode;
    struct fs_time mtime;
    bool has_digest;
    uint8_t digest[FS_SHA256_BYTES];
};

enum manifest_verdict {
    MANIFEST_SAME,
    MANIFEST_MISSING,
    MANIFEST_DIFFERS, /* another type, size, content or target, or it can't be read */
    MANIFEST_STALE,   /* the same but for its mode or time */
};

struct manifest_check; /* keeps the directory that it looked into last */

int manifest_check_new(struct fs_caller *c, const char *path, struct manifest_check **ret,
                       struct err *e);
/* -ERR_INVALID for a path that leaves the start. */
int manifest_check_one(struct manifest_check *m, const struct manifest_claim *claim,
                       enum manifest_verdict *ret, struct err *e);
struct manifest_check *manifest_check_free(struct manifest_check *m); /* accepts NULL */
