#include "test.h"

#include "lib/box/lease.h"

#define MIN (60 * 1000)

TEST(an_unused_lease_runs_out_at_its_time)
{
    struct lease l;

    lease_init(&l, 0, 10 * MIN, 10 * MIN);
    for (int t = 0; t < 10 * MIN; t += 1000)
        T_OK(!lease_look(&l, t, LEASE_UNUSED) && !lease_is_over(&l, t));
    T_OK(lease_is_over(&l, 10 * MIN));
}

TEST(a_used_lease_is_lifted_to_ten_minutes_when_less_than_five_remain)
{
    struct lease l;

    lease_init(&l, 0, 10 * MIN, 10 * MIN);
    T_OK(!lease_look(&l, 3 * MIN, LEASE_TASK)); /* 7 minutes are enough */
    T_INT(l.deadline_ms, 10 * MIN);
    T_OK(!lease_look(&l, 5 * MIN, LEASE_TASK)); /* not yet time to look */
    T_OK(lease_look(&l, 6 * MIN, LEASE_TASK));
    T_INT(l.deadline_ms, 16 * MIN);
}

TEST(a_call_since_the_last_look_counts_once)
{
    struct lease l;

    lease_init(&l, 0, 10 * MIN, 10 * MIN);
    lease_touch(&l, 0);
    T_OK(!lease_look(&l, 3 * MIN, LEASE_UNUSED));
    T_OK(!lease_look(&l, 6 * MIN, LEASE_UNUSED)); /* the touch was used up at 3 minutes */
    T_INT(l.deadline_ms, 10 * MIN);
}

TEST(a_lease_is_never_shortened)
{
    struct lease l;

    lease_init(&l, 0, 60 * MIN, 60 * MIN);
    T_OK(!lease_extend(&l, 30 * MIN));
    T_INT(l.deadline_ms, 60 * MIN);
    T_OK(lease_extend(&l, 90 * MIN));
    T_OK(!lease_look(&l, 3 * MIN, LEASE_TASK));
    T_INT(l.deadline_ms, 90 * MIN);
}

TEST(a_short_lease_has_the_same_rule_at_its_own_scale)
{
    struct lease l;

    lease_init(&l, 0, 5000, 5000);
    T_INT(lease_next_ms(&l), 1500);
    T_OK(!lease_look(&l, 1500, LEASE_TASK));
    T_OK(lease_look(&l, 3000, LEASE_TASK));
    T_INT(l.deadline_ms, 8000);
    T_OK(!lease_look(&l, 4500, LEASE_UNUSED));
    T_OK(lease_is_over(&l, 8000));
}

TEST(a_lease_held_without_a_break_never_ends)
{
    struct lease l;

    lease_init(&l, 0, 2000, 2000);
    for (int64_t t = 0; t < 100000; t = lease_next_ms(&l)) {
        (void)lease_look(&l, t, LEASE_TASK);
        T_OK(!lease_is_over(&l, t));
    }
}

/* A call a moment before the deadline is as much use as one before a look. */
TEST(a_call_after_the_last_look_counts_at_the_deadline)
{
    struct lease l;

    lease_init(&l, 0, 10 * MIN, 10 * MIN);
    for (int t = 3 * MIN; t < 10 * MIN; t += 3 * MIN)
        T_OK(!lease_look(&l, t, LEASE_UNUSED));
    lease_touch(&l, 9 * MIN);
    T_INT(lease_next_ms(&l), 10 * MIN);
    T_OK(lease_look(&l, 10 * MIN, LEASE_UNUSED));
    T_INT(l.deadline_ms, 20 * MIN);
}

/* ---- attached clients and the idle time ---- */

TEST(the_looks_come_every_two_minutes_while_a_client_is_attached_and_every_three_during_tasks)
{
    struct lease l;

    lease_init(&l, 0, 60 * MIN, 60 * MIN);
    T_INT(lease_next_ms(&l), 3 * MIN);
    lease_attach(&l, MIN / 2);
    T_INT(lease_next_ms(&l), 2 * MIN + MIN / 2);
    (void)lease_look(&l, 2 * MIN + MIN / 2, LEASE_ATTACHED);
    T_INT(lease_next_ms(&l), 4 * MIN + MIN / 2);
    (void)lease_look(&l, 4 * MIN + MIN / 2, LEASE_TASK);
    T_INT(lease_next_ms(&l), 7 * MIN + MIN / 2);
    lease_attach(&l, 7 * MIN); /* a look that comes earlier stays */
    T_INT(lease_next_ms(&l), 7 * MIN + MIN / 2);
}

