#pragma once
/*
 * sync_local: the side of a sync that is a directory here: looking at, hashing, removing and
 * putting in place what is below it, by descriptors and without following a link.
 */
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "common/err.h"
#include "lib/project/sync_list.h"

#define SYNC_STAGE_PREFIX SYNC_TEMP_PREFIX "sync-" /* what comes waits in such a directory */

struct sync_local {
    int root;
    char *parent; /* the directory that parent_fd is; NULL: none */
    int parent_fd;
};

/* dir: made when it is missing and `make`. */
int sync_local_open(const char *dir, bool make, struct sync_local *ret, struct err *e);
void sync_local_done(struct sync_local *l); /* accepts zeroed */

/* 1: filled in (with the target of a link); 0: it is not there. */
int sync_local_look(struct sync_local *l, const char *name, struct sync_entry *ret, struct err *e);
/* The SHA-256 of a file. -ERR_ABORTED: it is no file any more. */
int sync_local_hash(struct sync_local *l, struct sync_entry *en, struct err *e);
/* 1: it went; 0: it was not there, or is a directory with something in it. */
int sync_local_remove(struct sync_local *l, const char *name, bool is_dir, struct err *e);
/* The mode and the time of what is at the entry's name. */
int sync_local_touch(struct sync_local *l, const struct sync_entry *en, struct err *e);
int sync_local_make_dir(struct sync_local *l, const struct sync_entry *en, struct err *e);

/* A new staging directory in l, its path (owned) and the directory below it, held by a lock. What
 * a sync that was killed left is removed first. */
int sync_local_stage(struct sync_local *l, const char *dir, char **ret_path, struct sync_local *ret,
                     struct err *e);
/* From the staging directory to the same name in l; what is there is replaced. 1, or 0: the archive
 * did not have it. */
int sync_local_place(struct sync_local *stage, struct sync_local *l, const char *name,
                     struct err *e);
