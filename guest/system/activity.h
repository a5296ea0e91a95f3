#pragma once
/*
 * activity: facts that say whether the box is in use: commands, calls, connections, holds, and the
 * processor time of all that the agent has started, as a total and over a window. Descendants are found
 * by their parents; orphans count too, because the agent is their reaper. As pid 1 the agent counts every
 * other process. Thread-safe; reads all of /proc: call it on a pool thread.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/err.h"
#include "common/process.h"
#include "proc/registry.h"
#include "system/metrics.h"
#include "system/ports.h"

#define ACTIVITY_WINDOW_MS 10000 /* the window starts at the latest sample that is this old */
#define ACTIVITY_SAMPLES 64      /* kept, at least ACTIVITY_SAMPLE_MS apart */
#define ACTIVITY_SAMPLE_MS 1000
#define ACTIVITY_MAX_PROCESSES 65536
#define ACTIVITY_MAX_COMMANDS 100 /* listed; more are only counted */
#define ACTIVITY_BUSY_SHARE 20    /* this part of one processor over the window is work */

struct activity;
struct holds;

/* A running command, and its processes: the first, and those below it. */
struct activity_command {
    char id[SPEC_ID_MAX_BYTES + 1];
    bool has_pty;
    uint64_t output_bytes;
    pid_t root;                    /* the first process; 0: it is being started */
    char name[PROCESS_NAME_BYTES]; /* of the program that the first is now; "": it has ended */
    unsigned n_processes;
    int64_t cpu_ms; /* theirs, and that of children they have waited for */
    bool is_server; /* one of them listens on a TCP port */
};

struct activity_cpu {
    int64_t total_ms;
    int64_t recent_ms, window_ms; /* window_ms 0: this is the first sample */
};

/* Large (about 20 KiB): not for a stack. */
struct activity_facts {
    struct registry_counts counts;
    struct activity_command commands[ACTIVITY_MAX_COMMANDS];
    size_t n_commands;
    struct activity_cpu cpu;
    uint64_t resident_bytes; /* of the same processes; what they share counts for each */
    struct ports ports;
    unsigned n_connections;
    struct metrics_use calls;
    unsigned n_holds;
    int64_t hold_ended_mono_ms; /* the last one; 0: none has */
};

/* Reasons for which a box counts as busy. */
enum activity_reason {
    BUSY_CALLS,
    BUSY_COMMANDS,
    BUSY_CONNECTIONS,
    BUSY_CPU,
    BUSY_HOLDS,
    N_BUSY_REASONS,
};

/* Both are borrowed. */
int activity_new(struct registry *reg, struct holds *holds, struct activity **ret, struct err *e);
struct activity *activity_free(struct activity *a); /* accepts NULL; returns NULL */

/*
 * Fills in *ret, zeroed by the caller. activity_facts_done() is called also after a failure. -ERR_EXHAUSTED: descriptors
 * or memory are short, or there are too many processes; a part of them would make a busy box look idle.
 */
int activity_read(struct activity *a, struct activity_facts *ret, struct err *e);
void activity_facts_done(struct activity_facts *f);

bool activity_is_busy(const struct activity_facts *f, enum activity_reason reason);
const char *activity_reason_name(enum activity_reason reason); /* "calls" */
int64_t
activity_idle_ms(const struct activity_facts *f); /* since the last use, if it is not busy */
