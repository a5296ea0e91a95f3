#include "monitor/monitor_internal.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/io.h"
#include "common/str.h"
#include "lib/box/box_provider.h"
#include "lib/box/history.h"
#include "lib/box/lease_file.h"
#include "lib/box/lifecycle.h"
#include "monitor/agent_bridge.h"
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
    m->has_started = r == 0;
    r = r == 1 ? 0 : box_provider_start(m->box, o->deadline_mono_ms, &run, e);
    return r < 0 ? r : exit_watch_begin(&m->exit, m->box, &run, e);
}

/* Makes an error of the last line that the box's first process printed. */
static int ended_early(struct monitor *m, struct err *e)
{
    static const char *const logs[] = {"agent.log", "console.log", NULL};
    char *line;
    int status;

    (void)exit_watch_status(&m->exit, &status); /* a provider fetches the log with it */

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
            return err_wrap(e, bridge_explain(m->bridge, r, e), "the guest agent does not answer");
        if (exit_watch_has_ended(&m->exit, pause_ms))
            return ended_early(m, e);
        pause_ms = pause_ms * 2 > READY_POLL_MOST_MS ? READY_POLL_MOST_MS : pause_ms * 2;
        r = 0;
    }
    return r;
}

/* ---- what is stored ---- */

int monitor_set_state(struct monitor *m, enum bh_state state, const char *cause, struct err *e)
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

void monitor_begin_lease(struct monitor *m, int64_t now_ms, int64_t deadline_ms, int64_t used_ms)
{
    const struct spec *s = &m->box->spec;

    lease_init(&m->lease, now_ms, s->timeout_ms, deadline_ms);
    lease_set_idle(&m->lease, str_eq(s->on_idle, "keep") ? 0 : s->idle_ms, used_ms);
    if (str_eq(s->on_timeout, "snapshot"))
        lease_end_early(&m->lease);
}

int64_t monitor_deadline_real_ms(const struct monitor *m)
{
    return clock_real_ms() + (m->lease.deadline_ms - clock_mono_ms());
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

/* The store has it by the wall clock, for people; the next monitor reads the monotonic one. */
int monitor_lease_changed(struct monitor *m, struct err *e)
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
    supervisor_set_lease(m->supervisor, m->lease.deadline_ms);
    return r;
}

/* ---- the lease at the start ---- */

