#pragma once
/*
 * lease: the time at which the box ends. At its expiry, on_expiry is called once on the loop's thread. A renewal
 * can only extend it, unless it is forced. Thread-safe.
 */
#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"

#define LEASE_NONE (-1)
#define LEASE_MAX_MS (366LL * 24 * 3600 * 1000)

struct lease;
struct loop;

int lease_new(struct loop *l, void (*on_expiry)(void *arg), void *arg, struct lease **ret,
              struct err *e);
struct lease *lease_free(struct lease *l); /* after the loop has ended; accepts NULL */

/* Sets the rest to left_ms (LEASE_NONE: no end). A shorter rest than now is ignored, unless forced. */
int lease_set(struct lease *l, int64_t left_ms, bool force, struct err *e);
int64_t lease_left_ms(struct lease *l); /* or LEASE_NONE */
