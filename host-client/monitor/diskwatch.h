#pragma once
/*
 * diskwatch: counts the bytes that a box has written to its disk, and compares them with its
 * limit. du(1) counts in the background at low priority. The fill level of the file system, which
 * costs nothing to read, tells when to count again. For the monitor's one thread: it polls the
 * descriptor and calls diskwatch_act() when that is readable or at diskwatch_next_ms(). The
 * monitor reaps the child.
 */
#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"

struct diskwatch;

/*
 * fs_dir: a directory on the same file system that is in no project's quota: statvfs() would
 * report the quota alone. limit_bytes 0: *ret is NULL; all functions accept it, and it is never
 * over its limit. A box that starts over its limit may grow by 1/20, so that it can be cleaned up.
 */
int diskwatch_new(const char *dir, const char *fs_dir, uint64_t limit_bytes, struct diskwatch **ret,
                  struct err *e);
struct diskwatch *diskwatch_free(struct diskwatch *w); /* ends du; returns NULL */

int diskwatch_fd(const struct diskwatch *w);          /* -1: no count in progress */
int64_t diskwatch_next_ms(const struct diskwatch *w); /* monotonic; INT64_MAX: never */
/* True: the box is over its limit. */
bool diskwatch_act(struct diskwatch *w);
uint64_t diskwatch_used(const struct diskwatch *w); /* at the last count */
