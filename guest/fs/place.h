#pragma once
/*
 * place: a staged tree put into a target tree, entry by entry, so that it can be taken back. An
 * entry that is replaced trades places with the new one and so waits in the staging tree; each step
 * is written to a list before it is done. Both directories are on one mount. The identity must have
 * been taken.
 */
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <time.h>

#include "common/err.h"
#include "fs/records.h"
#include "fs/root.h"

/* In a staging directory, for a recovery: */
#define FS_PLACE_LIST_NAME FS_TEMP_PREFIX "undo" /* the steps taken */
#define FS_PLACE_TARGET_NAME \
    FS_TEMP_PREFIX "target" /* a link: the target's name beside it; else it is in the target */

#define FS_PLACE_MAX_DEPTH 256 /* directories below the staged tree; a descriptor each */

/* tar's meaning: directories are merged, other entries replaced. A directory is never replaced by
 * something else (-ERR_PRECONDITION). On failure the caller undoes the list. */
int fs_place_merge(int stage_fd, int target_fd, struct fs_records *undo, struct err *e);

/* Moves entries that only the target has into trash_fd (a directory on the same mount), so that a
 * merge then makes the two equal. Skips the agent's temporary names. */
int fs_place_prune(int stage_fd, int target_fd, int trash_fd, struct fs_records *undo,
                   struct err *e);

/* Moves one entry of the target, by its cleaned path, into trash_fd. "dir/" with a slash names a
 * directory, which must be empty. 1: it was moved; 0: it stays, or is not there. A directory named
 * without the slash stays. */
int fs_place_remove(int target_fd, int trash_fd, const char *path, struct fs_records *undo,
                    struct err *e);

/*
 * Takes back everything on the list, last step first; trash_fd -1: there is none. A step that fails does not keep
 * the others from being taken back, but the error names the first one, and the list stays as it is: the staging
 * directory has originals, must not be removed, and undoing again takes back the rest. Once everything is back,
 * the list is empty.
 */
int fs_place_undo(int stage_fd, int target_fd, int trash_fd, struct fs_records *undo,
                  struct err *e);

/* Makes a staging directory one that a recovery trusts: ours, 0700. */
int fs_place_claim(int stage_fd, struct err *e);
/* Adds to the error of a rollback that could not take everything back (why) where the originals are kept. */
int fs_place_say_kept(int home_fd, const char *stage_name, const struct err *why, int r,
                      struct err *e);

/* Modes, times and owners for directories below `fd`, from the list, which is used up. with_root:
 * also for fd itself. A directory that was there and belongs to someone else keeps its own. undo
 * (or NULL): their old values are noted there. */
int fs_place_dir_attrs(int fd, bool with_root, struct fs_records *dirs, struct fs_records *undo,
                       struct err *e);
