/* monitor_pause: the box is frozen and runs again, for a command, a connection, or an idle time. */
#include "monitor/monitor_internal.h"

#include "common/cleanup.h"
#include "common/clock.h"
#include "lib/box/box_provider.h"
#include "lib/recipe/bootstrap.h"
#include "monitor/port_forward.h"
#include "monitor/supervise.h"

#define WELL_MS 2000  /* for the coding agent's answer after a thaw */
#define WAKE_MS 90000 /* for a resume that a connection asks for */

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
    (void)monitor_lease_changed(m, NULL);
    return 0;
}

/*
 * Runs the box's processes again, and returns once the guest agent has the time, fresh random
 * numbers and a new generation, and the coding agent has answered a health check. *ret_well is set to
 * false if it did not within WELL_MS: the supervisor decides what to do about that.
 */
int monitor_thaw_box(struct bh_box *box, int64_t deadline_mono_ms, bool *ret_well, struct err *e)
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
    r = monitor_thaw_box(m->box, deadline_mono_ms, &is_well, e);
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
    monitor_begin_lease(m, now, m->lease.deadline_ms, now);
    lease_touch(&m->lease, now);
    (void)lease_extend(&m->lease, now + m->box->spec.timeout_ms);
    (void)monitor_lease_changed(m, NULL);
    supervisor_unpark(m->supervisor, is_well);
    return 0;
}

int monitor_pause_unused(struct monitor *m, const char *cause, struct err *e)
{
    int r = box_provider_check_freeze(m->box, e);

    if (r == 0)
        r = monitor_set_state(m, BH_STATE_PAUSING, cause, e);
    if (r < 0)
        return r;
    r = monitor_pause_box(m, e);
    (void)monitor_set_state(m, r == 0 ? BH_STATE_PAUSED : BH_STATE_RUNNING,
                            r == 0 ? cause : e->message, NULL);
    return r;
}

/*
 * The provider's last word may be older than a pause or a resume of our own: it is asked again, with the lock that these
 * have. The guest agent cannot be told of a pause that it did not see coming; a resume tells it the time.
 */
void monitor_follow_pause(struct monitor *m)
{
    static const char cause[] = "by somebody else, with the provider's own means";
    _cleanup_close_ int lock = -1;
    struct provider_run run;

    if (m->box->provider->has_own_children || !m->box->provider->watch)
        return;
    exit_watch_ask_soon(&m->exit);
    if (m->exit.has_fault ||
        store_lock_name(m->ctx->store, m->box->row.name, clock_mono_ms(), -1, &lock, NULL) < 0 ||
        box_reload(m->box, NULL) < 0 || box_provider_look(m->box, &run, NULL) != 1)
        return;
    m->exit.is_paused = run.is_paused;
    if (run.is_paused && !m->is_paused && m->box->row.state == BH_STATE_RUNNING &&
        monitor_set_state(m, BH_STATE_PAUSING, cause, NULL) == 0) {
        m->is_paused = true;
        m->ask_until_ms = 0;
        (void)monitor_set_state(m, BH_STATE_PAUSED, cause, NULL);
    } else if (!run.is_paused && m->is_paused && m->box->row.state == BH_STATE_PAUSED &&
               monitor_set_state(m, BH_STATE_RESUMING, cause, NULL) == 0 &&
               monitor_resume_box(m, clock_mono_ms() + BOX_RESUME_MS, NULL) == 0) {
        (void)monitor_set_state(m, BH_STATE_RUNNING, cause, NULL);
    }
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
            : monitor_set_state(m, BH_STATE_RESUMING, "a connection", &e);
    if (r == 0)
        r = monitor_resume_box(m, m->wake_by_ms, &e);
    if (r == 0)
        (void)monitor_set_state(m, BH_STATE_RUNNING, "a connection", NULL);
    else
        (void)monitor_set_state(m, BH_STATE_PAUSED, e.message, NULL);
}

void monitor_wake(struct monitor *m)
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
