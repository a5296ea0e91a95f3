#pragma once
/*
 * bringup: what changes a box's state, in one place: bringing it up for the first time and again,
 * stopping, removing, and finishing what was interrupted. The functions with _locked need the
 * box's name lock (store_lock_name); the others take it.
 *
 * The intent stands in the store before the provider is asked. Whatever fails, or is canceled, is
 * undone by the same command; what dies is found by the next one: a transitional state whose lock
 * is free.
 */
#include <stdbool.h>
#include <stdint.h>

#include "bellhop/bellhop.h"
#include "common/err.h"
#include "lib/box/box.h"

#define BRINGUP_TIMEOUT_MS (5 * 60 * 1000)

/* What went wrong beyond the error itself. */
struct bringup_report {
    char step[32];
    char *log; /* the tail of what the step printed, or NULL; the owner frees it */
};

/*
 * Makes the box run: its disk (first: opts given, the row just added), its processes, what it was
 * asked to contain, its coding agent. On failure the first time everything is undone, the row too;
 * later its processes are ended and it is in state error, with the cause (stopped, if it was
 * canceled). The row is reloaded.
 */
int bringup_run_locked(struct bh_box *box, const struct bh_create_options *first,
                       int64_t deadline_mono_ms, struct bringup_report *report, struct err *e);

/* The coding agent of a running box is brought back; the box stays as it is if that fails. */
int bringup_agent_locked(struct bh_box *box, int64_t deadline_mono_ms,
                         struct bringup_report *report, struct err *e);

/* Running as it should, from whatever state it was found in. ERR_NOT_FOUND when what was found
 * was the rest of a box, which has been removed. */
int bringup_back_locked(struct bh_box *box, int64_t deadline_mono_ms, struct bringup_report *report,
                        struct err *e);
/* The same, taking the lock. */
int bringup_back(struct bh_box *box, int64_t deadline_mono_ms, struct bringup_report *report,
                 struct err *e);

/* A box that says it runs, while nothing of it does any more, is marked as stopped. Takes the lock
 * for it, and leaves the box as it is when somebody else has it. Costs a ping of its monitor. */
void bringup_notice(struct bh_box *box);

/* Finishes or undoes what was interrupted; *ret_gone when the box is not there any more. */
int bringup_settle_locked(struct bh_box *box, bool *ret_gone, struct err *e);

int bringup_stop_locked(struct bh_box *box, const char *cause, struct err *e);
int bringup_destroy_locked(struct bh_box *box, struct err *e);
