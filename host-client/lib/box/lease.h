#pragma once
/*
 * lease: how long a box lives. The lease begins with the box. Every 3 minutes, if the box is used
 * and less than 5 minutes remain, the lease is extended to 10 minutes; it is never shortened. A
 * box whose time to live is less than 10 minutes has the same rule at its own scale. Times are the
 * caller's clock in milliseconds. Plain data, no threads.
 */
#include <stdbool.h>
#include <stdint.h>

#define LEASE_LIFT_MS (10 * 60 * 1000)

struct lease {
    int64_t deadline_ms;
    int64_t next_look_ms;
    int64_t lift_ms; /* extended to this; the mark is half of it, the period 3/10 */
    bool was_used;   /* a call came since the last look */
};

void lease_init(struct lease *l, int64_t now_ms, int64_t ttl_ms, int64_t deadline_ms);
void lease_touch(struct lease *l);
/* True: the deadline became later. */
bool lease_extend(struct lease *l, int64_t until_ms);
/* Call it at lease_next_ms() or later. is_used: something uses the box right now. A touch since
 * the last look counts at the deadline, too. True: the deadline became later. */
bool lease_look(struct lease *l, int64_t now_ms, bool is_used);
bool lease_is_over(const struct lease *l, int64_t now_ms);
int64_t lease_next_ms(const struct lease *l); /* the time of the next look, or the deadline */
