#pragma once
/*
 * lease_file: the lease of a box in <box dir>/lease.json, for the next monitor and for a command
 * that finds the box without one. Its times are of the monotonic clock: they hold while the machine
 * is not restarted, whatever is done to its wall clock. The boot's id tells the one from the other.
 */
#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"

struct lease_facts {
    int64_t deadline_mono_ms;
    int64_t used_mono_ms; /* the last known use */
    int64_t awake_until_mono_ms;
    int64_t looked_mono_ms; /* the last look at its use, and */
    int64_t cpu_ms;         /* the processor time of its processes at that look */
};

int lease_file_save(const char *box_dir, const struct lease_facts *facts, struct err *e);
/* False: there is none, or it is of another boot. */
bool lease_file_load(const char *box_dir, struct lease_facts *ret);
