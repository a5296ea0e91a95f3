/* monitor_end: the end of a box: its time, its idle time, its first process, a signal, its disk. */
#include "monitor/monitor_internal.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/io.h"
#include "common/jsonx.h"
#include "common/str.h"
#include "lib/box/box_provider.h"
#include "lib/box/bringup.h"
#include "lib/box/history.h"
#include "lib/box/snapshot.h"
#include "monitor/commands.h"
#include "monitor/supervise.h"

#define SNAPSHOT_LEAST_MS 10000

static json_t *exit_status_json(struct monitor *m)
{
    int status = 0;

    if (!exit_watch_status(&m->exit, &status))
        return json_pack("{s:n, s:n}", "code", "signal");
    if (WIFSIGNALED(status))
        return json_pack("{s:n, s:i}", "code", "signal", WTERMSIG(status));
    return json_pack("{s:i, s:n}", "code", WEXITSTATUS(status), "signal");
}

static void write_exit_record(struct monitor *m, const char *by, const char *cause)
{
    _cleanup_json_ json_t *obj =
        json_pack("{s:s, s:s, s:I, s:I, s:o}", "by", by, "cause", cause, "ended_ms",
                  (json_int_t)clock_real_ms(), "pid", (json_int_t)m->exit.run.pid, "exit",
                  exit_status_json(m));
    _cleanup_free_ char *path = box_path(m->box, "exit.json");
    _cleanup_free_ char *text = NULL;
    size_t len = 0;

    /* Not synced: that takes longer than a command waits for the stop when the disk is busy, and the
     * store, which is synced, gets it next. */
    if (obj && path && jx_dump(obj, &text, &len, NULL) == 0)
        (void)io_write_file(AT_FDCWD, path, text, len, 0600, false, NULL);
}

int monitor_stop_box(struct monitor *m, const char *by, const char *cause, int grace_ms,
                     struct err *e)
{
    int r;

    m->is_over = true;
    m->supervisor = supervisor_free(m->supervisor); /* it would restart the coding agent */
    r = box_provider_stop(m->box, grace_ms, e);
    write_exit_record(m, by, cause);
    return r;
}

/*
 * Nobody else may come for a box whose time is over: what the provider refuses is tried again, with a doubled pause,
 * for END_TRIES_MS. The history has the first refusal. A SIGTERM for the monitor ends it.
 */
static bool wait_to_end_again(struct monitor *m, struct end_tries *t, const char *what,
                              const struct err *why)
{
    struct pollfd asked = {.fd = m->signal_fd, .events = POLLIN};
    int64_t now = clock_mono_ms();

    (void)fprintf(stderr, "bellhop-monitor: %s: %s\n", what, why->message);
    if (!t->until_ms) {
        *t = (struct end_tries){.until_ms = now + END_TRIES_MS, .pause_ms = END_FIRST_MS};
        (void)store_add_event(m->ctx->store, m->box->row.id, NULL, "not-ended", why->message, NULL);
    }
    if (now >= t->until_ms || poll(&asked, 1, t->pause_ms) > 0)
        return false;
    t->pause_ms = t->pause_ms * 2 < END_MOST_MS ? t->pause_ms * 2 : END_MOST_MS;
    return true;
}

void monitor_end_locked(struct monitor *m, const char *by, const char *cause, bool is_removal)
{
    char expired[MONITOR_CAUSE_BYTES];
    struct err e = {0};

    if (box_reload(m->box, &e) < 0 || !box_row_is_live(&m->box->row)) {
        m->is_over = true;
        return;
    }
    (void)monitor_set_state(m, BH_STATE_STOPPING, cause, NULL);
    if (monitor_stop_box(m, by, cause, BOX_STOP_GRACE_MS, &e) < 0) {
        (void)fprintf(stderr, "bellhop-monitor: the box is not stopped: %s\n", e.message);
        return; /* it stays `stopping`: the next command or gc tries again */
    }
    (void)monitor_set_state(m, BH_STATE_STOPPED, cause, NULL);
    if (!is_removal || box_reload(m->box, &e) < 0)
        return;
    /* no command may ask this monitor to stop the box now */
    m->commands = commands_free(m->commands);
    (void)snprintf(expired, sizeof(expired), BRINGUP_EXPIRED "%s", cause);
    if (bringup_destroy_locked(m->box, expired, &e) < 0)
        (void)fprintf(stderr, "bellhop-monitor: the box is not removed: %s\n", e.message);
}

/* Under the name lock. The box's first process waits for longer than SNAPSHOT_LEAST_MS beyond the
 * deadline. False: it can be taken only once the box's processes have ended. */
