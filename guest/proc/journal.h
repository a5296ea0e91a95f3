#pragma once
/*
 * journal: what one stream of a command wrote, by byte offset, within a bound. Kept are the first
 * bytes (the head) and the last (the tail); what was between is counted, never guessed. The journals
 * of the agent share one budget; one that gets no more memory keeps less and says so.
 *
 * A journal is guarded by its owner's lock. The budget is an atomic that all of them share.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"

#define JOURNAL_HEAD_BYTES (512 * 1024)
#define JOURNAL_TAIL_BYTES (512 * 1024)
#define JOURNAL_MAX_BYTES (16 * 1024 * 1024) /* the most that a request may ask for, head or tail */
#define JOURNAL_BUDGET_BYTES (64 * 1024 * 1024)

/* Also of what is spilled to the disk. */
struct journal_budget {
    _Atomic size_t used;
    size_t max;
};

bool journal_budget_take(struct journal_budget *b, size_t n); /* false: there is not so much left */
void journal_budget_give(struct journal_budget *b, size_t n);

struct journal {
    struct journal_budget *budget;
    size_t head_max, tail_max;
    size_t tail_min; /* the tail grows to that also when the budget is used up */
    char *head;
    size_t head_len, head_cap;
    bool head_closed;                   /* the head got all that it will ever have */
    char *tail;                         /* a ring */
    size_t tail_len, tail_cap, tail_at; /* tail_at: the oldest byte's place */
    uint64_t total;                     /* bytes ever appended */
};

void journal_init(struct journal *j, struct journal_budget *b, size_t head_max, size_t tail_max);
void journal_done(struct journal *j); /* gives its memory back to the budget */

/* Never fails: what there is no room for is counted as dropped. */
void journal_append(struct journal *j, const void *data, size_t len);

/* Drops what is held but the counts. */
void journal_evict(struct journal *j);

uint64_t journal_dropped(const struct journal *j);
size_t journal_head(const struct journal *j, const char **ret); /* borrowed */
size_t journal_tail_len(const struct journal *j);
uint64_t journal_tail_offset(const struct journal *j); /* the offset of the tail's first byte */

/*
 * Copies at most max bytes from offset on; *ret_len is 0 at the end (offset == total). Past the end
 * is ERR_RANGE; bytes that are gone are ERR_DATA_LOSS, and *ret_first_held is the offset after the
 * gap, where reading can go on.
 */
int journal_read(const struct journal *j, uint64_t offset, void *out, size_t max, size_t *ret_len,
                 uint64_t *ret_first_held, struct err *e);
