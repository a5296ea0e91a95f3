#pragma once
/*
 * recover: rolls back an archive whose agent was killed while it put it in place. The staging
 * directory holds the list of steps: they are undone, and the directory is removed. One that is
 * still in use (it is locked) or someone else's is left alone.
 *
 * It is found when the next archive comes to the same place, and, through a registry (a directory
 * with a file for each staging directory that there is), when an agent starts. All functions are
 * thread-safe but for recover_use_registry().
 */
#include <sys/stat.h>

#include "common/err.h"
#include "fs/actor.h"

#define RECOVER_LIST_NAME FS_TEMP_PREFIX "undo"   /* in a staging directory: the steps taken */
#define RECOVER_TIME_NAME FS_TEMP_PREFIX "time"   /* its mtime: what the directory above had */
#define RECOVER_TRASH_NAME FS_TEMP_PREFIX "trash" /* entries that a replace has taken away */

/* Marks a staging directory as in use as long as this descriptor is open. */
void recover_lock(int stage_fd);

/* Looks through one directory (O_PATH will do). The identity must have been taken. What can't be
 * taken back stays where it is. */
void recover_dir(int dirfd);

/* Where the registry is, or will be made, 0700, when there is something to note. Once, before
 * threads start; without it nothing is registered. */
int recover_use_registry(const char *dir, struct err *e);
/* home_fd: the directory that holds the staging directory. Best effort: where the registry can't be
 * written, the next archive to the same place still finds it. */
void recover_register(int home_fd, const char *stage_name, const struct fs_actor *actor);
void recover_unregister(const char *stage_name); /* when the staging directory has gone */
/* Recovers everything that is registered, each entry as the user it was made for. Returns how many
 * were taken back. */
unsigned recover_all(void);
