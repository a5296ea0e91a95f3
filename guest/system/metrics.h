#pragma once
/*
 * metrics: the agent's counters, which are atomics, and their text for Prometheus. Routes are named once at the
 * start, before there are threads; everything else is thread-safe.
 */
#include <stddef.h>
#include <stdint.h>

#include "common/buf.h"
#include "common/err.h"

#define METRICS_MAX_ROUTES 128
#define METRICS_TEXT_MAX (1024 * 1024)

/* names are copied. Route i of metrics_request() is names[i]. */
int metrics_init(const char *const *names, size_t n_names, struct err *e);

/* Counts a request that has ended. status 0: it was cut off before a reply. */
void metrics_request(int route, int status, uint64_t bytes_in, uint64_t bytes_out, int64_t ms);

void metrics_connection_refused(void);
void metrics_relayed(uint64_t bytes_in, uint64_t bytes_out); /* by tunnels and upgrades */

/* The begin and the end of a call that counts as use of the box. */
void metrics_use_begin(void);
void metrics_use_end(void);
int64_t metrics_idle_ms(void); /* since the last of either */
struct metrics_use {
    unsigned open;
    int64_t last_mono_ms;
};
void metrics_use(struct metrics_use *ret);

void metrics_stream(int change); /* a streaming reply begins (1) or ends (-1) */
void metrics_searched(uint64_t bytes);

struct metrics_named {
    const char *name;
    uint64_t value;
};

/* Values that the caller of metrics_text() reads from their owners. */
struct metrics_now {
    unsigned connections;
    unsigned relays;
    unsigned pool_busy;
    unsigned pool_waiting;
    unsigned commands_running;
    unsigned commands_kept;
    uint64_t commands_started, commands_failed;
    const struct metrics_named *commands_ended; /* by reason; ends with a NULL name */
    uint64_t stdout_bytes, stderr_bytes;        /* of all commands so far */
    uint64_t output_bytes_kept, output_bytes_dropped;
    unsigned holds;
    uint64_t generation;
    int64_t lease_ms; /* -1: none */
    int64_t uptime_ms;
};

/* The text exposition format, version 0.0.4. */
int metrics_text(const struct metrics_now *now, struct buf *out, struct err *e);
