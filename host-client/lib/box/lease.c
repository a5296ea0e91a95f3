#include "lib/box/lease.h"

static int64_t period_ms(const struct lease *l)
{
    return l->lift_ms * 3 / 10;
}

void lease_init(struct lease *l, int64_t now_ms, int64_t ttl_ms, int64_t deadline_ms)
{
    l->deadline_ms = deadline_ms;
    l->lift_ms = ttl_ms < LEASE_LIFT_MS ? ttl_ms : LEASE_LIFT_MS;
    l->next_look_ms = now_ms + period_ms(l);
    l->was_used = false;
}

void lease_touch(struct lease *l)
{
    l->was_used = true;
}

bool lease_extend(struct lease *l, int64_t until_ms)
{
    if (until_ms <= l->deadline_ms)
        return false;
    l->deadline_ms = until_ms;
    return true;
}

bool lease_look(struct lease *l, int64_t now_ms, bool is_used)
{
    bool used = is_used || l->was_used;

    if (now_ms < lease_next_ms(l))
        return false;
    l->was_used = false;
    l->next_look_ms = now_ms + period_ms(l);
    if (!used || l->deadline_ms - now_ms >= l->lift_ms / 2)
        return false;
    return lease_extend(l, now_ms + l->lift_ms);
}

bool lease_is_over(const struct lease *l, int64_t now_ms)
{
    return now_ms >= l->deadline_ms;
}

int64_t lease_next_ms(const struct lease *l)
{
    return l->next_look_ms < l->deadline_ms ? l->next_look_ms : l->deadline_ms;
}
