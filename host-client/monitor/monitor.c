#include "monitor/monitor.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
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
#include "lib/box/lease_file.h"
#include "lib/box/lifecycle.h"
#include "lib/recipe/bootstrap.h"
#include "monitor/commands.h"
#include "monitor/diskwatch.h"
#include "monitor/port_forward.h"
#include "monitor/supervise.h"

#define READY_POLL_FIRST_MS 2
#define READY_POLL_MOST_MS 50
#define READY_TRY_MS 1000
/* The sum is less than LEASE_MARGIN_MS, which the box's first process waits beyond the
 * deadline. */
#define ASK_MS 4000
#define MAX_UNANSWERED 3 /* a busy machine may answer late */
#define BUSY_MS 10000    /* a command is at work on the box: try again later */
#define CAUSE_BYTES 512
#define WELL_MS 2000  /* for the coding agent's answer after a thaw */
#define WAKE_MS 90000 /* for a resume that a connection asks for */
#define WAKE_AGAIN_MS 20
#define RESTORE_AGAIN_MS 250

/* ---- start ---- */

static int find_or_start(struct monitor *m, const struct monitor_options *o, bool *ret_adopted,
                         struct err *e)
{
    struct provider_run run = {0};
    int r = box_provider_find(m->box, &run, e);

    if (r < 0)
        return r;
    if (r == 0 && o->adopt_only)
        return err_set(e, ERR_NOT_FOUND, "the box has no processes any more");
    *ret_adopted = r == 1;
    r = r == 1 ? 0 : box_provider_start(m->box, o->deadline_mono_ms, &run, e);
    return r < 0 ? r : exit_watch_begin(&m->exit, m->box, &run, e);
}

/* Makes an error of the last line that the box's first process printed. */
static int ended_early(struct monitor *m, struct err *e)
{
    static const char *const logs[] = {"agent.log", "console.log", NULL};
    char *line;

    for (size_t i = 0; logs[i]; i++) {
        _cleanup_free_ char *path = box_path(m->box, logs[i]);
        _cleanup_free_ char *text = NULL;
        size_t len = 0;

        if (!path || io_read_file(AT_FDCWD, path, 1024 * 1024, &text, &len, NULL) < 0)
            continue;
        while (len && text[len - 1] == '\n')
            text[--len] = '\0';
        line = strrchr(text, '\n');
        if (len)
            return err_set(e, ERR_INTERNAL, "the guest agent ended at once: %.300s",
                           line ? line + 1 : text);
    }
    return err_set(e, ERR_INTERNAL, "the guest agent ended at once");
}

static int wait_for_agent(struct monitor *m, int64_t deadline_mono_ms, struct err *e)
{
    int pause_ms = READY_POLL_FIRST_MS;
    struct client *c = NULL;
    int r = box_client(m->box, &c, e);

    while (r == 0) {
        r = client_health(c, READY_TRY_MS, e);
        if (r == 0)
            return 0;
        if (clock_until_ms(deadline_mono_ms) == 0)
            return err_wrap(e, r, "the guest agent does not answer");
        if (exit_watch_has_ended(&m->exit, pause_ms))
            return ended_early(m, e);
        pause_ms = pause_ms * 2 > READY_POLL_MOST_MS ? READY_POLL_MOST_MS : pause_ms * 2;
        r = 0;
    }
    return r;
}

/* ---- what is stored of the lease ---- */

/* 0: it may be unused for ever. */
static int64_t idle_time_ms(const struct monitor *m)
{
    return str_eq(m->box->spec.on_idle, "keep") ? 0 : m->box->spec.idle_ms;
}

void monitor_save_lease(struct monitor *m)
{
    const struct lease_facts facts = {.deadline_mono_ms = m->lease.deadline_ms,
                                      .used_mono_ms = m->lease.used_ms,
                                      .awake_until_mono_ms = m->lease.awake_until_ms,
                                      .looked_mono_ms = m->use.at_ms,
                                      .cpu_ms = m->use.cpu_ms};

    (void)lease_file_save(m->box->dir, &facts, NULL); /* the store has the deadline, too */
}

/* For people by the wall clock, for the next monitor by the monotonic one. An error is the store's,
 * and a line of the monitor's log. */
