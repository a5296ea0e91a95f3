#pragma once
/*
 * journal: the output of one stream of a command, by byte offset, within a bound. It keeps the
 * first bytes (the head) and the last (the tail) and counts the dropped bytes between them exactly.
 * All journals of the agent share one budget; a journal that gets no more memory keeps less. The
 * bytes between head and tail can go to a file: see struct spill.
 *
 * A journal is guarded by its owner's lock. The shared budget is atomic.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "common/err.h"

#define JOURNAL_HEAD_BYTES (512 * 1024)
#define JOURNAL_TAIL_BYTES (512 * 1024)
#define JOURNAL_MAX_BYTES (16 * 1024 * 1024) /* maximum of a request, for head or tail */
#define JOURNAL_BUDGET_BYTES (64 * 1024 * 1024)

/* Also used for the disk space of spilled output. */
struct journal_budget {
    _Atomic size_t used;
    size_t max;
};

struct journal {
    struct journal_budget *budget;
    size_t head_max, tail_max;
    size_t tail_min; /* the tail grows to this size even if the budget is used up */
    char *head;
    size_t head_len, head_cap;
    bool head_closed;                   /* the head takes no more */
    char *tail;                         /* a ring */
    size_t tail_len, tail_cap, tail_at; /* tail_at: index of the oldest byte */
    uint64_t total;                     /* bytes ever appended */
};

void journal_init(struct journal *j, struct journal_budget *b, size_t head_max, size_t tail_max);
void journal_done(struct journal *j); /* returns its memory to the budget */

/* Never fails: bytes without room are counted as dropped. */
void journal_append(struct journal *j, const void *data, size_t len);

/* Drops the bytes and keeps the counts. */
void journal_evict(struct journal *j);

uint64_t journal_dropped(const struct journal *j);
uint64_t journal_tail_offset(const struct journal *j); /* the offset of the tail's first byte */

/*
 * Copies at most max bytes from offset on; *ret_len is 0 at the end (offset == total). ERR_RANGE:
 * offset is past the end. ERR_DATA_LOSS: the bytes were dropped; *ret_first_held is the offset
 * after the gap, where reading can continue.
 */
int journal_read(const struct journal *j, uint64_t offset, void *out, size_t max, size_t *ret_len,
                 uint64_t *ret_first_held, struct err *e);

/* ---- pieces that wait to be written: stdin, or output on its way to a file ---- */

/* Guarded by its owner's lock. */
struct chunk {
    struct chunk *next;
    size_t len, sent;
    bool is_uncounted; /* stdin: the offsets of writers do not count these bytes */
    char data[];
};

struct chunk_queue {
    struct chunk *first, *last;
    size_t bytes; /* of all chunks, without those that are sent */
};

/* Appends a copy. NULL: out of memory. */
static inline struct chunk *chunk_queue_add(struct chunk_queue *q, const void *data, size_t len)
{
    struct chunk *c = malloc(sizeof(*c) + len);

    if (!c)
        return NULL;
    *c = (struct chunk){.len = len};
    memcpy(c->data, data, len);
    *(q->last ? &q->last->next : &q->first) = c;
    q->last = c;
    q->bytes += len;
    return c;
}

/* Counts n more bytes of the first chunk as sent. True: it was sent to its end, and is freed. */
static inline bool chunk_queue_sent(struct chunk_queue *q, size_t n)
{
    struct chunk *c = q->first;

    c->sent += n;
    q->bytes -= n;
    if (c->sent < c->len)
        return false;
    q->first = c->next;
    if (!q->first)
        q->last = NULL;
    free(c);
    return true;
}

static inline void chunk_free_all(struct chunk *c)
{
    while (c) {
        struct chunk *next = c->next;

        free(c);
        c = next;
    }
}

/* Empties the queue; the caller frees its chunks. */
static inline struct chunk *chunk_queue_take(struct chunk_queue *q)
{
    struct chunk *c = q->first;

    *q = (struct chunk_queue){0};
    return c;
}

static inline void chunk_queue_clear(struct chunk_queue *q)
{
    chunk_free_all(chunk_queue_take(q));
}

/* ---- the file behind a journal, for a command that asked for one ---- */

/*
 * It gets the bytes that the journal's head did not take, in order, up to a bound. Bytes are queued
 * in memory and written later by a thread that may wait for the disk. The producer checks
 * spill_is_behind() and pauses, so that the command runs at the disk's pace, as it would with a file
 * for its output.
 *
 * The file has no name and disappears with the agent. A write error ends the spilling: bytes that
 * are not in the file then were never spilled, and spill_end() does not count them.
 *
 * Guarded by its owner's lock, except spill_write(): one thread at a time, without the lock.
 */
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
