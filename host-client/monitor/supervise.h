#pragma once
/*
 * supervise: a thread of the monitor for calls of the guest agent that can take long. It waits for
 * the coding agent's command to end or to hang, restarts it, and renews the lease in the box. It
 * owns its client; an eventfd wakes the loop. All functions are for the loop's thread.
 */
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"
#include "lib/box/box.h"

#define SUPERVISE_MAX_RESTARTS 5           /* unless the recipe has another number */
#define SUPERVISE_FIRST_PAUSE_MS 500       /* doubled with each restart, */
#define SUPERVISE_MOST_PAUSE_MS 15000      /* up to this */
#define SUPERVISE_ATTEMPT_MS 10000         /* minimum for a probe: its box may be busy */
#define SUPERVISE_PROBES 3                 /* failed probes in a row: it hangs */
#define SUPERVISE_GOOD_MS (10 * 60 * 1000) /* after such a run the count starts anew */

/* The pause before a restart after so many others. */
int64_t supervise_pause_ms(int n_restarts);

struct supervisor;

/* is_parked: the box is frozen; as after supervisor_park(). */
int supervisor_new(struct bh_box *box, bool is_parked, struct supervisor **ret, struct err *e);
struct supervisor *supervisor_free(struct supervisor *s); /* ends and joins the thread */

/* Reads agent-start.json anew and keeps its command running. */
void supervisor_watch(struct supervisor *s);
/* Sets the time at which the box's first process ends the box, unless it is extended. */
void supervisor_set_lease(struct supervisor *s, int64_t until_mono_ms);

/*
 * Ends every call of the guest agent, so that none lands after the box is frozen, and lifts the
 * box's own deadline. Nothing is called until supervisor_unpark(). Fails, and calls go on, if the
 * agent does not answer.
 */
int supervisor_park(struct supervisor *s, struct err *e);
/* The time in between counts neither against the coding agent's health nor for its restarts. A
 * lease set meanwhile is pushed. is_well false: the coding agent is checked at once. */
void supervisor_unpark(struct supervisor *s, bool is_well);

/* Asks the guest agent about the box's use; the event descriptor reports the answer. */
void supervisor_ask_activity(struct supervisor *s);
/* Takes the answer, once; NULL: not yet. The caller owns it. */
json_t *supervisor_take_activity(struct supervisor *s);

/* when readable: drain it, then take the results */
int supervisor_event_fd(const struct supervisor *s);
void supervisor_drain(struct supervisor *s);
/* True, once, if the command was given up; cause says why. */
bool supervisor_take_failure(struct supervisor *s, char *cause, size_t cause_bytes);
int supervisor_restarts(struct supervisor *s);