static int save_lease(struct monitor *m, struct err *e)
{
    int64_t ago_ms = clock_mono_ms() - m->lease.used_ms;
    struct err why = {0};
    int r = store_set_deadline(m->ctx->store, m->box->row.id, monitor_deadline_real_ms(m),
                               store_now_ms(m->ctx->store) - ago_ms, &why);

    if (r < 0)
        (void)fprintf(stderr, "bellhop-monitor: the deadline is not stored: %s\n", why.message);
    if (r < 0 && e)
        *e = why;
    monitor_save_lease(m);
    return r;
}

/* ---- pause and resume ---- */

int monitor_pause_box(struct monitor *m, struct err *e)
{
    int r;

    if (m->is_paused)
        return 0;
    r = supervisor_park(m->supervisor, e);
    if (r < 0)
        return err_wrap(e, r, "the guest agent");
    r = box_provider_freeze(m->box, e);
    if (r < 0) { /* it may stand still */
        (void)box_provider_thaw(m->box, clock_mono_ms() + BOX_RESUME_MS, NULL);
        supervisor_unpark(m->supervisor, true);
        return r;
    }
    m->is_paused = true;
    m->ask_until_ms = 0;
    m->n_unanswered = 0;
    /* It has its whole time to live from now on. */
    (void)lease_extend(&m->lease, clock_mono_ms() + m->box->spec.timeout_ms);
    (void)save_lease(m, NULL);
    return 0;
}

/*
 * Runs the box's processes again, and returns once the guest agent has the time, fresh random
 * numbers and a new generation, and the coding agent has answered a health check. *ret_well is set to
 * false if it did not within WELL_MS: the supervisor decides what to do about that.
 */
static int thaw_box(struct bh_box *box, int64_t deadline_mono_ms, bool *ret_well, struct err *e)
{
    struct client *c = NULL;
    int r = box_provider_thaw(box, deadline_mono_ms, e);
    int asked;

    box->client = client_free(box->client); /* its connections are from before */
    if (r == 0)
        r = box_client(box, &c, e);
    if (r == 0)
        r = client_resync(c, deadline_mono_ms, e);
    if (r < 0 || !box_has_agent(box))
        return r;
    asked = bootstrap_health(box->ctx, box->dir, c, WELL_MS, NULL);
    *ret_well = asked == 0 || asked == -ERR_ABORTED; /* somebody else speaks with it */
    return 0;
}

int monitor_resume_box(struct monitor *m, int64_t deadline_mono_ms, struct err *e)
{
    bool is_well = true;
    int64_t now;
    int r;

    if (!m->is_paused)
        return 0;
    r = thaw_box(m->box, deadline_mono_ms, &is_well, e);
    if (r < 0) {
        (void)box_provider_freeze(m->box, NULL);
        return r;
    }
    now = clock_mono_ms();
    m->is_paused = false;
    m->is_pause_refused = false;
    m->wake_by_ms = 0;
    use_done(&m->use);
    use_init(&m->use, now);
    lease_init(&m->lease, now, m->box->spec.timeout_ms, m->lease.deadline_ms);
    lease_set_idle(&m->lease, idle_time_ms(m), now);
    lease_touch(&m->lease, now);
    (void)lease_extend(&m->lease, now + m->box->spec.timeout_ms);
    (void)monitor_lease_changed(m, NULL);
    supervisor_unpark(m->supervisor, is_well);
    return 0;
}

/* A state that cannot be stored is a line of the monitor's log: the next command finds the box as it
 * is, and stores that. */
static int set_state(struct monitor *m, enum bh_state state, const char *cause, struct err *e)
{
    struct err why = {0};
    int r = store_set_state(m->ctx->store, m->box->row.id, state, cause, &why);

    if (r < 0)
        (void)fprintf(stderr, "bellhop-monitor: state %s (%s) is not stored: %s\n",
                      bh_state_name(state), cause, why.message);
    if (r < 0 && e)
        *e = why;
    return r;
}

/* A connection wants in: resumes the box under its name lock. A command that holds the lock may
 * resume or end the box itself: the next turn looks again. */
