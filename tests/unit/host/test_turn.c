/* How long a coding agent may say nothing, by a virtual clock. */
#include "test.h"

#include "lib/recipe/turn.h"

#define START_MS 1000000

TEST(a_silence_is_warned_of_after_30_seconds_and_stale_after_5_minutes_once_each)
{
    struct turn t;
    int n_warnings = 0, n_stale = 0;

    T_INT(turn_begin(&t, START_MS, 0, 0, NULL), 0);
    for (int64_t ms = 0; ms <= 20 * 60 * 1000; ms += 1000) {
        enum turn_silence silence = turn_look(&t, START_MS + ms);

        if (silence == TURN_WARNING)
            T_INT(ms, 30000);
        if (silence == TURN_STALE)
            T_INT(ms, 300000);
        n_warnings += silence == TURN_WARNING;
        n_stale += silence == TURN_STALE;
    }
    T_INT(n_warnings, 1);
    T_INT(n_stale, 1);
}

TEST(an_event_ends_a_silence_and_the_next_one_is_told_again)
{
    struct turn t;

    T_INT(turn_begin(&t, START_MS, 0, 0, NULL), 0);
    turn_note_event(&t, START_MS + 29999);
    T_INT(turn_look(&t, START_MS + 30000), TURN_LIVELY);
    T_INT(turn_look(&t, START_MS + 59999), TURN_WARNING);
    turn_note_event(&t, START_MS + 70000);
    T_INT(turn_look(&t, START_MS + 99999), TURN_LIVELY);
    T_INT(turn_look(&t, START_MS + 100000), TURN_WARNING);
    T_INT(turn_look(&t, START_MS + 370000), TURN_STALE);
    T_INT(turn_look(&t, START_MS + 999999), TURN_LIVELY);
}

TEST(the_warning_does_not_come_after_the_turn_is_stale)
{
    struct turn t;
    struct err e = {0};

    T_INT(turn_begin(&t, START_MS, 5000, 4999, &e), -ERR_INVALID);
    T_STR(e.field, "warn-after");
    T_INT(turn_begin(&t, START_MS, TURN_STALE_MS + 1, 0, NULL), -ERR_INVALID);
    /* Both at once: the worse is told. A look that comes late tells it, too. */
    T_INT(turn_begin(&t, START_MS, 5000, 5000, NULL), 0);
    T_INT(turn_look(&t, START_MS + 4999), TURN_LIVELY);
    T_INT(turn_look(&t, START_MS + 900000), TURN_STALE);
    T_INT(turn_look(&t, START_MS + 900001), TURN_LIVELY);
    T_INT(TURN_ACTION_MS, 120000);
}
