#include "test.h"

#include "lib/box/lease.h"

#define MIN (60 * 1000)

TEST(an_unused_lease_runs_out_at_its_time)
{
    struct lease l;

    lease_init(&l, 0, 10 * MIN, 10 * MIN);
    for (int t = 0; t < 10 * MIN; t += 1000)
        T_OK(!lease_look(&l, t, false) && !lease_is_over(&l, t));
    T_OK(lease_is_over(&l, 10 * MIN));
}

TEST(a_used_lease_is_lifted_to_ten_minutes_when_less_than_five_remain)
{
    struct lease l;

    lease_init(&l, 0, 10 * MIN, 10 * MIN);
    T_OK(!lease_look(&l, 3 * MIN, true)); /* 7 minutes are enough */
    T_INT(l.deadline_ms, 10 * MIN);
    T_OK(!lease_look(&l, 5 * MIN, true)); /* not yet time to look */
    T_OK(lease_look(&l, 6 * MIN, true));
    T_INT(l.deadline_ms, 16 * MIN);
}

TEST(a_call_since_the_last_look_counts_once)
{
    struct lease l;

    lease_init(&l, 0, 10 * MIN, 10 * MIN);
    lease_touch(&l);
    T_OK(!lease_look(&l, 3 * MIN, false));
    T_OK(!lease_look(&l, 6 * MIN, false)); /* the touch was used up at 3 minutes */
    T_INT(l.deadline_ms, 10 * MIN);
}

TEST(a_lease_is_never_shortened)
{
    struct lease l;

    lease_init(&l, 0, 60 * MIN, 60 * MIN);
    T_OK(!lease_extend(&l, 30 * MIN));
    T_INT(l.deadline_ms, 60 * MIN);
    T_OK(lease_extend(&l, 90 * MIN));
    T_OK(!lease_look(&l, 3 * MIN, true));
    T_INT(l.deadline_ms, 90 * MIN);
}

TEST(a_short_lease_has_the_same_rule_at_its_own_scale)
{
    struct lease l;

    lease_init(&l, 0, 5000, 5000);
    T_INT(lease_next_ms(&l), 1500);
    T_OK(!lease_look(&l, 1500, true));
    T_OK(lease_look(&l, 3000, true));
    T_INT(l.deadline_ms, 8000);
    T_OK(!lease_look(&l, 4500, false));
    T_OK(lease_is_over(&l, 8000));
}

TEST(a_lease_held_without_a_break_never_ends)
{
    struct lease l;

    lease_init(&l, 0, 2000, 2000);
    for (int64_t t = 0; t < 100000; t = lease_next_ms(&l)) {
        (void)lease_look(&l, t, true);
        T_OK(!lease_is_over(&l, t));
    }
}

/* A call a moment before the deadline is as much use as one before a look. */
TEST(a_call_after_the_last_look_counts_at_the_deadline)
{
    struct lease l;

    lease_init(&l, 0, 10 * MIN, 10 * MIN);
    for (int t = 3 * MIN; t < 10 * MIN; t += 3 * MIN)
        T_OK(!lease_look(&l, t, false));
    lease_touch(&l);
    T_INT(lease_next_ms(&l), 10 * MIN);
    T_OK(lease_look(&l, 10 * MIN, false));
    T_INT(l.deadline_ms, 20 * MIN);
}