/* An adopted box keeps its deadline and its last use; a new run has its whole time to live. */
static void begin_lease(struct monitor *m, bool is_adopted)
{
    int64_t now = clock_mono_ms();
    int64_t stored = m->box->row.deadline_ms;
    struct lease_facts f = {.deadline_mono_ms = now + m->box->spec.timeout_ms,
                            .used_mono_ms = now,
                            .looked_mono_ms = now};

    /* The wall clock is the second choice: somebody may have set it since. */
    if (is_adopted && !lease_file_load(m->box->dir, &f) && stored)
        f.deadline_mono_ms = now + (stored - clock_real_ms());
    monitor_begin_lease(m, now, f.deadline_mono_ms, f.used_mono_ms);
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

/*
 * The command that has started this monitor may be dead, and another one may have ended the box since: that one stores
 * the state first, and looks for a monitor then. A monitor does it the other way round: it has written its number, and
 * looks at the state now. So one of the two sees the other.
 */
static int check_wanted(const struct box_row *row, struct err *e)
{
    static const enum bh_state ended[] = {BH_STATE_STOPPING, BH_STATE_STOPPED, BH_STATE_DESTROYING,
                                          BH_STATE_DESTROYED};

    for (size_t i = 0; i < N_ELEMENTS(ended); i++)
        if (row->state == ended[i])
            return err_set(e, ERR_ABORTED, "the box is %s", bh_state_name(row->state));
    return 0;
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
    if (r == 0 && (r = check_wanted(&row, e)) < 0)
        box_row_done(&row); /* without a handle, nothing of the box is stopped either */
    if (r == 0)
        r = box_new_take(ctx, &row, &m->box, e);
    if (r == 0)
        r = find_or_start(m, o, &is_adopted, e);
    m->is_paused = r == 0 && is_adopted && m->box->row.state == BH_STATE_PAUSED;
    if (r == 0)
        r = bridge_new(m->box, &m->bridge, e);
    if (r == 0 && m->is_paused)
        r = box_provider_freeze(m->box, e);
    else if (r == 0 && is_adopted && box_row_is_paused(&m->box->row)) /* it was interrupted */
        r = monitor_thaw_box(m->box, o->deadline_mono_ms, &is_well, e);
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
    m->bridge = bridge_free(m->bridge);
    m->box = bh_box_free(m->box);
    use_done(&m->use);
    exit_watch_done(&m->exit);
    fd_close(TAKE_FD(m->signal_fd));
}

/* ---- the loop ---- */

unsigned monitor_uses(const struct monitor *m)
{
    return commands_n_holds(m->commands) + forwards_n_connections(m->forwards);
}

static void on_signals(struct monitor *m)
{
    struct signalfd_siginfo si;

    while (!m->is_over && read(m->signal_fd, &si, sizeof(si)) == (ssize_t)sizeof(si)) {
        if (si.ssi_signo == SIGCHLD)
            exit_watch_reap(&m->exit);
        else
            monitor_end_by_signal(m);
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
        monitor_end_idle_time(m);
        return;
    }
    if (lease_is_idle(&m->lease, now))
        lease_stay_awake(&m->lease, now + MONITOR_BUSY_MS);
    if (!lease_is_over(&m->lease, now))
        return;
    if (activity || m->n_unanswered >= MAX_UNANSWERED) {
        monitor_end_by_lease(m);
        return;
    }
    (void)lease_postpone(&m->lease, now + MONITOR_BUSY_MS);
    (void)monitor_lease_changed(m, NULL);
}

static void on_supervisor(struct monitor *m)
{
    _cleanup_json_ json_t *activity = NULL;
    char cause[MONITOR_CAUSE_BYTES];

    supervisor_drain(m->supervisor);
    activity = supervisor_take_activity(m->supervisor);
    if (activity)
        on_activity(m, activity);
    if (!m->is_over && supervisor_take_failure(m->supervisor, cause, sizeof(cause)))
        (void)monitor_set_state(m, BH_STATE_ERROR, cause, NULL);
}

static int64_t next_time(const struct monitor *m)
{
    if (m->is_paused)
        return lease_end_ms(&m->lease);
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
        monitor_end_by_lease(m);
    else if (m->ask_until_ms)
        on_activity(m, NULL);
    else
        ask_activity(m, now);
}

/* A command at work has the lock: the next look tries again. */
static void on_disk(struct monitor *m)
{
    _cleanup_close_ int lock = -1;
    char cause[MONITOR_CAUSE_BYTES];

    if (!diskwatch_act(m->disk) ||
        store_lock_name(m->ctx->store, m->box->row.name, clock_mono_ms(), -1, &lock, NULL) < 0)
        return;
    (void)snprintf(
        cause, sizeof(cause),
        "its disk has %.1f MiB, and its limit is %.1f (--disk): start it and clean it up",
        (double)diskwatch_used(m->disk) / 1048576, (double)m->box->spec.disk_bytes / 1048576);
    monitor_end_locked(m, "disk", cause, false, &lock);
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
    monitor_wake(m);
    if (p[FIXED_SUPERVISOR].revents)
        on_supervisor(m);
    if (!m->is_over)
        commands_act(m->commands, p + N_FIXED, n_commands);
    if (!m->is_over && (p[FIXED_EXIT].revents || clock_mono_ms() >= m->exit.next_ms) &&
        exit_watch_has_ended(&m->exit, 0))
        monitor_end_by_itself(m);
    if (!m->is_over && m->exit.is_paused != m->is_paused)
        monitor_follow_pause(m);
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
