#pragma once
/* gc: parts of bh_gc() for the daemon. */
#include "common/err.h"
#include "lib/util/context.h"

/*
 * The boxes of a store whose daemon has gone with all monitors: changes that were interrupted are finished or rolled back,
 * boxes that run get a monitor, and those that ended unseen are marked as stopped. Nothing else is removed. fn gets a line
 * for each. One that cannot be settled is told, and is the error; the rest goes on.
 */
int gc_take_over(struct bh_ctx *ctx, void (*fn)(void *arg, const char *line), void *arg,
                 struct err *e);
