#pragma once
/*
 * monitor: one small process for each box (as conmon is for podman). It starts or finds the box's
 * processes, keeps its lease, forwards ports into it, restarts its coding agent, and records how
 * it ended.
 *
 * One thread polls and owns everything here. A second one (supervise.h) makes the calls of the
 * guest agent that can take long.
 */
#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"
#include "lib/box/box.h"
#include "lib/box/lease.h"
#include "lib/box/use.h"
#include "monitor/exit_watch.h"

#define MONITOR_MAX_CLIENTS 64
#define MONITOR_MAX_FORWARDS 64
#define MONITOR_MAX_CONNECTIONS 256
#define MONITOR_MAX_POLL \
    (8 + MONITOR_MAX_CLIENTS + MONITOR_MAX_FORWARDS + 2 * MONITOR_MAX_CONNECTIONS)

struct forwards;
struct commands;
struct diskwatch;
struct supervisor;
struct bridge;

struct monitor {
    struct bh_ctx *ctx;
    struct bh_box *box;
    struct exit_watch exit;
    int signal_fd;
    bool is_over;          /* the loop ends */
    bool has_started;      /* the box's processes: it did not find them running */
    bool is_paused;        /* the box is frozen */
    int64_t wake_by_ms;    /* a connection wants the box to be resumed until then; 0: none does */
    struct lease lease;    /* monotonic time */
    bool is_attached;      /* a client was connected in the last turn of the loop */
    bool is_pause_refused; /* the history has it */
    struct use use;
    int64_t ask_until_ms; /* deadline of the answer about the box's use; 0: not asked */
    unsigned n_unanswered;
    struct forwards *forwards;
    int64_t restore_at_ms; /* a forwarded port was taken: try again; 0: none was */
    struct commands *commands;
    struct supervisor *supervisor;
    struct diskwatch *disk; /* NULL: no limit */
    struct bridge *bridge;  /* NULL: the agent listens by itself */
};

struct monitor_options {
    bool adopt_only; /* ERR_NOT_FOUND if there are no processes, instead of starting them */
    int64_t deadline_mono_ms; /* for the start and the guest agent's first response */
};

/* Finds or starts the box's processes, waits for the guest agent, and continues the work of an
 * earlier monitor. SIGCHLD, SIGTERM and SIGINT must be blocked. */
int monitor_start(struct monitor *m, struct bh_ctx *ctx, const char *box_id,
                  const struct monitor_options *o, struct err *e);
/* Runs until the box has ended. */
int monitor_run(struct monitor *m, struct err *e);
void monitor_done(struct monitor *m);

/* For commands.c. */
unsigned monitor_uses(const struct monitor *m); /* current uses of the box */
/* Tells the store and the guest agent. An error is the store's: the lease is in force all the same. */
int monitor_lease_changed(struct monitor *m, struct err *e);
void monitor_save_lease(struct monitor *m); /* writes lease.json alone */
int64_t monitor_deadline_real_ms(const struct monitor *m);
/*
 * Freezes the box, and lets it run again; both may be repeated. The caller holds the box's name lock
 * and stores its state. After a resume the guest agent has got System/Resync and has answered. If
 * that fails by the deadline, the box is frozen again.
 */
int monitor_pause_box(struct monitor *m, struct err *e);
int monitor_resume_box(struct monitor *m, int64_t deadline_mono_ms, struct err *e);
/* Ends the box's processes and writes the exit record; the loop ends after that. */
int monitor_stop_box(struct monitor *m, const char *by, const char *cause, int grace_ms,
                     struct err *e);