static void wake_for_connection(struct monitor *m)
{
    struct store *s = m->ctx->store;
    _cleanup_close_ int lock = -1;
    struct err e = {0};
    int r;

    if (store_lock_name(s, m->box->row.name, clock_mono_ms(), -1, &lock, NULL) < 0)
        return;
    if (box_reload(m->box, NULL) < 0 || !box_row_is_paused(&m->box->row))
        return;
    r = m->box->row.state == BH_STATE_RESUMING
            ? 0
            : set_state(m, BH_STATE_RESUMING, "a connection", &e);
    if (r == 0)
        r = monitor_resume_box(m, m->wake_by_ms, &e);
    if (r == 0)
        (void)set_state(m, BH_STATE_RUNNING, "a connection", NULL);
    else
        (void)set_state(m, BH_STATE_PAUSED, e.message, NULL);
}

static void on_wake(struct monitor *m)
{
    int64_t now = clock_mono_ms();

    if (!m->is_paused || !forwards_want_box(m->forwards)) {
        m->wake_by_ms = 0;
        return;
    }
    if (!m->wake_by_ms)
        m->wake_by_ms = now + WAKE_MS;
    if (now < m->wake_by_ms) {
        wake_for_connection(m);
        return;
    }
    forwards_refuse(m->forwards);
    m->wake_by_ms = 0;
}

/* ---- the lease at the start ---- */

/* An adopted box keeps its deadline and its last use; a new run has its whole time to live. */
static void begin_lease(struct monitor *m, bool is_adopted)
{
    int64_t now = clock_mono_ms();
    int64_t ttl = m->box->spec.timeout_ms;
    int64_t stored = m->box->row.deadline_ms;
    struct lease_facts f = {
        .deadline_mono_ms = now + ttl, .used_mono_ms = now, .looked_mono_ms = now};

    /* The wall clock is the second choice: somebody may have set it since. */
    if (is_adopted && !lease_file_load(m->box->dir, &f) && stored)
        f.deadline_mono_ms = now + (stored - clock_real_ms());
    lease_init(&m->lease, now, ttl, f.deadline_mono_ms);
    lease_set_idle(&m->lease, idle_time_ms(m), f.used_mono_ms);
    lease_stay_awake(&m->lease, f.awake_until_mono_ms);
    use_init(&m->use, f.looked_mono_ms);
    m->use.cpu_ms = f.cpu_ms;
    m->use.used_ms = f.used_mono_ms;
    (void)monitor_lease_changed(m, NULL);
}

/* Forwards the ports of the last time. While there was no monitor, a program of this machine may
 * have got one of them, if only as the source of a connection: such a port is tried again. */
static void restore_forwards(struct monitor *m)
{
    const char *key;
    json_t *value;

    m->restore_at_ms = 0;
    json_object_foreach (m->box->row.ports, key, value) {
        uint64_t port;
        uint16_t got;

        if (str_parse_u64(key, 0, UINT16_MAX, &port, NULL) == 0 &&
            forwards_add(m->forwards, (uint16_t)port, (uint16_t)json_integer_value(value), &got,
                         NULL) == -ERR_EXISTS)
            m->restore_at_ms = clock_mono_ms() + RESTORE_AGAIN_MS;
    }
}

static int open_signals(struct monitor *m, struct err *e)
{
    sigset_t set;

    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGCHLD);
    (void)sigaddset(&set, SIGTERM);
    (void)sigaddset(&set, SIGINT);
    m->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return m->signal_fd < 0 ? err_sys(e, errno, "signalfd") : 0;
}

static int open_disk(struct monitor *m, struct err *e)
{
    const char *name = m->box->provider->disk_dir;
    _cleanup_free_ char *dir = name ? box_path(m->box, name) : NULL;

    if (!name)
        return 0;
    return dir ? diskwatch_new(dir, m->box->dir, m->box->spec.disk_bytes, &m->disk, e) : err_oom(e);
}

