#pragma once
/* usage: processor, memory and disk in use. Reads /proc and the disk's size: may block. */
#include <stdint.h>

#include "common/err.h"

struct usage {
    unsigned n_cpus;
    double cpu_percent; /* of all processors, since the previous call; 0 in the first */
    uint64_t mem_total, mem_used, mem_cache;
    uint64_t disk_total, disk_used; /* of the file system of "/" */
};

struct usage_clock; /* counters of the previous call */

int usage_clock_new(struct usage_clock **ret, struct err *e);
struct usage_clock *usage_clock_free(struct usage_clock *c); /* accepts NULL; returns NULL */
/* Thread-safe. */
int usage_get(struct usage_clock *c, struct usage *ret, struct err *e);
