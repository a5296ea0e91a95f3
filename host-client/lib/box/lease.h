#pragma once
/*
 * lease: how long a box lives, and how long it may be unused.
 *
 * The lease begins with the box. Every 3 minutes (2 while a client is attached), if the box is used
 * and less than 5 minutes remain, the lease is extended to 10 minutes; it is never shortened. A box
 * whose time to live is less than 10 minutes has the same rule at its own scale.
 *
 * The work at the end of a lease may take time (a snapshot): it begins so long before the deadline.
 *
 * The idle time begins with the last use. If it is not longer than the time to live, the lease of a
 * box that may be idle does not end before the idle time has passed.
 *
 * Times are the caller's clock in milliseconds, which must not be set by anybody: the monotonic one.
 * Plain data, no threads.
 */
#include <stdbool.h>
#include <stdint.h>

#define LEASE_LIFT_MS (10 * 60 * 1000)
#define LEASE_LEAD_MS (60 * 1000) /* half of a time to live that is shorter than twice this */

#define LEASE_GRACE_MS (60 * 1000) /* beyond the time limit of a command */

enum lease_use {
    LEASE_UNUSED,
    LEASE_TASK,     /* something is at work in the box */
    LEASE_ATTACHED, /* a client is connected to it */
};

struct lease {
    int64_t deadline_ms;
    int64_t next_look_ms;
    int64_t ttl_ms;
    int64_t lead_ms;        /* the end begins so long before the deadline */
    int64_t lift_ms;        /* extended to this; the mark is half of it, the period 3/10 or 2/10 */
    bool was_used;          /* a call came since the last look */
    int64_t used_ms;        /* the last known use */
    int64_t idle_ms;        /* 0: it may be unused for ever */
    int64_t awake_until_ms; /* it is not idle before this */
    unsigned n_extended;    /* by looks since the last look without use */
};

/* Without an idle time, unused since now. */
void lease_init(struct lease *l, int64_t now_ms, int64_t ttl_ms, int64_t deadline_ms);
void lease_set_idle(struct lease *l, int64_t idle_ms, int64_t used_ms);
void lease_end_early(struct lease *l); /* by LEASE_LEAD_MS */
/* A client has connected: the next look comes soon enough for it. */
void lease_attach(struct lease *l, int64_t now_ms);
void lease_touch(struct lease *l, int64_t now_ms);
/* The time of a use that is known afterwards. For the idle time: a look does not set it. */
void lease_set_used(struct lease *l, int64_t used_ms);
/* True: the deadline became later. */
bool lease_extend(struct lease *l, int64_t until_ms);
/* The lease of a command with a time limit, from now on, up to limit_ms (0: none): it counts as use
 * while it runs, and the lease is extended within the limit. */
int64_t lease_for_command_ms(int64_t timeout_ms, int64_t limit_ms);
/* Puts the end off until then. True: the deadline became later. */
bool lease_postpone(struct lease *l, int64_t until_ms);
/* Puts the end of the idle time off. */
void lease_stay_awake(struct lease *l, int64_t until_ms);
/* Call it at lease_next_ms() or later. use: now. A touch since the last look counts at the deadline,
 * too. True: the deadline became later. */
bool lease_look(struct lease *l, int64_t now_ms, enum lease_use use);
/* The end: the deadline, or the lead before it. */
int64_t lease_end_ms(const struct lease *l);
bool lease_is_over(const struct lease *l, int64_t now_ms);
bool lease_is_idle(const struct lease *l, int64_t now_ms); /* for its idle time */
/* The time of the next look, the end of the idle time or the end. */
int64_t lease_next_ms(const struct lease *l);
/* Is this extension one for the history? The first ten without a break are, then one in ten. */
bool lease_is_notable(const struct lease *l);
