/* The timers of a box by a virtual clock: its lease and its use, as the monitor's loop combines them, for hours and
 * days; and the lease that outlives its monitor, with a wall clock that jumps. */
#include "test.h"

#include <fcntl.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/io.h"
#include "lib/agent/exec.h"
#include "lib/box/box.h"
#include "lib/box/bringup.h"
#include "lib/box/history.h"
#include "lib/box/lease.h"
#include "lib/box/lease_file.h"
#include "lib/box/use.h"
#include "lib/provider/provider.h"
#include "lib/recipe/recipe.h"
#include "monitor/supervise.h"

#define MIN_MS (60 * 1000LL)
#define DAY_MS (24 * 60 * MIN_MS)

/* ---- a box ---- */

struct life {
    struct lease lease;
    struct use use;
    int64_t task_ends_ms; /* a command that waits for nothing but time runs until then */
    bool is_attached;
    int64_t idle_at_ms, over_at_ms; /* 0: it did not come to that */
    int n_extended;
};

static void begin_life(struct life *b, int64_t ttl_ms, int64_t idle_ms)
{
    *b = (struct life){0};
    lease_init(&b->lease, 0, ttl_ms, ttl_ms);
    lease_set_idle(&b->lease, idle_ms, 0);
    use_init(&b->use, 0);
}

static json_t *new_report(const struct life *b, int64_t now_ms)
{
    json_t *list = json_array();

    if (now_ms < b->task_ends_ms)
        (void)json_array_append_new(list,
                                    json_pack("{s:s, s:s, s:b, s:b, s:i, s:i, s:i}", "id", "build",
                                              "name", "make", "pty", 0, "listens", 0, "processes",
                                              1, "cpu_ms", 0, "output_bytes", 0));
    return json_pack("{s:{s:i, s:I}, s:{s:i, s:[], s:o}, s:{s:i}, s:[]}", "calls", "open", 0,
                     "last_ms_ago", (json_int_t)(now_ms + DAY_MS), "commands", "running",
                     (int)json_array_size(list), "ids", "list", list, "cpu", "total_ms", 0,
                     "holds");
}

/* One look, as the monitor's loop makes it. False: the box has ended, or is idle. */
static bool look(struct life *b, int64_t now_ms)
{
    json_t *report = new_report(b, now_ms);
    enum lease_use use = b->is_attached ? LEASE_ATTACHED : LEASE_UNUSED;

    if (use_look(&b->use, report, "", 0, now_ms) && use == LEASE_UNUSED)
        use = LEASE_TASK;
    json_decref(report);
    if (b->is_attached)
        lease_set_used(&b->lease, now_ms);
    lease_set_used(&b->lease, b->use.used_ms);
    b->n_extended += lease_look(&b->lease, now_ms, use);
    if (lease_is_idle(&b->lease, now_ms))
        b->idle_at_ms = now_ms;
    else if (lease_is_over(&b->lease, now_ms))
        b->over_at_ms = now_ms;
    return !b->idle_at_ms && !b->over_at_ms;
}

static void live_until(struct life *b, int64_t from_ms, int64_t until_ms)
{
    for (int64_t t = from_ms; t < until_ms && look(b, t); t = lease_next_ms(&b->lease))
        T_OK(lease_next_ms(&b->lease) > t); /* the loop does not spin */
}

TEST(a_task_of_65_minutes_does_not_expire_and_is_idle_after_its_end)
{
    struct life b;

    begin_life(&b, SPEC_TTL_MS, SPEC_IDLE_MS);
    b.task_ends_ms = 65 * MIN_MS;
    live_until(&b, 0, 65 * MIN_MS);
    T_OK(!b.idle_at_ms && !b.over_at_ms);
    T_OK(b.n_extended > 3 && b.n_extended <= 65 / 3); /* once in 3 minutes at most */
    live_until(&b, lease_next_ms(&b.lease), DAY_MS);
    T_INT(b.over_at_ms, 0);
    /* its end is seen by the look after it, at most 3 minutes later */
    T_OK(b.idle_at_ms > 65 * MIN_MS - 3 * MIN_MS + SPEC_IDLE_MS &&
         b.idle_at_ms <= 65 * MIN_MS + SPEC_IDLE_MS);
    use_done(&b.use);
}

TEST(a_task_of_65_minutes_does_not_expire_with_any_time_to_live_and_idle_time)
{
    for (int64_t ttl_ms = 1000; ttl_ms <= 120 * MIN_MS; ttl_ms *= 3)
        for (int64_t idle_ms = 1000; idle_ms <= 120 * MIN_MS; idle_ms *= 3) {
            struct life b;

            begin_life(&b, ttl_ms, idle_ms);
            b.task_ends_ms = 65 * MIN_MS;
            live_until(&b, 0, 65 * MIN_MS);
            T_OK(!b.idle_at_ms && !b.over_at_ms);
            live_until(&b, lease_next_ms(&b.lease), DAY_MS);
            T_OK(idle_ms <= ttl_ms ? b.idle_at_ms > 0 : b.over_at_ms > 0 || b.idle_at_ms > 0);
            use_done(&b.use);
        }
}

