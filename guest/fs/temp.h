#pragma once
/*
 * temp: a temporary file: without a name where the disk supports O_TMPFILE, else under a hidden
 * one. For guest/fs and guest/archive. The identity must have been taken.
 */
#include <stdbool.h>
#include <sys/types.h>

#include "common/err.h"
#include "fs/root.h"

#define FS_TEMP_NAME_BYTES (sizeof(FS_TEMP_PREFIX) + 16)

struct fs_temp {
    int fd;
    char name[FS_TEMP_NAME_BYTES]; /* "" while it has none */
};

/* errno-style: 0, or -1 with errno. Mode 0600. */
int fs_temp_open(int dirfd, struct fs_temp *ret);
/* Gives it a hidden name in dirfd, if it has none. */
int fs_temp_name(int dirfd, struct fs_temp *t);
/* The same with a hidden name that the caller has made. */
int fs_temp_name_as(int dirfd, struct fs_temp *t, const char *name);
/* Gives it this name, which must be free (EEXIST). */
int fs_temp_publish_new(int dirfd, struct fs_temp *t, const char *name);
/* Closes it and removes its hidden name, if any. */
void fs_temp_drop(int dirfd, struct fs_temp *t);

/* Makes a directory with a hidden name, 0700. While a descriptor of it is open, no recovery takes it for a dead agent's.
 * The descriptor, or -1 with errno. */
int fs_temp_make_dir(int dirfd, const char *name);
/* For a recovery: the descriptor of a directory that a dead agent has left, or -1: it is in use, or another user's. */
int fs_temp_take_dir(int dirfd, const char *name);
/* A list that another user could have written must not move files. */
bool fs_temp_is_ours(int fd);

void fs_temp_make_name(char out[FS_TEMP_NAME_BYTES]);
bool fs_temp_is_name(const char *name);
/* -ERR_INVALID for a temporary name of the agent: an entry of that name would be hidden. */
int fs_temp_refuse_name(const char *name, const char *field, struct err *e);
