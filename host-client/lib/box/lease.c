#include "lib/box/lease.h"

#define NOTABLE_FIRST 10
#define NOTABLE_EACH 10

static int64_t period_ms(const struct lease *l, enum lease_use use)
{
    return l->lift_ms * (use == LEASE_ATTACHED ? 2 : 3) / 10;
}

static int64_t later_ms(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static int64_t idle_end_ms(const struct lease *l)
{
    return l->idle_ms ? later_ms(l->used_ms + l->idle_ms, l->awake_until_ms) : INT64_MAX;
}

void lease_init(struct lease *l, int64_t now_ms, int64_t ttl_ms, int64_t deadline_ms)
{
    *l = (struct lease){.deadline_ms = deadline_ms,
                        .ttl_ms = ttl_ms,
                        .lift_ms = ttl_ms < LEASE_LIFT_MS ? ttl_ms : LEASE_LIFT_MS,
                        .used_ms = now_ms};
    l->next_look_ms = now_ms + period_ms(l, LEASE_TASK);
}

void lease_set_idle(struct lease *l, int64_t idle_ms, int64_t used_ms)
{
    l->idle_ms = idle_ms;
    l->used_ms = used_ms;
}

void lease_end_early(struct lease *l)
{
    l->lead_ms = l->ttl_ms < 2 * LEASE_LEAD_MS ? l->ttl_ms / 2 : LEASE_LEAD_MS;
}

void lease_set_used(struct lease *l, int64_t used_ms)
{
    l->used_ms = later_ms(l->used_ms, used_ms);
}

void lease_attach(struct lease *l, int64_t now_ms)
{
    int64_t look_ms = now_ms + period_ms(l, LEASE_ATTACHED);

    if (look_ms < l->next_look_ms)
        l->next_look_ms = look_ms;
}

void lease_touch(struct lease *l, int64_t now_ms)
{
    l->was_used = true;
    lease_set_used(l, now_ms);
}

bool lease_extend(struct lease *l, int64_t until_ms)
{
    if (until_ms <= l->deadline_ms)
        return false;
    l->deadline_ms = until_ms;
    return true;
}

int64_t lease_for_command_ms(int64_t timeout_ms, int64_t limit_ms)
{
    int64_t lease_ms = timeout_ms + LEASE_GRACE_MS;

    return limit_ms && lease_ms > limit_ms ? limit_ms : lease_ms;
}

bool lease_postpone(struct lease *l, int64_t until_ms)
{
    return lease_extend(l, until_ms + l->lead_ms);
}

void lease_stay_awake(struct lease *l, int64_t until_ms)
{
    l->awake_until_ms = later_ms(l->awake_until_ms, until_ms);
}

/* The deadline of an unused box. With a lead, never beyond the time to live from now. */
static bool wait_for_idle(struct lease *l, int64_t now_ms)
{
    int64_t idle_end = l->used_ms + l->idle_ms;
    int64_t until = idle_end + l->lead_ms;

    if (l->lead_ms && until > now_ms + l->ttl_ms)
        until = now_ms + l->ttl_ms;
    return lease_is_over(l, now_ms) && l->idle_ms && l->idle_ms <= l->ttl_ms && idle_end > now_ms &&
           lease_extend(l, until);
}

bool lease_look(struct lease *l, int64_t now_ms, enum lease_use use)
{
    bool used = use != LEASE_UNUSED || l->was_used;

    if (now_ms < lease_next_ms(l))
        return false;
    l->was_used = false;
    l->next_look_ms = now_ms + period_ms(l, use);
    if (!used) {
        l->n_extended = 0;
        return wait_for_idle(l, now_ms);
    }
    if (lease_end_ms(l) - now_ms >= l->lift_ms / 2)
        return false;
    l->n_extended++;
    return lease_extend(l, now_ms + l->lift_ms);
}

bool lease_is_notable(const struct lease *l)
{
    return l->n_extended && (l->n_extended <= NOTABLE_FIRST || l->n_extended % NOTABLE_EACH == 0);
}

int64_t lease_end_ms(const struct lease *l)
{
    return l->deadline_ms - l->lead_ms;
}

bool lease_is_over(const struct lease *l, int64_t now_ms)
{
    return now_ms >= lease_end_ms(l);
}

bool lease_is_idle(const struct lease *l, int64_t now_ms)
{
    return now_ms >= idle_end_ms(l);
}

int64_t lease_next_ms(const struct lease *l)
{
    int64_t end_ms = lease_end_ms(l);
    int64_t next = l->next_look_ms < end_ms ? l->next_look_ms : end_ms;
    int64_t idle_ms = idle_end_ms(l);

    return idle_ms < next ? idle_ms : next;
}
