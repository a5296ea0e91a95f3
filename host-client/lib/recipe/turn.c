#include "lib/recipe/turn.h"

int turn_begin(struct turn *t, int64_t now_ms, int64_t warning_ms, int64_t stale_ms, struct err *e)
{
    *t = (struct turn){.warning_ms = warning_ms ? warning_ms : TURN_WARNING_MS,
                       .stale_ms = stale_ms ? stale_ms : TURN_STALE_MS,
                       .event_ms = now_ms};
    if (t->warning_ms < 0 || t->warning_ms > t->stale_ms)
        return err_field(e, ERR_INVALID, "warn-after",
                         "warn-after: the warning cannot come after the turn is stale (%lld ms)",
                         (long long)t->stale_ms);
    return 0;
}

void turn_note_event(struct turn *t, int64_t now_ms)
{
    t->event_ms = now_ms;
    t->told = TURN_LIVELY;
}

enum turn_silence turn_look(struct turn *t, int64_t now_ms)
{
    int64_t silent_ms = now_ms - t->event_ms;
    enum turn_silence silence = silent_ms >= t->stale_ms     ? TURN_STALE
                                : silent_ms >= t->warning_ms ? TURN_WARNING
                                                             : TURN_LIVELY;

    if (silence <= t->told)
        return TURN_LIVELY;
    t->told = silence;
    return silence;
}
