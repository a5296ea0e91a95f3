#pragma once
/*
 * diskwatch: how much a box has written to its disk, and whether that is over its limit. du(1) counts, in
 * the background and at low priority; how full the file system is, which costs nothing to ask, says
 * when it is worth counting again. For the monitor's one thread: it polls the descriptor and calls
 * diskwatch_act() when that is readable or at diskwatch_next_ms(). The monitor reaps the child.
 */
#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"

struct diskwatch;

/*
 * fs_dir: on the same file system, and in no project's quota, by which it would be asked for that alone.
 * limit_bytes 0: *ret is NULL, which all functions take, and which is never over. A box that is over its
 * limit when it is started may grow by a twentieth, so that it can be cleared up.
 */
int diskwatch_new(const char *dir, const char *fs_dir, uint64_t limit_bytes, struct diskwatch **ret,
                  struct err *e);
struct diskwatch *diskwatch_free(struct diskwatch *w); /* ends du; returns NULL */

int diskwatch_fd(const struct diskwatch *w);          /* -1: none now */
int64_t diskwatch_next_ms(const struct diskwatch *w); /* monotonic; INT64_MAX: none */
/* True while it is over its limit. */
bool diskwatch_act(struct diskwatch *w);
uint64_t diskwatch_used(const struct diskwatch *w); /* as counted last */
