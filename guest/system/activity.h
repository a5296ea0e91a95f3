#pragma once
/*
 * activity: the processor time of everything that the agent has started, as a sum that grows, and
 * over the last while. Descendants are found by their parents, so that those of one whose parent
 * has gone count too (the agent is the reaper of its orphans); as pid 1 it counts every other
 * process. Thread-safe; reads all of /proc: call it on a pool thread.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/err.h"

#define ACTIVITY_WINDOW_MS 10000 /* "recent" goes back to the latest look that is so old */
#define ACTIVITY_SAMPLES 64      /* of looks at least ACTIVITY_SAMPLE_MS apart */
#define ACTIVITY_SAMPLE_MS 1000
#define ACTIVITY_MAX_PROCESSES 65536

#define ACTIVITY_NAME_BYTES 16

struct activity;
struct ports;

/* A command's processes: the one it was started as, and those below it. */
struct activity_tree {
    pid_t root;                     /* the caller's; 0: it has none */
    char name[ACTIVITY_NAME_BYTES]; /* of the program that the first is now; "": it is not there */
    unsigned n_processes;
    int64_t cpu_ms; /* theirs, and that of children they have waited for */
    bool is_server; /* one of them listens on a TCP port */
};

struct activity_cpu {
    int64_t total_ms;
    int64_t recent_ms, window_ms; /* window_ms 0: this is the first look */
};

int activity_new(struct activity **ret, struct err *e);
struct activity *activity_free(struct activity *a); /* accepts NULL; returns NULL */
/* Fills in the n trees, too. ports, read with PORTS_PROCESSES, says who listens. */
int activity_cpu(struct activity *a, struct activity_tree *trees, size_t n,
                 const struct ports *ports, struct activity_cpu *ret, struct err *e);
