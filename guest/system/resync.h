#pragma once
/*
 * resync: what a box needs after it was restored or copied: the right time, and random numbers that
 * its siblings do not have. Each step says what came of it; none is an error of the call.
 */
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"

#define RESYNC_TOLERANCE_MS 20
#define RESYNC_ENTROPY_MIN 32
#define RESYNC_ENTROPY_MAX 512

enum resync_result {
    RESYNC_NOT_ASKED,
    RESYNC_WITHIN_TOLERANCE, /* the clock is right enough */
    RESYNC_SET,              /* the clock */
    RESYNC_CREDITED,         /* entropy: mixed in and counted */
    RESYNC_MIXED,            /* mixed in; counting it is not permitted here */
    RESYNC_RESEEDED,         /* the kernel's generator */
    RESYNC_NOT_PERMITTED,
    RESYNC_FAILED,
    N_RESYNC_RESULTS
};

struct resync_clock {
    enum resync_result result;
    int64_t offset_ms; /* the right time less ours, before */
};

/* real_ms: since 1970. A difference of up to tolerance_ms is left alone; -1: never. */
void resync_clock(int64_t real_ms, int64_t tolerance_ms, struct resync_clock *ret);

struct resync_entropy {
    enum resync_result entropy, reseed;
};

void resync_entropy(const void *data, size_t len, struct resync_entropy *ret);

const char *resync_name(enum resync_result r); /* "not_permitted" */