static int open_parts(struct monitor *m, struct err *e)
{
    _cleanup_free_ char *control = box_path(m->box, "monitor.sock");
    _cleanup_free_ char *socket = NULL;
    _cleanup_free_ char *token = NULL;
    struct client_options opts;
    int r = box_client_options(m->box, -1, &opts, &socket, &token, e);

    if (r == 0)
        r = forwards_new(&opts, &m->forwards, e);
    if (r == 0)
        r = supervisor_new(m->box, m->is_paused, &m->supervisor, e);
    if (r == 0)
        r = open_disk(m, e);
    if (r == 0)
        r = open_signals(m, e);
    if (r == 0)
        r = control ? commands_new(m, control, &m->commands, e) : err_oom(e);
    return r;
}

int monitor_start(struct monitor *m, struct bh_ctx *ctx, const char *box_id,
                  const struct monitor_options *o, struct err *e)
{
    struct box_row row = {0};
    bool is_adopted = false, is_well = true;
    int r;

    *m = (struct monitor){.ctx = ctx, .signal_fd = -1};
    exit_watch_init(&m->exit);
    r = store_get(ctx->store, box_id, &row, e);
    if (r == 0)
        r = box_new_take(ctx, &row, &m->box, e);
    if (r == 0)
        r = find_or_start(m, o, &is_adopted, e);
    m->is_paused = r == 0 && is_adopted && m->box->row.state == BH_STATE_PAUSED;
    if (m->is_paused)
        r = box_provider_freeze(m->box, e);
    else if (r == 0 && is_adopted && box_row_is_paused(&m->box->row)) /* it was interrupted */
        r = thaw_box(m->box, o->deadline_mono_ms, &is_well, e);
    if (r == 0 && !m->is_paused)
        r = wait_for_agent(m, o->deadline_mono_ms, e);
    if (r == 0)
        r = open_parts(m, e);
    if (r < 0)
        return r;
    begin_lease(m, is_adopted);
    restore_forwards(m);
    if (is_adopted)
        supervisor_watch(m->supervisor);
    return 0;
}

void monitor_done(struct monitor *m)
{
    m->supervisor = supervisor_free(m->supervisor);
    m->commands = commands_free(m->commands);
    m->forwards = forwards_free(m->forwards);
    m->disk = diskwatch_free(m->disk);
    m->box = bh_box_free(m->box);
    use_done(&m->use);
    exit_watch_done(&m->exit);
    fd_close(TAKE_FD(m->signal_fd));
}

/* ---- lease ---- */

unsigned monitor_uses(const struct monitor *m)
{
    return commands_n_holds(m->commands) + forwards_n_connections(m->forwards);
}

int64_t monitor_deadline_real_ms(const struct monitor *m)
{
    return clock_real_ms() + (m->lease.deadline_ms - clock_mono_ms());
}

int monitor_lease_changed(struct monitor *m, struct err *e)
{
    int r = save_lease(m, e);

    supervisor_set_lease(m->supervisor, m->lease.deadline_ms);
    return r;
}

/* ---- the end ---- */

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

    if (obj && path && jx_dump(obj, &text, &len, NULL) == 0)
        (void)io_write_file(AT_FDCWD, path, text, len, 0600, true, NULL);
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

/* Ends the box under its name lock: state, processes, and with is_removal the box itself. */
static void end_locked(struct monitor *m, const char *by, const char *cause, bool is_removal)
{
    char expired[CAUSE_BYTES];
    struct err e = {0};

    if (box_reload(m->box, &e) < 0 || !box_row_is_live(&m->box->row)) {
        m->is_over = true;
        return;
    }
    (void)set_state(m, BH_STATE_STOPPING, cause, NULL);
    if (monitor_stop_box(m, by, cause, BOX_STOP_GRACE_MS, &e) < 0) {
        (void)fprintf(stderr, "bellhop-monitor: the box is not stopped: %s\n", e.message);
        return; /* it stays `stopping`: the next command or gc tries again */
    }
    (void)set_state(m, BH_STATE_STOPPED, cause, NULL);
    if (!is_removal || box_reload(m->box, &e) < 0)
        return;
    /* no command may ask this monitor to stop the box now */
    m->commands = commands_free(m->commands);
    (void)snprintf(expired, sizeof(expired), BRINGUP_EXPIRED "%s", cause);
    if (bringup_destroy_locked(m->box, expired, &e) < 0)
        (void)fprintf(stderr, "bellhop-monitor: the box is not removed: %s\n", e.message);
}

