/* bringup_pause: pause and resume of a box whose processes are kept. */
#include "lib/box/bringup_internal.h"

#include "common/clock.h"
#include "lib/box/box_provider.h"
#include "lib/box/control.h"
#include "lib/provider/limits.h"

#define PAUSE_MS 40000 /* the monitor waits for the guest agent, then for the kernel */

/* Is a process of the box there? Else the box is marked as stopped. */
static int find_paused(struct bh_box *box, struct err *e)
{
    struct provider_run run;
    int r = box_provider_find(box, &run, e);

    if (r == 0)
        r = bringup_stop_locked(box, BRINGUP_ENDED_UNSEEN, e);
    else
        return r < 0 ? r : 0;
    return r < 0 ? r
                 : err_field(e, ERR_PRECONDITION, "state", "the box '%s' is stopped: %s",
                             box->row.name, BRINGUP_ENDED_UNSEEN);
}

int bringup_pause_locked(struct bh_box *box, int64_t deadline_mono_ms, struct err *e)
{
    struct err why = {0};
    int r;

    if (box->row.state != BH_STATE_RUNNING)
        return err_field(e, ERR_PRECONDITION, "state",
                         "the box '%s' is %s: only a running box can be paused", box->row.name,
                         bh_state_name(box->row.state));
    if (!(box->provider->pauses & PROVIDER_PAUSE_FREEZE))
        return err_field(e, ERR_UNIMPLEMENTED, "level",
                         "freeze: the provider '%s' cannot do it; the level disk works",
                         box->provider->name);
    r = box_provider_check_freeze(box, e);
    if (r == 0)
        r = control_ensure_monitor(box->ctx, box->row.id, deadline_mono_ms, e);
    if (r == 0)
        r = bringup_set_state(box, BH_STATE_PAUSING, "paused by a command", e);
    if (r < 0)
        return r;
    box->client = client_free(box->client);
    r = control_call_take(box->ctx, box->row.id, json_pack("{s:s}", "op", "pause"), PAUSE_MS, NULL,
                          &why);
    if (r == 0)
        return bringup_set_state(box, BH_STATE_PAUSED, "paused by a command", e);
    (void)bringup_resume_locked(box, why.message, clock_mono_ms() + BOX_RESUME_MS, NULL);
    if (e)
        *e = why;
    return r;
}

int bringup_resume_locked(struct bh_box *box, const char *cause, int64_t deadline_mono_ms,
                          struct err *e)
{
    bool is_pausing = box->row.state == BH_STATE_PAUSING; /* it may run still */
    int64_t most_ms = clock_mono_ms() + BOX_RESUME_MS;
    struct err why = {0};
    int r = find_paused(box, e);

    if (deadline_mono_ms < most_ms)
        most_ms = deadline_mono_ms;
    if (r == 0 && box->row.state == BH_STATE_PAUSED)
        r = limits_check(box->ctx->limits, &box->spec, e);
    if (r == 0 && box->row.state == BH_STATE_PAUSED)
        r = bringup_set_state(box, BH_STATE_RESUMING, cause, e);
    if (r < 0)
        return r;
    box->client = client_free(box->client); /* its connections are from before the pause */
    r = control_ensure_monitor(box->ctx, box->row.id, most_ms, &why);
    if (r == 0)
        r = control_call_take(
            box->ctx, box->row.id,
            json_pack("{s:s, s:i}", "op", "resume", "timeout_ms", clock_until_ms(most_ms)),
            BOX_RESUME_MS + BRINGUP_CONTROL_MS, NULL, &why);
    if (r == 0)
        return bringup_set_state(box, BH_STATE_RUNNING, cause, e);
    /* An interrupted resume is finished by the next command. */
    if (r != -ERR_CANCELED && !is_pausing)
        (void)bringup_set_state(box, BH_STATE_PAUSED, why.message, NULL);
    if (e)
        *e = why;
    return r;
}
