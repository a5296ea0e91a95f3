#pragma once
/*
 * recover: what an agent that was killed while it put an archive in place has left behind. Its
 * staging directory holds the list of steps that it had taken: they are taken back, and the
 * directory goes. One that is still in use (it is locked) or someone else's is left alone.
 */

#define RECOVER_LIST_NAME FS_TEMP_PREFIX "undo"   /* in a staging directory: the steps taken */
#define RECOVER_TRASH_NAME FS_TEMP_PREFIX "trash" /* what a replace has taken away */

/* Marks a staging directory as in use as long as this descriptor is open. */
void recover_lock(int stage_fd);

/* Looks through one directory (O_PATH will do). The identity must have been taken. What can't be
 * taken back stays where it is. */
void recover_dir(int dirfd);
