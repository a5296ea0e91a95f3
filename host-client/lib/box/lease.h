#pragma once
/*
 * lease: how long a box lives. Its time to live runs from its start; while it is used, the lease
 * is looked at now and then and made longer, never shorter: every 3 minutes, to 10 minutes, if
 * less than 5 remain. A box with less than 10 minutes to live has the same rule at its own scale.
 * Times are the caller's clock in milliseconds. Plain data, no threads.
 */
#include <stdbool.h>
#include <stdint.h>

#define LEASE_LIFT_MS (10 * 60 * 1000)

struct lease {
    int64_t deadline_ms;
    int64_t next_look_ms;
    int64_t lift_ms; /* what it is lifted to; half of it is the mark, 3/10 the period */
    bool was_used;   /* a call came since the last look */
};

void lease_init(struct lease *l, int64_t now_ms, int64_t ttl_ms, int64_t deadline_ms);
void lease_touch(struct lease *l);
/* True when the deadline became later. */
bool lease_extend(struct lease *l, int64_t until_ms);
/* To be called at lease_next_ms() or later; is_used: something uses the box right now. What was
 * touched since the last look counts at the deadline, too. True when the deadline became later. */
bool lease_look(struct lease *l, int64_t now_ms, bool is_used);
bool lease_is_over(const struct lease *l, int64_t now_ms);
int64_t lease_next_ms(const struct lease *l); /* when to look again, or the deadline */
