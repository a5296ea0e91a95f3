#pragma once
/*
 * supervise: a thread of the monitor for everything that asks the guest agent: it waits for the
 * coding agent's command to end, or to hang, and starts it again, and passes the lease on. It owns its client;
 * what the loop should know comes through an eventfd. All functions are for the loop's thread.
 */
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"
#include "lib/box/box.h"

#define SUPERVISE_MAX_RESTARTS 5           /* unless the recipe has another number */
#define SUPERVISE_FIRST_PAUSE_MS 500       /* doubled with each restart, */
#define SUPERVISE_MOST_PAUSE_MS 15000      /* up to this */
#define SUPERVISE_ATTEMPT_MS 10000         /* at least, for a probe: its box may be busy */
#define SUPERVISE_PROBES 3                 /* in a row without health: it hangs */
#define SUPERVISE_GOOD_MS (10 * 60 * 1000) /* ran so long: the count starts anew */

struct supervisor;

int supervisor_new(struct bh_box *box, struct supervisor **ret, struct err *e);
struct supervisor *supervisor_free(struct supervisor *s); /* ends and joins the thread */

/* Reads agent-start.json (anew) and keeps its command running. */
void supervisor_watch(struct supervisor *s);
/* The box's first process shall end the box at this time when nobody extends it. */
void supervisor_set_lease(struct supervisor *s, int64_t until_mono_ms);

/* Asks the guest agent what the box is used by; the event descriptor tells of the answer. */
void supervisor_ask_activity(struct supervisor *s);
/* The answer (once), or NULL: it has not come. The caller's. */
json_t *supervisor_take_activity(struct supervisor *s);

int supervisor_event_fd(const struct supervisor *s); /* readable: drain it, then see what came */
void supervisor_drain(struct supervisor *s);
/* True (once) when the command was given up; cause says why. */
bool supervisor_take_failure(struct supervisor *s, char *cause, size_t cause_bytes);
int supervisor_restarts(struct supervisor *s);
