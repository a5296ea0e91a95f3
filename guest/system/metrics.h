#pragma once
/*
 * metrics: what the agent counts, as atomics, and their text for Prometheus. Routes are named once
 * at the start, before there are threads; everything else is thread-safe.
 */
#include <stddef.h>
#include <stdint.h>

#include "common/buf.h"
#include "common/err.h"

#define METRICS_MAX_ROUTES 128
#define METRICS_TEXT_MAX (1024 * 1024)

/* names are copied. Route i of metrics_request() is names[i]. */
int metrics_init(const char *const *names, size_t n_names, struct err *e);

/* One request has ended. status 0: it was cut off before a reply. */
void metrics_request(int route, int status, uint64_t bytes_in, uint64_t bytes_out, int64_t ms);

void metrics_connection_refused(void);
void metrics_relayed(uint64_t bytes_in, uint64_t bytes_out); /* by tunnels and upgrades */

/* The box was used just now; and how long ago that was. */
void metrics_touch(void);
int64_t metrics_idle_ms(void);

/* What is read when asked for, from those who know. */
struct metrics_now {
    unsigned connections;
    unsigned relays;
    unsigned pool_busy;
    unsigned pool_waiting;
    unsigned commands_running;
    unsigned commands_kept;
    uint64_t commands_started;
    uint64_t output_bytes; /* of all commands so far */
    uint64_t output_bytes_kept;
    int64_t uptime_ms;
};

/* The text exposition format, version 0.0.4. */
int metrics_text(const struct metrics_now *now, struct buf *out, struct err *e);

/* Resident memory in bytes, or 0 when /proc does not say. */
uint64_t metrics_rss_bytes(void);
unsigned metrics_n_fds(void);
