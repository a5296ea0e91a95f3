#pragma once
/*
 * journal: the output of one stream of a command, by byte offset, within a bound. It keeps the
 * first bytes (the head) and the last (the tail) and counts the dropped bytes between them exactly.
 * All journals of the agent share one budget; a journal that gets no more memory keeps less.
 *
 * A journal is guarded by its owner's lock. The shared budget is atomic.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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

bool journal_budget_take(struct journal_budget *b, size_t n); /* false: less than n is left */
void journal_budget_give(struct journal_budget *b, size_t n);

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
