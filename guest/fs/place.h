#pragma once
/*
 * place: a staged tree put into a target tree, entry by entry, so that it can be taken back. What
 * is replaced trades places with what replaces it and so waits in the staging tree; each step is
 * written to a list before it is done. Both directories are on one mount. The identity must have
 * been taken.
 */
#include "common/err.h"
#include "fs/records.h"

#define FS_PLACE_MAX_DEPTH 256 /* directories below the staged tree; a descriptor each */

/* tar's meaning: directories are merged, other entries replaced. A directory is never replaced by
 * something else (-ERR_PRECONDITION). On failure everything is as it was. */
int fs_place_merge(int stage_fd, int target_fd, struct fs_records *undo, struct err *e);

/* What the target has and the staged tree has not goes into trash_fd (a directory on the same
 * mount), so that a merge then makes the two equal. Names of ours are passed over. */
int fs_place_prune(int stage_fd, int target_fd, int trash_fd, struct fs_records *undo,
                   struct err *e);

/* One entry of the target, by its cleaned path: into trash_fd too. 1: it went; 0: it stays. "dir/" with a slash: a directory,
 * if there is nothing in it. What is not there, or is a directory and was not said to be, stays. */
int fs_place_remove(int target_fd, int trash_fd, const char *path, struct fs_records *undo,
                    struct err *e);

/* Notes the times that a directory below `base` ("" for itself) has before something in it changes,
 * so that undoing brings them back too. */
int fs_place_note_times(int base, const char *path, struct fs_records *undo, struct err *e);

/* Takes back everything on the list, last step first. */
void fs_place_undo(int stage_fd, int target_fd, int trash_fd, struct fs_records *undo);

/* Modes, times and owners for directories below `fd`, from the list, which is used up. with_root:
 * also for fd itself. A directory that was there and belongs to someone else keeps its own. undo (or
 * NULL): what they had before is noted there. */
int fs_place_dir_attrs(int fd, bool with_root, struct fs_records *dirs, struct fs_records *undo,
                       struct err *e);
