#pragma once
/* monitor_internal: parts of the monitor that its files share. All are for the loop's thread. */
#include "monitor/monitor.h"

#define MONITOR_BUSY_MS 10000 /* a command is at work on the box: try again later */
#define MONITOR_CAUSE_BYTES 512

/* A state that cannot be stored is a line of the monitor's log: the next command finds the box as it
 * is, and stores that. */
int monitor_set_state(struct monitor *m, enum bh_state state, const char *cause, struct err *e);
/* A lease as the box's options say, until deadline_ms. */
void monitor_begin_lease(struct monitor *m, int64_t now_ms, int64_t deadline_ms, int64_t used_ms);

/* ---- pause and resume: monitor_pause.c ---- */

int monitor_thaw_box(struct bh_box *box, int64_t deadline_mono_ms, bool *ret_well, struct err *e);
/* Under the name lock. ERR_UNIMPLEMENTED: this machine cannot freeze the box. */
int monitor_pause_unused(struct monitor *m, const char *cause, struct err *e);
/* Somebody else has paused the box, or lets it run again: that becomes its state. */
void monitor_follow_pause(struct monitor *m);
/* Resumes a paused box for a connection to one of its ports. */
void monitor_wake(struct monitor *m);

/* ---- the end of the box: monitor_end.c ---- */

/*
 * Under the name lock: ends the processes, and with is_removal removes the box too. Repeated until it is done, with a
 * pause of a minute at most, in which *lock is given up. The history has "not-ended" once.
 */
void monitor_end_locked(struct monitor *m, const char *by, const char *cause, bool is_removal,
                        int *lock);
/* These take the lock. If a command has it, the first two try again later; the others end the
 * processes, and the command sees that. */
void monitor_end_by_lease(struct monitor *m);
void monitor_end_idle_time(struct monitor *m); /* does what `up --on-idle` says */
void monitor_end_by_itself(struct monitor *m);
void monitor_end_by_signal(struct monitor *m);