/* A command with a time limit extends the lease beforehand: a monitor that is busy, or none, does not end it. */
TEST(a_command_of_15_minutes_does_not_outlive_its_lease)
{
    const int64_t command_ms = 15 * MIN_MS, grace_ms = MIN_MS;
    struct life b;

    begin_life(&b, SPEC_TTL_MS, SPEC_IDLE_MS);
    b.task_ends_ms = command_ms;
    T_OK(lease_extend(&b.lease, lease_for_command_ms(command_ms, 0)));
    T_OK(b.lease.deadline_ms >= SPEC_TTL_MS && b.lease.deadline_ms >= command_ms + grace_ms);
    live_until(&b, 0, command_ms);
    T_OK(!b.idle_at_ms && !b.over_at_ms);
    T_OK(b.lease.deadline_ms >= command_ms + grace_ms);
    use_done(&b.use);
}

/* Whoever started it: bellhop exec and bh_run() are connected; detached ones and bh_exec_start() are not; one by a
 * call on the guest socket says nothing beforehand, as does one without a time limit. */
TEST(a_command_of_15_minutes_does_not_outlive_its_lease_also_detached_and_through_the_library)
{
    const struct {
        bool is_attached, has_limit;
        int64_t most_ms; /* the administrator's */
    } ways[] = {
        {true, true, 0},   {true, false, 0},         {false, true, 0},
        {false, false, 0}, {true, true, 5 * MIN_MS}, {false, true, 5 * MIN_MS},
    };
    const int64_t command_ms = 15 * MIN_MS;

    for (size_t i = 0; i < 2 * N_ELEMENTS(ways); i++) {
        int64_t most_ms = ways[i / 2].most_ms;
        int64_t ttl_ms = most_ms ? most_ms : SPEC_TTL_MS;
        struct life b;

        begin_life(&b, ttl_ms, ttl_ms);
        if (i % 2)
            lease_end_early(&b.lease); /* --on-timeout snapshot */
        b.task_ends_ms = command_ms;
        b.is_attached = ways[i / 2].is_attached;
        if (ways[i / 2].has_limit)
            (void)lease_extend(&b.lease, lease_for_command_ms(command_ms, most_ms));
        T_OK(!most_ms || b.lease.deadline_ms <= most_ms);
        live_until(&b, 0, command_ms);
        T_OK(!b.idle_at_ms && !b.over_at_ms);
        T_OK(b.lease.deadline_ms > command_ms);
        b.is_attached = false;
        live_until(&b, lease_next_ms(&b.lease), DAY_MS); /* and its end comes */
        T_OK(b.idle_at_ms || b.over_at_ms);
        use_done(&b.use);
    }
    T_INT(lease_for_command_ms(command_ms, 0), command_ms + MIN_MS);
    T_INT(lease_for_command_ms(command_ms, 20 * MIN_MS), command_ms + MIN_MS);
    T_INT(lease_for_command_ms(command_ms, 15 * MIN_MS), 15 * MIN_MS);
}

TEST(a_client_that_is_attached_for_seven_days_holds_the_box)
{
    struct life b;

    begin_life(&b, SPEC_TTL_MS, SPEC_IDLE_MS);
    b.is_attached = true;
    live_until(&b, 0, 7 * DAY_MS);
    T_OK(!b.idle_at_ms && !b.over_at_ms);
    T_OK(b.lease.deadline_ms - 7 * DAY_MS <=
         SPEC_TTL_MS); /* never beyond its time to live from now */
    b.is_attached = false;
    live_until(&b, 7 * DAY_MS, 8 * DAY_MS);
    T_OK(b.idle_at_ms > 0 && b.idle_at_ms <= 7 * DAY_MS + SPEC_IDLE_MS);
    use_done(&b.use);
}

TEST(a_box_that_nobody_uses_is_idle_at_ten_minutes_and_not_a_moment_earlier)
{
    struct life b;

    begin_life(&b, SPEC_TTL_MS, SPEC_IDLE_MS);
    live_until(&b, 0, DAY_MS);
    T_INT(b.idle_at_ms, 10 * MIN_MS);
    use_done(&b.use);
    begin_life(&b, SPEC_TTL_MS, 0); /* keep */
    live_until(&b, 0, DAY_MS);
    T_INT(b.idle_at_ms, 0);
    T_INT(b.over_at_ms, 10 * MIN_MS);
    use_done(&b.use);
}

