#pragma once
/*
 * spill: the file behind one stream's journal, for a command that asked for one. What the journal's
 * head did not take goes there, in order, up to a bound. Bytes are handed over in memory and written
 * later by a thread that may wait for the disk; who hands over looks at spill_is_behind() and stops
 * for a while, so that the command goes at the disk's pace, as it would with a file for its output.
 *
 * The file has no name and is gone with the agent. A disk that refuses ends the spilling: what is
 * not in the file then was never spilled, and spill_end() says so.
 *
 * Guarded by its owner's lock, but for spill_write(): one thread at a time, without the lock.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"
#include "proc/journal.h"

#define SPILL_MAX_BYTES \
    ((uint64_t)16 * 1024 * 1024 * 1024)                   /* the most that a request may ask for */
#define SPILL_BUDGET_BYTES ((uint64_t)1024 * 1024 * 1024) /* of all commands together */
#define SPILL_QUEUE_BYTES (1024 * 1024)                   /* not written yet */

struct chunk;

struct spill {
    uint64_t max;     /* bytes in the file at most; 0: there is no file */
    uint64_t base;    /* offset in the stream of the file's first byte */
    uint64_t taken;   /* bytes handed over */
    uint64_t written; /* of these, in the file */
    struct chunk *first, *last;
    size_t queued;
    bool is_over; /* takes no more */
    int sys;      /* errno of the disk that refused; 0: it did not */
    int fd;       /* -1: not made yet. spill_write()'s until `written` is more than 0 */
};

void spill_init(struct spill *s, uint64_t max);
void spill_done(struct spill *s, struct journal_budget *b); /* gives the disk back */

/* What came at this offset of the stream; each call goes on where the last ended. */
void spill_append(struct spill *s, uint64_t offset, const void *data, size_t len);
bool spill_is_behind(const struct spill *s);

/* The queue, for spill_write(); NULL: nothing waits. */
struct chunk *spill_take(struct spill *s);
/*
 * Writes the taken queue and frees it, at the file's offset `at` (s->written). The file is made in
 * dir (NULL: where such files go) when *fd is -1. *ret_written is set in any case. Returns 0 or the
 * errno; the budget's end is ENOSPC.
 */
int spill_write(struct chunk *take, const char *dir, struct journal_budget *b, int *fd, uint64_t at,
                size_t *ret_written);
/* How that went. */
void spill_written(struct spill *s, int fd, size_t n, int sys);

/* The offset after the last byte that is or will be in the file; base when there is none. */
uint64_t spill_end(const struct spill *s);
/* How much of the file can be read from this offset of the stream; the place in the file. */
size_t spill_held(const struct spill *s, uint64_t offset, size_t max, uint64_t *ret_place);

/* Drops what is in the file. Nobody may be writing. */
void spill_evict(struct spill *s, struct journal_budget *b);