static void end_by_lease(struct monitor *m)
{
    _cleanup_close_ int lock = -1;

    if (store_lock_name(m->ctx->store, m->box->row.name, clock_mono_ms(), -1, &lock, NULL) < 0) {
        (void)lease_extend(&m->lease, clock_mono_ms() + BUSY_MS);
        (void)monitor_lease_changed(m, NULL); /* of a paused box: the supervisor pushes it later */
        return;
    }
    end_locked(m, "timeout", BRINGUP_TIME_IS_OVER, str_eq(m->box->spec.on_timeout, "rm"));
}

/* Under the name lock. ERR_UNIMPLEMENTED: this machine cannot freeze the box. */
static int pause_unused(struct monitor *m, const char *cause, struct err *e)
{
    int r = box_provider_check_freeze(m->box, e);

    if (r == 0)
        r = set_state(m, BH_STATE_PAUSING, cause, e);
    if (r < 0)
        return r;
    r = monitor_pause_box(m, e);
    (void)set_state(m, r == 0 ? BH_STATE_PAUSED : BH_STATE_RUNNING, r == 0 ? cause : e->message,
                    NULL);
    return r;
}

/* Does what `up --on-idle` says. */
static void end_idle_time(struct monitor *m)
{
    _cleanup_close_ int lock = -1;
    int64_t now = clock_mono_ms();
    char cause[64], text[32];
    struct err e = {0};
    int r;

    lease_stay_awake(&m->lease, now + BUSY_MS);
    if (store_lock_name(m->ctx->store, m->box->row.name, now, -1, &lock, NULL) < 0 ||
        box_reload(m->box, NULL) < 0) {
        if (lease_extend(&m->lease, now + BUSY_MS))
            (void)monitor_lease_changed(m, NULL);
        return;
    }
    (void)snprintf(cause, sizeof(cause), "unused for %s",
                   str_format_duration(m->box->spec.idle_ms, text, sizeof(text)));
    if (!str_eq(m->box->spec.on_idle, "pause")) {
        end_locked(m, "idle", cause, str_eq(m->box->spec.on_idle, "rm"));
        return;
    }
    if (m->box->row.state != BH_STATE_RUNNING) /* in error: its time to live ends it */
        return;
    r = pause_unused(m, cause, &e);
    if (r == -ERR_UNIMPLEMENTED && !(m->box->spec.asked & SPEC_ASKED_ON_IDLE))
        end_locked(m, "idle", cause, false);
    else if (r < 0 && !m->is_pause_refused)
        (void)store_add_event(m->ctx->store, m->box->row.id, NULL, "not-paused", e.message, NULL);
    m->is_pause_refused = r < 0;
    lease_stay_awake(&m->lease, now + m->box->spec.idle_ms);
}

/* A command that holds the lock notices by itself that the box is gone. */
static void end_by_itself(struct monitor *m)
{
    _cleanup_close_ int lock = -1;
    char cause[CAUSE_BYTES];
    int status = 0;

    if (!exit_watch_status(&m->exit, &status))
        (void)snprintf(cause, sizeof(cause), "the box's first process ended");
    else if (WIFSIGNALED(status))
        (void)snprintf(cause, sizeof(cause), "the box's first process was killed by signal %d",
                       WTERMSIG(status));
    else
        (void)snprintf(cause, sizeof(cause), "the box's first process exited with %d",
                       WEXITSTATUS(status));
    if (store_lock_name(m->ctx->store, m->box->row.name, clock_mono_ms(), -1, &lock, NULL) == 0)
        end_locked(m, "box", cause, false);
    else
        (void)monitor_stop_box(m, "box", cause, 0, NULL);
}

static void end_by_signal(struct monitor *m)
{
    _cleanup_close_ int lock = -1;

    if (store_lock_name(m->ctx->store, m->box->row.name, clock_mono_ms() + BUSY_MS, -1, &lock,
                        NULL) == 0)
        end_locked(m, "signal", "the monitor was asked to end", false);
    else
        (void)monitor_stop_box(m, "signal", "the monitor was asked to end", BOX_STOP_GRACE_MS,
                               NULL);
}