TEST(a_box_is_idle_exactly_at_its_limit)
{
    struct lease l;

    lease_init(&l, 0, 60 * MIN, 60 * MIN);
    lease_set_idle(&l, 10 * MIN, 0);
    T_OK(!lease_is_idle(&l, 10 * MIN - 1));
    T_OK(lease_is_idle(&l, 10 * MIN));
    lease_touch(&l, 10 * MIN - 1);
    T_OK(!lease_is_idle(&l, 20 * MIN - 2));
    T_OK(lease_is_idle(&l, 20 * MIN - 1));
    /* a use that is reported late does not move the time back */
    lease_set_used(&l, 5 * MIN);
    T_OK(!lease_is_idle(&l, 20 * MIN - 2));
    for (int64_t t = 10 * MIN; t < 20 * MIN - 1; t = lease_next_ms(&l))
        T_OK(!lease_is_idle(&l, t) && (lease_look(&l, t, LEASE_UNUSED), true));
    T_INT(lease_next_ms(&l), 20 * MIN - 1); /* the loop wakes up for it */
}

TEST(without_an_idle_time_a_box_is_never_idle)
{
    struct lease l;

    lease_init(&l, 0, 10 * MIN, 10 * MIN);
    T_OK(!lease_is_idle(&l, INT64_MAX - 1));
    T_INT(lease_next_ms(&l), 3 * MIN);
}

TEST(keep_puts_the_idle_time_off_and_never_brings_it_forward)
{
    struct lease l;

    lease_init(&l, 0, 10 * MIN, 10 * MIN);
    lease_set_idle(&l, 10 * MIN, 0);
    lease_stay_awake(&l, 120 * MIN);
    lease_stay_awake(&l, 60 * MIN);
    T_OK(!lease_is_idle(&l, 120 * MIN - 1));
    T_OK(lease_is_idle(&l, 120 * MIN));
    lease_set_used(&l, 119 * MIN);
    T_OK(!lease_is_idle(&l, 129 * MIN - 1));
}

/* The time to live ends first only if it is shorter. */
TEST(the_deadline_of_an_unused_box_waits_for_its_idle_time_and_not_for_a_longer_one)
{
    struct lease l;

    lease_init(&l, 0, 10 * MIN, 10 * MIN);
    lease_set_idle(&l, 10 * MIN, 0);
    lease_set_used(&l, 2 * MIN);
    for (int64_t t = 0; t < 10 * MIN; t = lease_next_ms(&l))
        (void)lease_look(&l, t, LEASE_UNUSED);
    T_OK(lease_look(&l, 10 * MIN, LEASE_UNUSED));
    T_INT(l.deadline_ms, 12 * MIN);
    T_OK(!lease_is_over(&l, 12 * MIN - 1) && lease_is_idle(&l, 12 * MIN));
    /* An idle time that is refused again and again does not keep the box. */
    lease_stay_awake(&l, 22 * MIN);
    (void)lease_look(&l, 12 * MIN, LEASE_UNUSED);
    T_OK(lease_is_over(&l, 12 * MIN));

    lease_init(&l, 0, 10 * MIN, 10 * MIN);
    lease_set_idle(&l, 11 * MIN, 0);
    (void)lease_look(&l, 10 * MIN, LEASE_UNUSED);
    T_OK(lease_is_over(&l, 10 * MIN) && !lease_is_idle(&l, 10 * MIN));
}

TEST(the_history_has_the_first_ten_extensions_and_then_one_in_ten)
{
    struct lease l;
    int n = 0;

    lease_init(&l, 0, 10 * MIN, 10 * MIN);
    T_OK(!lease_is_notable(&l));
    for (int64_t t = 0; t < 7 * 24 * 60 * (int64_t)MIN; t = lease_next_ms(&l)) {
        n += lease_look(&l, t, LEASE_ATTACHED) && lease_is_notable(&l);
        T_OK(!lease_is_over(&l, t));
    }
    T_OK(n > 10 && n < 200); /* of the 10,000 that are kept */
    T_OK(l.n_extended > 1000);
    (void)lease_look(&l, lease_next_ms(&l), LEASE_UNUSED);
    T_INT(l.n_extended, 0);
}
