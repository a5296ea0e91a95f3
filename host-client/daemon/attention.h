#pragma once
/*
 * attention: what the daemon does for boxes because clients follow their events. A box that should run and does not is
 * corrected when a client connects; it is checked once in ATTENTION_CHECK_MS, however many connect. While clients follow one
 * box, its lease is extended every ATTENTION_KEEP_MS, from the first client's start to the last one's end. Thread-safe.
 */
#include <stdint.h>

#include "common/err.h"

#define ATTENTION_CHECK_MS 60000
#define ATTENTION_MAX 16384 /* boxes that are remembered; more are checked each time */
#define ATTENTION_KEEP_MS (2 * 60 * 1000)

struct attention;
struct bh_box;
struct daemon;

/* keep_ms: 0: ATTENTION_KEEP_MS. */
int attention_new(struct daemon *d, int64_t keep_ms, struct attention **ret, struct err *e);
void attention_quiesce(struct attention *a); /* no lease is extended any more; accepts NULL */
struct attention *
attention_free(struct attention *a); /* no worker is left; accepts NULL; returns NULL */

/* On a worker, with a context that trusts its store. */
void attention_check(struct attention *a, struct bh_box *box);

/* box_id "": all boxes, which extends no lease. */
void attention_follow(struct attention *a, const char *box_id);
void attention_unfollow(struct attention *a, const char *box_id);
/* Extends the leases that are due, on a worker. */
void attention_tick(struct attention *a);
/* How often to call it, most_ms at most. */
int64_t attention_tick_ms(const struct attention *a, int64_t most_ms);