/* ---- --on-timeout snapshot ---- */

TEST(a_snapshot_begins_a_minute_before_the_end_of_an_unused_box)
{
    const struct {
        int64_t ttl_ms, over_at_ms;
    } cases[] = {{SPEC_TTL_MS, SPEC_TTL_MS - MIN_MS},
                 {60 * MIN_MS, 59 * MIN_MS},
                 {2 * MIN_MS, MIN_MS},
                 {MIN_MS, MIN_MS / 2},
                 {2000, 1000}};

    for (size_t i = 0; i < N_ELEMENTS(cases); i++) {
        struct life b;

        begin_life(&b, cases[i].ttl_ms, 0); /* keep */
        lease_end_early(&b.lease);
        live_until(&b, 0, DAY_MS);
        T_INT(b.over_at_ms, cases[i].over_at_ms);
        T_INT(b.lease.deadline_ms, cases[i].ttl_ms); /* the time itself is as it was */
        use_done(&b.use);
    }
}

/* With any times: a task is not ended, the end comes at last, its lead is there, and nothing ever lives beyond its
 * time to live from now, which the administrator limits. */
TEST(a_box_with_a_snapshot_at_its_end_never_has_more_time_than_its_time_to_live)
{
    for (int64_t ttl_ms = 1000; ttl_ms <= 120 * MIN_MS; ttl_ms *= 3)
        for (int64_t idle_ms = 1000; idle_ms <= 240 * MIN_MS; idle_ms *= 3) {
            int64_t lead_ms = ttl_ms / 2 < LEASE_LEAD_MS ? ttl_ms / 2 : LEASE_LEAD_MS;
            int64_t t = 0;
            struct life b;

            begin_life(&b, ttl_ms, idle_ms);
            lease_end_early(&b.lease);
            b.task_ends_ms = 65 * MIN_MS;
            for (; t < DAY_MS && look(&b, t); t = lease_next_ms(&b.lease)) {
                T_OK(lease_next_ms(&b.lease) > t);
                T_OK(b.lease.deadline_ms - t <= ttl_ms);
            }
            T_OK(t >= 65 * MIN_MS && t < DAY_MS);
            T_OK(b.idle_at_ms || b.lease.deadline_ms - t >= lead_ms);
            T_OK(idle_ms <= ttl_ms ? b.idle_at_ms > 0 : b.over_at_ms > 0 || b.idle_at_ms > 0);
            use_done(&b.use);
        }
}

/* A client that hangs up a moment before the end begins the idle time anew. */
TEST(a_use_at_the_last_moment_gives_a_box_with_a_snapshot_no_more_than_its_time_to_live)
{
    struct lease l;
    int64_t end_ms;

    lease_init(&l, 0, SPEC_TTL_MS, SPEC_TTL_MS);
    lease_set_idle(&l, SPEC_IDLE_MS, 0);
    lease_end_early(&l);
    end_ms = lease_end_ms(&l);
    (void)lease_look(&l, lease_next_ms(&l), LEASE_UNUSED);
    (void)lease_look(&l, lease_next_ms(&l), LEASE_UNUSED);
    lease_set_used(&l, end_ms - 1);
    T_OK(lease_look(&l, end_ms, LEASE_UNUSED));
    T_INT(l.deadline_ms, end_ms + SPEC_TTL_MS);
}

/* A command holds the box's lock at the end: the next try comes later, and the lead is there again. */
TEST(a_snapshot_that_has_to_wait_for_a_command_begins_when_the_end_was_put_off_to)
{
    struct lease l;

    lease_init(&l, 0, SPEC_TTL_MS, SPEC_TTL_MS);
    lease_end_early(&l);
    T_OK(lease_is_over(&l, 9 * MIN_MS) && !lease_is_over(&l, 9 * MIN_MS - 1));
    T_OK(lease_postpone(&l, 9 * MIN_MS + 10000));
    T_OK(!lease_is_over(&l, 9 * MIN_MS + 9999) && lease_is_over(&l, 9 * MIN_MS + 10000));
    T_INT(l.deadline_ms, 10 * MIN_MS + 10000);
    T_OK(!lease_postpone(&l, 9 * MIN_MS)); /* never earlier */
    /* A resume gives the box its whole time again. */
    T_OK(lease_extend(&l, 30 * MIN_MS));
    T_INT(lease_end_ms(&l), 29 * MIN_MS);
}

