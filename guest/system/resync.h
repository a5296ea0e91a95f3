#pragma once
/*
 * resync: repairs a box after it was restored or copied: sets the clock, and gives it random numbers that its
 * siblings do not have. Each step reports its result; none of them fails the call.
 */
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"

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