/* ---- the loop ---- */

static void on_signals(struct monitor *m)
{
    struct signalfd_siginfo si;

    while (!m->is_over && read(m->signal_fd, &si, sizeof(si)) == (ssize_t)sizeof(si)) {
        if (si.ssi_signo == SIGCHLD)
            exit_watch_reap(&m->exit);
        else
            end_by_signal(m);
    }
}

/* Asks the guest agent whether the box is in use, before the lease is checked. */
static void ask_activity(struct monitor *m, int64_t now)
{
    supervisor_ask_activity(m->supervisor);
    m->ask_until_ms = now + ASK_MS;
}

/* The store has few of the events of a box that is used for long: see lease_is_notable(). */
static void note_extension(struct monitor *m, enum lease_use use)
{
    char cause[128], until[CLOCK_TEXT_BYTES];

    if (!lease_is_notable(&m->lease))
        return;
    clock_text(monitor_deadline_real_ms(m), until);
    (void)snprintf(cause, sizeof(cause), "%s: lives until %s at least (extension %u)",
                   use == LEASE_ATTACHED ? "a client is connected"
                   : use == LEASE_TASK   ? "something is at work in it"
                                         : "it was used",
                   until, m->lease.n_extended);
    (void)store_add_event(m->ctx->store, m->box->row.id, NULL, "extended", cause, NULL);
}

static void look_at_lease(struct monitor *m, int64_t now, enum lease_use use)
{
    unsigned n_extended = m->lease.n_extended;

    if (use != LEASE_UNUSED)
        m->lease.was_used = true; /* a late answer counts at the next look */
    if (lease_look(&m->lease, now, use)) {
        (void)monitor_lease_changed(m, NULL);
        if (m->lease.n_extended > n_extended)
            note_extension(m, use);
    } else {
        monitor_save_lease(m);
    }
}

/* NULL: there was no answer. The deadline of a box is then extended a little, and the box is
 * ended after the third unanswered question. */
static void on_activity(struct monitor *m, const json_t *activity)
{
    int64_t now = clock_mono_ms();
    enum lease_use use = monitor_uses(m) > 0 ? LEASE_ATTACHED : LEASE_UNUSED;
    const char *id;

    m->ask_until_ms = 0;
    m->n_unanswered = activity ? 0 : m->n_unanswered + 1;
    if (activity) {
        (void)box_reload(m->box, NULL); /* its coding agent may be newer than the monitor */
        id = json_string_value(json_object_get(m->box->row.agent, "exec_id"));
        if (use_look(&m->use, activity, id ? id : "", supervisor_restarts(m->supervisor), now) &&
            use == LEASE_UNUSED)
            use = LEASE_TASK;
        lease_set_used(&m->lease, m->use.used_ms);
    }
    look_at_lease(m, now, use);
    if (activity && lease_is_idle(&m->lease, now)) {
        end_idle_time(m);
        return;
    }
    if (lease_is_idle(&m->lease, now))
        lease_stay_awake(&m->lease, now + BUSY_MS);
    if (!lease_is_over(&m->lease, now))
        return;
    if (activity || m->n_unanswered >= MAX_UNANSWERED) {
        end_by_lease(m);
        return;
    }
    (void)lease_extend(&m->lease, now + BUSY_MS);
    (void)monitor_lease_changed(m, NULL);
}

static void on_supervisor(struct monitor *m)
{
    _cleanup_json_ json_t *activity = NULL;
    char cause[CAUSE_BYTES];

    supervisor_drain(m->supervisor);
    activity = supervisor_take_activity(m->supervisor);
    if (activity)
        on_activity(m, activity);
    if (!m->is_over && supervisor_take_failure(m->supervisor, cause, sizeof(cause)))
        (void)set_state(m, BH_STATE_ERROR, cause, NULL);
}

static int64_t next_time(const struct monitor *m)
{
    if (m->is_paused)
        return m->lease.deadline_ms;
    return m->ask_until_ms ? m->ask_until_ms : lease_next_ms(&m->lease);
}

