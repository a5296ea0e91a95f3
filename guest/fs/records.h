#pragma once
/* records: a list of paths with a few facts each, in a file. */
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <time.h>

#include "common/err.h"

struct fs_record {
    uint8_t kind; /* the owner's */
    bool has_owner;
    mode_t mode;
    uid_t uid;
    gid_t gid;
    struct timespec mtime;
    ino_t ino;
};

/* A list of paths with a few facts each, kept in a file so that memory does not grow with an archive's entries.
 * Appended, then read backwards once. One thread at a time. */
struct fs_records;

/* dirfd: a directory on the disk that holds the file. name: a new name, by which it can be found
 * after a crash, or NULL. */
int fs_records_new(int dirfd, const char *name, struct fs_records **ret, struct err *e);
/* Opens the list that a crashed agent has left under that name. */
int fs_records_open(int dirfd, const char *name, struct fs_records **ret, struct err *e);
/* Forgets all entries: the steps stay done, also after a crash. */
int fs_records_clear(struct fs_records *l, struct err *e);
int fs_records_add(struct fs_records *l, const struct fs_record *r, const char *path,
                   struct err *e);
/* Reads the last entry that was not yet read back. 1: *ret_path is the caller's; 0: none left. */
int fs_records_pop(struct fs_records *l, struct fs_record *ret, char **ret_path, struct err *e);
struct fs_records *fs_records_free(struct fs_records *l); /* accepts NULL; returns NULL */
