#pragma once
/*
 * sync_local: the local side of a sync: looks at, hashes, removes and puts in place entries below
 * a directory, by descriptors and without following a link.
 */
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "common/err.h"
#include "lib/project/sync_list.h"

#define SYNC_STAGE_PREFIX SYNC_TEMP_PREFIX "sync-" /* staging directory of incoming files */

struct sync_local {
    int root;
    char *parent; /* the directory of parent_fd; NULL: none */
    int parent_fd;
};

/* make: dir is made if it is missing. */
int sync_local_open(const char *dir, bool make, struct sync_local *ret, struct err *e);
void sync_local_done(struct sync_local *l); /* accepts zeroed */

/* 1: filled in (with a link's target); 0: it does not exist. */
int sync_local_look(struct sync_local *l, const char *name, struct sync_entry *ret, struct err *e);
/* Sets the SHA-256 of a file. -ERR_ABORTED: it is no longer a file. */
int sync_local_hash(struct sync_local *l, struct sync_entry *en, struct err *e);
/* 1: removed; 0: it does not exist, or is a directory that is not empty. */
int sync_local_remove(struct sync_local *l, const char *name, bool is_dir, struct err *e);
/* Sets mode and time of the entry's file. */
int sync_local_touch(struct sync_local *l, const struct sync_entry *en, struct err *e);
int sync_local_make_dir(struct sync_local *l, const struct sync_entry *en, struct err *e);

/* Makes a staging directory in l: its path (the caller's) and the directory below it, held by a
 * lock. First removes those of killed syncs. */
int sync_local_stage(struct sync_local *l, const char *dir, char **ret_path, struct sync_local *ret,
                     struct err *e);
/* Moves an entry from the staging directory to the same name in l, replacing it. 1, or 0: the
 * archive did not have it. */
int sync_local_place(struct sync_local *stage, struct sync_local *l, const char *name,
                     struct err *e);