/* A connected client is a use until it hangs up. */
static void note_attached(struct monitor *m)
{
    bool is_attached = monitor_uses(m) > 0;

    if (is_attached && !m->is_attached)
        lease_attach(&m->lease, clock_mono_ms());
    if (is_attached || m->is_attached)
        lease_set_used(&m->lease, clock_mono_ms());
    m->is_attached = is_attached;
}

static void on_time(struct monitor *m)
{
    int64_t now = clock_mono_ms();

    if (now < next_time(m))
        return;
    if (m->is_paused)
        end_by_lease(m);
    else if (m->ask_until_ms)
        on_activity(m, NULL);
    else
        ask_activity(m, now);
}

/* A command at work has the lock: the next look tries again. */
static void on_disk(struct monitor *m)
{
    _cleanup_close_ int lock = -1;
    char cause[CAUSE_BYTES];

    if (!diskwatch_act(m->disk) ||
        store_lock_name(m->ctx->store, m->box->row.name, clock_mono_ms(), -1, &lock, NULL) < 0)
        return;
    (void)snprintf(
        cause, sizeof(cause),
        "its disk has %.1f MiB, and its limit is %.1f (--disk): start it and clean it up",
        (double)diskwatch_used(m->disk) / 1048576, (double)m->box->spec.disk_bytes / 1048576);
    end_locked(m, "disk", cause, false);
}

enum { FIXED_EXIT, FIXED_SIGNALS, FIXED_SUPERVISOR, FIXED_DISK, N_FIXED };

static int64_t next_ms(const struct monitor *m)
{
    int64_t lease = next_time(m);
    int64_t disk = diskwatch_next_ms(m->disk);
    int64_t next = disk < lease ? disk : lease;

    if (m->wake_by_ms && clock_mono_ms() + WAKE_AGAIN_MS < next)
        next = clock_mono_ms() + WAKE_AGAIN_MS;
    if (m->restore_at_ms && m->restore_at_ms < next)
        next = m->restore_at_ms;
    return m->exit.next_ms < next ? m->exit.next_ms : next;
}

static void run_turn(struct monitor *m, struct pollfd *p)
{
    size_t n_commands;
    size_t n_forwards;

    p[FIXED_EXIT] = (struct pollfd){.fd = m->exit.fd, .events = POLLIN};
    p[FIXED_SIGNALS] = (struct pollfd){.fd = m->signal_fd, .events = POLLIN};
    p[FIXED_SUPERVISOR] =
        (struct pollfd){.fd = supervisor_event_fd(m->supervisor), .events = POLLIN};
    p[FIXED_DISK] = (struct pollfd){.fd = diskwatch_fd(m->disk), .events = POLLIN};
    n_commands = commands_poll(m->commands, p + N_FIXED, MONITOR_MAX_CLIENTS + 1);
    n_forwards = forwards_poll(m->forwards, m->is_paused, p + N_FIXED + n_commands,
                               MONITOR_MAX_POLL - N_FIXED - n_commands);
    if (poll(p, N_FIXED + n_commands + n_forwards, clock_until_ms(next_ms(m))) < 0)
        return;

    forwards_act(m->forwards, m->is_paused, p + N_FIXED + n_commands, n_forwards);
    on_wake(m);
    if (p[FIXED_SUPERVISOR].revents)
        on_supervisor(m);
    if (!m->is_over)
        commands_act(m->commands, p + N_FIXED, n_commands);
    if (!m->is_over && (p[FIXED_EXIT].revents || m->exit.fd < 0) &&
        exit_watch_has_ended(&m->exit, 0))
        end_by_itself(m);
    if (!m->is_over && p[FIXED_SIGNALS].revents)
        on_signals(m);
    if (!m->is_over && m->restore_at_ms && clock_mono_ms() >= m->restore_at_ms)
        restore_forwards(m);
    if (!m->is_over)
        on_disk(m);
    if (!m->is_over) {
        note_attached(m);
        on_time(m);
    }
}

int monitor_run(struct monitor *m, struct err *e)
{
    _cleanup_free_ struct pollfd *p = calloc(MONITOR_MAX_POLL, sizeof(*p));

    if (!p)
        return err_oom(e);
    while (!m->is_over)
        run_turn(m, p);
    return 0;
}