TEST(the_defaults_are_ten_minutes_of_life_and_ten_without_use)
{
    struct bh_create_options o = {.size = sizeof(o), .name = "one"};
    struct spec s = {0};
    struct err e = {0};

    T_INT(spec_from_options(&o, &s, &e), 0);
    T_INT(s.timeout_ms, 10 * MIN_MS);
    T_INT(s.idle_ms, 10 * MIN_MS);
    T_STR(s.on_idle, "pause");
    T_STR(s.on_timeout, "stop");
    spec_done(&s);
}

/* docs/operations.md has them as a table. */
TEST(the_default_times_are_those_of_the_documents)
{
    T_INT(SPEC_TTL_MS, 10 * MIN_MS);
    T_INT(SPEC_IDLE_MS, 10 * MIN_MS);
    T_INT(LEASE_LIFT_MS, 10 * MIN_MS);
    T_INT(LEASE_LEAD_MS, MIN_MS);
    T_INT(LEASE_GRACE_MS, MIN_MS);
    T_INT(CLIENT_ANSWER_MS, 30000);
    T_INT(EXEC_WAIT_MS, MIN_MS);
    T_INT(EXEC_CALL_MS, 5000);
    T_INT(PROVIDER_MS, 5 * MIN_MS);
    T_INT(BRINGUP_TIMEOUT_MS, 5 * MIN_MS);
    T_INT(BOX_RESUME_MS, 90000);
    T_INT(RECIPE_TOTAL_MS, 2 * MIN_MS);
    T_INT(RECIPE_ATTEMPT_MS, 2000);
    T_INT(RECIPE_RETRY_MS, 500);
    T_INT(RECIPE_INTERVAL_MS, 15000);
    T_INT(SUPERVISE_FIRST_PAUSE_MS, 500);
    T_INT(SUPERVISE_MOST_PAUSE_MS, 15000);
    T_INT(HISTORY_RECORDS_FOR_MS, 30 * DAY_MS);
}

/* ---- the lease that outlives its monitor ---- */

static int64_t mono_ms = 5 * DAY_MS, jump_ms;

int64_t __wrap_clock_mono_ms(void);
int64_t __wrap_clock_mono_ms(void)
{
    return mono_ms;
}

int64_t __wrap_clock_real_ms(void);
int64_t __wrap_clock_real_ms(void)
{
    return 1800000000LL * 1000 + mono_ms + jump_ms;
}

TEST(a_lease_is_the_same_for_the_next_monitor_whatever_the_wall_clock_says)
{
    const struct lease_facts saved = {.deadline_mono_ms = mono_ms + 10 * MIN_MS,
                                      .used_mono_ms = mono_ms - MIN_MS,
                                      .awake_until_mono_ms = mono_ms + 1,
                                      .looked_mono_ms = mono_ms - 2,
                                      .cpu_ms = 77};
    const int64_t jumps[] = {0, DAY_MS, -DAY_MS};
    struct err e = {0};

    T_INT(lease_file_save(".", &saved, &e), 0);
    for (size_t i = 0; i < N_ELEMENTS(jumps); i++) {
        struct lease_facts f = {0};
        struct lease l;

        jump_ms = jumps[i];
        T_OK(lease_file_load(".", &f));
        T_INT(memcmp(&f, &saved, sizeof(f)), 0);
        lease_init(&l, clock_mono_ms(), 10 * MIN_MS, f.deadline_mono_ms);
        lease_set_idle(&l, 10 * MIN_MS, f.used_mono_ms);
        T_OK(!lease_is_over(&l, clock_mono_ms()) && !lease_is_idle(&l, clock_mono_ms()));
        T_OK(lease_is_idle(&l, clock_mono_ms() + 9 * MIN_MS));
        T_OK(lease_is_over(&l, clock_mono_ms() + 10 * MIN_MS));
    }
}

TEST(the_lease_of_another_boot_or_a_damaged_one_is_none)
{
    const struct lease_facts saved = {.deadline_mono_ms = 1};
    struct lease_facts f = {.deadline_mono_ms = 42};
    const char *const wrong[] = {"", "{", "[]", "{\"boot_id\":\"x\"}",
                                 "{\"boot_id\":\"00000000-0000-0000-0000-000000000000\",\"deadline_"
                                 "mono_ms\":1,\"used_mono_ms\":1,"
                                 "\"awake_until_mono_ms\":1,\"looked_mono_ms\":1,\"cpu_ms\":1}"};
    struct err e = {0};

    T_OK(!lease_file_load(".", &f));
    for (size_t i = 0; i < N_ELEMENTS(wrong); i++) {
        T_INT(io_write_file(AT_FDCWD, "lease.json", wrong[i], strlen(wrong[i]), 0600, false, &e),
              0);
        T_OK(!lease_file_load(".", &f));
    }
    T_INT(f.deadline_mono_ms, 42);
    T_INT(lease_file_save(".", &saved, &e), 0);
    T_OK(lease_file_load(".", &f));
}
