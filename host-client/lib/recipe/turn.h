#pragma once
/*
 * turn: how long a coding agent may say nothing while it works on a prompt. After the warning time without an event
 * somebody should look, after the stale time nobody should wait any more. Each is told once for a silence; an event ends
 * it. Times are the caller's clock in milliseconds. Plain data.
 */
#include <stdint.h>

#include "common/err.h"

#define TURN_WARNING_MS 30000
#define TURN_STALE_MS (5 * 60 * 1000)
#define TURN_ACTION_MS 120000 /* for the answer to one request */

enum turn_silence {
    TURN_LIVELY,
    TURN_WARNING,
    TURN_STALE,
};

struct turn {
    int64_t warning_ms, stale_ms;
    int64_t event_ms; /* the last event, or the begin */
    enum turn_silence told;
};

/* 0: the defaults. ERR_INVALID: the warning would come after the stale time. */
int turn_begin(struct turn *t, int64_t now_ms, int64_t warning_ms, int64_t stale_ms, struct err *e);
void turn_note_event(struct turn *t, int64_t now_ms);
/* The news of now; TURN_LIVELY: none. */
enum turn_silence turn_look(struct turn *t, int64_t now_ms);
