#pragma once
/*
 * spill: the file behind one stream's journal, for a command that asked for one. It gets the bytes
 * that the journal's head did not take, in order, up to a bound. Bytes are queued in memory and
 * written later by a thread that may wait for the disk. The producer checks spill_is_behind() and
 * pauses, so that the command runs at the disk's pace, as it would with a file for its output.
 *
 * The file has no name and disappears with the agent. A write error ends the spilling: bytes that
 * are not in the file then were never spilled, and spill_end() does not count them.
 *
 * Guarded by its owner's lock, except spill_write(): one thread at a time, without the lock.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"
#include "proc/chunk.h"
#include "proc/journal.h"

#define SPILL_MAX_BYTES ((uint64_t)16 * 1024 * 1024 * 1024) /* maximum of a request */
#define SPILL_BUDGET_BYTES ((uint64_t)1024 * 1024 * 1024)   /* of all commands together */
#define SPILL_QUEUE_BYTES (1024 * 1024)                     /* high-water mark of the queue */

struct spill {
    uint64_t max;     /* bytes in the file at most; 0: there is no file */
    uint64_t base;    /* offset in the stream of the file's first byte */
    uint64_t taken;   /* bytes queued or written */
    uint64_t written; /* bytes in the file */
    struct chunk_queue queue;
    size_t in_flight; /* bytes that spill_take() returned and spill_written() has not reported */
    bool is_over;     /* takes no more */
    int sys;          /* errno of the write that failed; 0: none did */
    int fd; /* -1: not created yet. Belongs to spill_write() until `written` is more than 0 */
};

void spill_init(struct spill *s, uint64_t max);
void spill_done(struct spill *s, struct journal_budget *b); /* returns its bytes to the budget */

/* Queues the bytes at this offset of the stream; each call continues where the last ended. */
void spill_append(struct spill *s, uint64_t offset, const void *data, size_t len);
bool spill_is_behind(const struct spill *s);

/* Takes the queue for spill_write(). NULL: it is empty. */
struct chunk *spill_take(struct spill *s);
/*
 * Writes the taken queue at the file's offset `at` (s->written) and frees it. Creates the file in
 * dir (NULL: /var/tmp, or else /tmp) when *fd is -1. Sets *ret_written in any case. Returns 0 or
 * the errno; a used-up budget is ENOSPC.
 */
int spill_write(struct chunk *take, const char *dir, struct journal_budget *b, int *fd, uint64_t at,
                size_t *ret_written);
/* Records the result of spill_write(). */
void spill_written(struct spill *s, int fd, size_t n, int sys);

/* The offset after the last byte that is or will be in the file; base when it is empty. */
uint64_t spill_end(const struct spill *s);
/*
 * How many bytes of the file can be read from this offset of the stream, and their place in the
 * file.
 */
size_t spill_held(const struct spill *s, uint64_t offset, size_t max, uint64_t *ret_place);

/* Drops the content of the file. No thread may be writing. */
void spill_evict(struct spill *s, struct journal_budget *b);
