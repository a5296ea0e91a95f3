#pragma once
/*
 * init: the life of a box: the duties of pid 1 (in a container or machine; a machine's first process before that is
 * boot/machine.h), the lease at whose end the box ends, and repairs after the box was restored or copied.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"

/* Pid 1 of a pid namespace: only that process may signal all others. */
bool init_is_pid_1(void);
void init_signal_all(int sig); /* pid 1 only: every other process of the box */
bool init_has_others(void);    /* pid 1 only: is there any other process? */

/*
 * The lease: the time at which the box ends. At its expiry, on_expiry is called once on the loop's thread. A renewal
 * can only extend it, unless it is forced. Thread-safe.
 */
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

/*
 * resync: repairs a box after it was restored or copied: sets the clock, and gives it random numbers that its
 * siblings do not have. Each step reports its result; none of them fails the call.
 */
#define RESYNC_TOLERANCE_MS 20
#define RESYNC_ENTROPY_MIN 32
#define RESYNC_ENTROPY_MAX 512

enum resync_result {
    RESYNC_NOT_ASKED,
    RESYNC_WITHIN_TOLERANCE, /* the clock was close enough */
    RESYNC_SET,              /* the clock was set */
    RESYNC_CREDITED,         /* entropy: mixed in and credited */
    RESYNC_MIXED,            /* mixed in; crediting is not permitted here */
    RESYNC_RESEEDED,         /* the kernel's generator */
    RESYNC_NOT_PERMITTED,
    RESYNC_FAILED,
    N_RESYNC_RESULTS
};

struct resync_clock {
    enum resync_result result;
    int64_t offset_ms; /* the right time minus ours, before the step */
};

/* real_ms: since 1970. A difference up to tolerance_ms is ignored; -1: the clock is always set. */
void resync_clock(int64_t real_ms, int64_t tolerance_ms, struct resync_clock *ret);

struct resync_entropy {
    enum resync_result entropy, reseed;
};

void resync_entropy(const void *data, size_t len, struct resync_entropy *ret);

const char *resync_name(enum resync_result r); /* "not_permitted" */
