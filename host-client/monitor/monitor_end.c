/* monitor_end: the end of a box: its time, its idle time, its first process, a signal, its disk. */
#include "monitor/monitor_internal.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

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
#define END_FIRST_MS 1000 /* pause after the first refusal of the end; doubled with each */
#define END_MOST_MS 60000

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
    /* A connection that ends after the container does makes the kernel look for its address, and the next start waits
     * for that: a second. */
    m->box->client = client_free(m->box->client);
    r = box_provider_stop(m->box, grace_ms, e);
    write_exit_record(m, by, cause);
    return r;
}

/* One try. *is_stopped: an earlier one has stopped the box. */
static int end_once(struct monitor *m, const char *by, const char *cause, bool is_removal,
                    bool *is_stopped, struct err *e)
{
    char expired[MONITOR_CAUSE_BYTES];
    int r = box_reload(m->box, e);

    if (r == -ERR_NOT_FOUND || (r == 0 && !m->is_over && !box_row_is_live(&m->box->row)))
        return 0;
    if (r < 0)
        return err_wrap(e, r, "the box is not looked at");
    if (!*is_stopped) {
        (void)monitor_set_state(m, BH_STATE_STOPPING, cause, NULL);
        r = monitor_stop_box(m, by, cause, BOX_STOP_GRACE_MS, e);
        if (r < 0)
            return err_wrap(e, r, "the box is not stopped");
        (void)monitor_set_state(m, BH_STATE_STOPPED, cause, NULL);
        *is_stopped = true;
    }
    if (!is_removal)
        return 0;
    /* no command may ask this monitor to stop the box now */
    m->commands = commands_free(m->commands);
    r = box_reload(m->box, e);
    if (r == -ERR_NOT_FOUND)
        return 0;
    (void)snprintf(expired, sizeof(expired), BRINGUP_EXPIRED "%s", cause);
    if (r == 0)
        r = bringup_destroy_locked(m->box, expired, e);
    return err_wrap(e, r, "the box is not removed");
}

/* False: the monitor was asked to end. */
static bool wait_to_end_again(struct monitor *m, int64_t ms)
{
    int64_t deadline_ms = clock_mono_ms() + ms;
    struct pollfd signals = {.fd = m->signal_fd, .events = POLLIN};
    struct signalfd_siginfo si;

    while (poll(&signals, 1, clock_until_ms(deadline_ms)) > 0) {
        if (read(m->signal_fd, &si, sizeof(si)) != (ssize_t)sizeof(si))
            continue;
        if (si.ssi_signo != SIGCHLD)
            return false;
        exit_watch_reap(&m->exit);
    }
    return true;
}

/*
 * Nobody else may come for the box: a provider or a store that refuses is asked again, until it is done. A command that
 * takes the box over meanwhile kills this monitor.
 */
void monitor_end_locked(struct monitor *m, const char *by, const char *cause, bool is_removal,
                        int *lock)
{
    int64_t pause_ms = END_FIRST_MS;
    bool is_stopped = false, is_told = false;
    struct err e = {0};

    while (end_once(m, by, cause, is_removal, &is_stopped, &e) < 0) {
        (void)fprintf(stderr, "bellhop-monitor: %s\n", e.message);
        is_told = is_told || store_add_event(m->ctx->store, m->box->row.id, NULL, "not-ended",
                                             e.message, NULL) == 0;
        m->commands = commands_free(m->commands); /* as if it had ended */
        fd_close(TAKE_FD(*lock));
        do {
            if (!wait_to_end_again(m, pause_ms)) {
                m->is_over = true;
                return;
            }
            pause_ms = pause_ms * 2 < END_MOST_MS ? pause_ms * 2 : END_MOST_MS;
        } while (store_lock_name(m->ctx->store, m->box->row.name, clock_mono_ms(), -1, lock, NULL) <
                 0);
    }
    m->is_over = true;
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
    monitor_end_locked(m, "timeout", BRINGUP_TIME_IS_OVER, is_removal, &lock);
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
        monitor_end_locked(m, "idle", cause, str_eq(m->box->spec.on_idle, "rm"), &lock);
        return;
    }
    if (m->box->row.state != BH_STATE_RUNNING) /* in error: its time to live ends it */
        return;
    r = monitor_pause_unused(m, cause, &e);
    if (r == -ERR_UNIMPLEMENTED && !(m->box->spec.asked & SPEC_ASKED_ON_IDLE))
        monitor_end_locked(m, "idle", cause, false, &lock);
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
        monitor_end_locked(m, "box", cause, false, &lock);
    else
        (void)monitor_stop_box(m, "box", cause, 0, NULL);
}

void monitor_end_by_signal(struct monitor *m)
{
    _cleanup_close_ int lock = -1;

    if (store_lock_name(m->ctx->store, m->box->row.name, clock_mono_ms() + MONITOR_BUSY_MS, -1,
                        &lock, NULL) == 0)
        monitor_end_locked(m, "signal", "the monitor was asked to end", false, &lock);
    else
        (void)monitor_stop_box(m, "signal", "the monitor was asked to end", BOX_STOP_GRACE_MS,
                               NULL);
}
