#pragma once
/*
 * restore: a box's disk gets the content of a snapshot. The intent is the file restore.json of the
 * box's directory, from before the exchange of the disks until the layers, the coding agent's
 * session and the history say which of them the box has. Whoever finds the file settles that.
 * All functions need the box's name lock.
 */
#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"
#include "lib/box/box.h"
#include "lib/box/store_snapshots.h"

/* The box runs afterwards if it ran or was paused. On failure it has the disk that it had. */
int restore_locked(struct bh_box *box, const struct snapshot_row *row, int64_t deadline_mono_ms,
                   struct err *e);

/* Was a restore of this box interrupted? */
bool restore_is_pending(const struct bh_box *box);
/* Finishes or rolls back what is pending; nothing: 0. why: the cause if the box has its old content. */
int restore_settle_locked(struct bh_box *box, const char *why, struct err *e);