static bool take_last_snapshot(struct monitor *m)
{
    int64_t least_ms = clock_mono_ms() + SNAPSHOT_LEAST_MS;
    int64_t deadline_ms = m->lease.deadline_ms > least_ms ? m->lease.deadline_ms : least_ms;

    return box_reload(m->box, NULL) < 0 || !box_row_is_live(&m->box->row) ||
           snapshot_at_timeout(m->box, deadline_ms);
}

void monitor_end_by_lease(struct monitor *m)
{
    bool is_removal = str_eq(m->box->spec.on_timeout, "rm");
    bool wants_snapshot = str_eq(m->box->spec.on_timeout, "snapshot");
    _cleanup_close_ int lock = -1;

    if (store_lock_name(m->ctx->store, m->box->row.name, clock_mono_ms(), -1, &lock, NULL) < 0) {
        (void)lease_postpone(&m->lease, clock_mono_ms() + MONITOR_BUSY_MS);
        (void)monitor_lease_changed(m, NULL); /* of a paused box: the supervisor pushes it later */
        return;
    }
    wants_snapshot = wants_snapshot && !take_last_snapshot(m);
    monitor_end_locked(m, "timeout", BRINGUP_TIME_IS_OVER, is_removal);
    if (wants_snapshot && box_reload(m->box, NULL) == 0)
        (void)snapshot_at_timeout(m->box, clock_mono_ms() + BOX_WAIT_MS);
}

void monitor_end_idle_time(struct monitor *m)
{
    _cleanup_close_ int lock = -1;
    int64_t now = clock_mono_ms();
    char cause[64], text[32];
    struct err e = {0};
    int r;

    lease_stay_awake(&m->lease, now + MONITOR_BUSY_MS);
    if (store_lock_name(m->ctx->store, m->box->row.name, now, -1, &lock, NULL) < 0 ||
        box_reload(m->box, NULL) < 0) {
        if (lease_postpone(&m->lease, now + MONITOR_BUSY_MS))
            (void)monitor_lease_changed(m, NULL);
        return;
    }
    (void)snprintf(cause, sizeof(cause), "unused for %s",
                   str_format_duration(m->box->spec.idle_ms, text, sizeof(text)));
    if (!str_eq(m->box->spec.on_idle, "pause")) {
        monitor_end_locked(m, "idle", cause, str_eq(m->box->spec.on_idle, "rm"));
        return;
    }
    if (m->box->row.state != BH_STATE_RUNNING) /* in error: its time to live ends it */
        return;
    r = monitor_pause_unused(m, cause, &e);
    if (r == -ERR_UNIMPLEMENTED && !(m->box->spec.asked & SPEC_ASKED_ON_IDLE))
        monitor_end_locked(m, "idle", cause, false);
    else if (r < 0 && !m->is_pause_refused)
        (void)store_add_event(m->ctx->store, m->box->row.id, NULL, "not-paused", e.message, NULL);
    m->is_pause_refused = r < 0;
    lease_stay_awake(&m->lease, now + m->box->spec.idle_ms);
}

/* A command that holds the lock notices by itself that the box is gone. */
void monitor_end_by_itself(struct monitor *m)
{
    _cleanup_close_ int lock = -1;
    char cause[MONITOR_CAUSE_BYTES], reason[160] = "";
    int status = 0;

    if (!exit_watch_status(&m->exit, &status))
        (void)snprintf(cause, sizeof(cause), "%s",
                       box_provider_look_disk(m->box, NULL) == 0 ? BRINGUP_DISK_GONE
                                                                 : "the box's first process ended");
    else if (m->exit.is_oom)
        (void)snprintf(cause, sizeof(cause),
                       "the box's first process was killed by signal %d: out of memory",
                       WTERMSIG(status));
    else if (WIFSIGNALED(status))
        (void)snprintf(cause, sizeof(cause), "the box's first process was killed by signal %d",
                       WTERMSIG(status));
    else
        (void)snprintf(cause, sizeof(cause), "the box's first process exited with %d",
                       WEXITSTATUS(status));
    box_provider_end_reason(m->box, reason, sizeof(reason));
    if (*reason) {
        size_t n = strlen(cause);

        (void)snprintf(cause + n, sizeof(cause) - n, " (%s)", reason);
    }
    if (store_lock_name(m->ctx->store, m->box->row.name, clock_mono_ms(), -1, &lock, NULL) == 0)
        monitor_end_locked(m, "box", cause, false);
    else
        (void)monitor_stop_box(m, "box", cause, 0, NULL);
}

void monitor_end_by_signal(struct monitor *m)
{
    _cleanup_close_ int lock = -1;

    if (store_lock_name(m->ctx->store, m->box->row.name, clock_mono_ms() + MONITOR_BUSY_MS, -1,
                        &lock, NULL) == 0)
        monitor_end_locked(m, "signal", "the monitor was asked to end", false);
    else
        (void)monitor_stop_box(m, "signal", "the monitor was asked to end", BOX_STOP_GRACE_MS,
                               NULL);
}
