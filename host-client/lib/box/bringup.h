#pragma once
/*
 * bringup: every change of a box's state: start, restart, stop, removal, and recovery after an
 * interruption. Functions with _locked need the box's name lock (store_lock_name); the others take
 * it.
 *
 * The intent is stored before the provider is asked. A command rolls back its own failure or
 * cancel. The next command finds the work of one that died: a transitional state whose name lock
 * is free.
 */
#include <stdbool.h>
#include <stdint.h>

#include "bellhop/bellhop.h"
#include "common/err.h"
#include "lib/box/box.h"

#define BRINGUP_TIMEOUT_MS (5 * 60 * 1000)
#define BRINGUP_ANSWERS 4 /* and at least so many times as long as a guest agent may be silent */

/* How long a call that makes or starts a box may take, unless its caller says (timeout_ms). */
int64_t bringup_deadline(const struct bh_ctx *ctx, int64_t timeout_ms);

/* More about a failure than the error itself. */
struct bringup_report {
    char step[32];
    char *log; /* the tail of the step's output, or NULL; the owner of the report frees it */
};

/*
 * Makes the box run: its disk (first: the options of a new box), its processes, its content, its
 * coding agent. If a first start fails, everything is rolled back, the row too. If a later start
 * fails, the box's processes are ended and it is in state error with the cause, or stopped if it
 * was canceled. The row is reloaded.
 */
int bringup_run_locked(struct bh_box *box, const struct bh_create_options *first,
                       int64_t deadline_mono_ms, struct bringup_report *report, struct err *e);

/* Restarts the coding agent of a running box. On failure the box stays as it is. */
int bringup_agent_locked(struct bh_box *box, int64_t deadline_mono_ms,
                         struct bringup_report *report, struct err *e);

/* The cause of the end of a time to live, and the beginning of the cause if the box is removed. */
#define BRINGUP_TIME_IS_OVER "its time to live is over"
#define BRINGUP_EXPIRED "it has expired: "
/* The cause of the end of a box whose directory was removed by other means. */
#define BRINGUP_DISK_GONE "its disk is gone"

/* Makes the box run from whatever state it is in. up: the options of an `up`, or NULL. ERR_NOT_FOUND: it was the rest of a box, or its
 * disk is gone, and has been removed. ERR_UNAVAILABLE: its disk is not there, and neither is any
 * other's; the box stays. */
int bringup_back_locked(struct bh_box *box, const struct bh_create_options *up,
                        int64_t deadline_mono_ms, struct bringup_report *report, struct err *e);
/* The same; takes the lock. */
int bringup_back(struct bh_box *box, int64_t deadline_mono_ms, struct bringup_report *report,
                 struct err *e);

/* Marks a box as stopped if its row says that it runs and nothing of it does. Takes the lock,
 * and leaves a box alone that is locked by another. Costs a ping of its monitor. */
void bringup_notice(struct bh_box *box);

/* Finishes or rolls back interrupted work; *ret_gone: the box was removed. */
int bringup_settle_locked(struct bh_box *box, bool *ret_gone, struct err *e);

/* Freezes a running box. ERR_PRECONDITION: it does not run. ERR_UNIMPLEMENTED: it cannot be frozen
 * here. On failure it runs on. */
int bringup_pause_locked(struct bh_box *box, int64_t deadline_mono_ms, struct err *e);
/* A paused box runs again, and its guest agent has answered. Finishes or undoes an interrupted pause
 * or resume, too. A box whose processes are gone becomes stopped: ERR_PRECONDITION. On another
 * failure it stays paused. */
int bringup_resume_locked(struct bh_box *box, const char *cause, int64_t deadline_mono_ms,
                          struct err *e);

int bringup_stop_locked(struct bh_box *box, const char *cause, struct err *e);
/* Removes everything of the box; its record stays, with the cause. */
int bringup_destroy_locked(struct bh_box *box, const char *cause, struct err *e);
/* The same, but asks nothing of the provider, whose part of the box may be left behind: gc removes it by the record. */
int bringup_forget_locked(struct bh_box *box, const char *cause, struct err *e);
