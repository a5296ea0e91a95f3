/* bringup_calls: bh_start, bh_stop, bh_pause, bh_resume, bh_destroy and bh_forget. */
#include "lib/box/bringup_internal.h"
#include "lib/box/remote.h"
#include "lib/recipe/bootstrap.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/str.h"

#define PAUSED_TO_DISK "paused to disk"

int64_t bringup_deadline(const struct bh_ctx *ctx, int64_t timeout_ms)
{
    int64_t least_ms = BRINGUP_ANSWERS * ctx->answer_timeout_ms;

    if (timeout_ms <= 0)
        timeout_ms = least_ms > BRINGUP_TIMEOUT_MS ? least_ms : BRINGUP_TIMEOUT_MS;
    return clock_mono_ms() + timeout_ms;
}

static int with_lock(struct bh_box *box, int64_t timeout_ms,
                     int (*fn)(struct bh_box *box, int64_t deadline, struct err *e),
                     struct bh_error *err)
{
    int64_t deadline = bringup_deadline(box->ctx, timeout_ms);
    _cleanup_close_ int lock = -1;
    struct err e = {0};
    int r;

    r = store_lock_name(box->ctx->store, box->row.name, deadline, box->ctx->cancel_fd, &lock, &e);
    if (r == 0)
        r = box_reload(box, &e);
    if (r == 0)
        r = fn(box, deadline, &e);
    return ctx_fail(err, r, &e);
}

static int stop_as(struct bh_box *box, const char *cause, struct err *e)
{
    bool is_gone = false;
    int r = box_refuse_elsewhere(box, e);

    if (r == 0 && !box_row_is_paused(&box->row))
        r = bringup_settle_locked(box, &is_gone, e);

    if (r < 0)
        return r;
    if (is_gone)
        return box_reload(box, e);
    if (box->row.state == BH_STATE_STOPPED)
        return 0;
    return bringup_stop_locked(box, cause, e);
}

static int stop_it(struct bh_box *box, int64_t deadline, struct err *e)
{
    (void)deadline;
    return stop_as(box, "stopped by a command", e);
}

static int pause_to_disk(struct bh_box *box, int64_t deadline, struct err *e)
{
    (void)deadline;
    return stop_as(box, PAUSED_TO_DISK, e);
}

static int freeze_it(struct bh_box *box, int64_t deadline, struct err *e)
{
    bool is_gone = false;
    int r = box_refuse_elsewhere(box, e);

    if (r == 0 && box->row.state != BH_STATE_PAUSED)
        r = bringup_settle_locked(box, &is_gone, e);

    if (r < 0 || box->row.state == BH_STATE_PAUSED)
        return r;
    return is_gone ? box_reload(box, e) : bringup_pause_locked(box, deadline, e);
}

static int resume_it(struct bh_box *box, int64_t deadline, struct err *e)
{
    bool is_gone = false;
    int r = box_refuse_elsewhere(box, e);

    if (r == 0)
        r = box->row.state == BH_STATE_PAUSED
                ? bringup_resume_locked(box, "resumed by a command", deadline, e)
                : bringup_settle_locked(box, &is_gone, e);

    if (r < 0)
        return r;
    if (is_gone)
        return box_reload(box, e);
    if (box->row.state == BH_STATE_STOPPED && str_eq(box->row.cause, PAUSED_TO_DISK))
        return bringup_run_locked(box, NULL, deadline, NULL, e);
    return box->row.state == BH_STATE_RUNNING
               ? 0
               : err_field(e, ERR_PRECONDITION, "state",
                           "the box '%s' is %s, not paused: 'bellhop start' starts it",
                           box->row.name, bh_state_name(box->row.state));
}

static int destroy_it(struct bh_box *box, int64_t deadline, struct err *e)
{
    (void)deadline;
    return bringup_destroy_locked(box, "removed by a command", e);
}

static int call_daemon_take(struct bh_box *box, const char *step, json_t *body, int64_t timeout_ms,
                            struct bh_error *err)
{
    struct err e = {0};

    return ctx_fail(err, remote_step_take(box, step, body, timeout_ms, &e), &e);
}

/* ---- the coding agent ---- */

#define AGENT_HEALTH_MS 2000
#define AGENT_START_MS (10 * 60 * 1000) /* its installation included */

static int start_agent_of(struct bh_box *box, int64_t deadline, struct bringup_report *report,
                          struct err *e)
{
    struct client *client = NULL;
    int r;

    if (!box_has_agent(box))
        return err_field(e, ERR_PRECONDITION, "agent", "the box '%s' has no coding agent",
                         box->row.name);
    if (box->row.state != BH_STATE_RUNNING)
        return err_field(e, ERR_PRECONDITION, "state", "the box '%s' is %s", box->row.name,
                         bh_state_name(box->row.state));
    r = box_client(box, &client, e);
    if (r == 0 && bootstrap_health(box->ctx, box->dir, client, AGENT_HEALTH_MS, NULL) == 0)
        return 0;
    if (r == 0)
        r = bringup_agent_locked(box, deadline, report, e);
    return r < 0 ? r : box_reload(box, e);
}

int bh_start_agent(struct bh_box *box, int64_t timeout_ms, struct bh_error *err)
{
    int64_t deadline = bringup_deadline(box->ctx, timeout_ms > 0 ? timeout_ms : AGENT_START_MS);
    struct bringup_report report = {0};
    _cleanup_close_ int lock = -1;
    struct err e = {0};
    int r;

    if (box->remote)
        return call_daemon_take(box, "agent", NULL, timeout_ms > 0 ? timeout_ms : AGENT_START_MS,
                                err);
    r = box_refuse_elsewhere(box, &e);
    if (r == 0)
        r = store_lock_name(box->ctx->store, box->row.name, deadline, box->ctx->cancel_fd, &lock,
                            &e);
    if (r == 0)
        r = box_reload(box, &e);
    if (r == 0)
        r = start_agent_of(box, deadline, &report, &e);
    r = ctx_fail(err, r, &e);
    if (r < 0 && err && report.step[0]) {
        (void)snprintf(err->step, sizeof(err->step), "%s", report.step);
        (void)snprintf(err->detail, sizeof(err->detail), "%s", report.log ? report.log : "");
    }
    free(report.log);
    return r;
}

/* ---- its processes ---- */

int bh_stop(struct bh_box *box, int64_t timeout_ms, struct bh_error *err)
{
    if (box->remote)
        return call_daemon_take(box, "stop", NULL, timeout_ms, err);
    return with_lock(box, timeout_ms, stop_it, err);
}

int bh_pause(struct bh_box *box, const char *level, int64_t timeout_ms, struct bh_error *err)
{
    static const struct {
        const char *name;
        int (*fn)(struct bh_box *box, int64_t deadline, struct err *e);
    } levels[] = {{"freeze", freeze_it}, {"disk", pause_to_disk}};
    bool can_freeze = box->provider && box->provider->pauses & PROVIDER_PAUSE_FREEZE;
    const char *name = level ? level : can_freeze ? "freeze" : "disk";
    struct err e = {0};

    if (box->remote)
        return call_daemon_take(box, "pause", json_pack("{s:s*}", "level", level), timeout_ms, err);
    for (size_t i = 0; i < N_ELEMENTS(levels); i++)
        if (str_eq(levels[i].name, name))
            return with_lock(box, timeout_ms, levels[i].fn, err);
    return ctx_fail(err,
                    str_eq(name, "memory")
                        ? err_field(&e, ERR_UNIMPLEMENTED, "level",
                                    "memory: the provider '%s' cannot do it",
                                    box->spec.provider ? box->spec.provider : "")
                        : err_field(&e, ERR_INVALID, "level",
                                    "level: '%.40s' is not one of 'freeze' and 'disk'", name),
                    &e);
}

int bh_resume(struct bh_box *box, int64_t timeout_ms, struct bh_error *err)
{
    if (box->remote)
        return call_daemon_take(box, "resume", NULL, timeout_ms, err);
    return with_lock(box, timeout_ms, resume_it, err);
}

/* Removed by this handle or another: success. */
static int end_result(int r, const struct bh_error *why, struct bh_error *err)
{
    if (r == -BH_NOT_FOUND && bh_error_gone(why, NULL))
        return 0;
    if (r < 0 && err)
        *err = *why;
    return r;
}

int bh_destroy(struct bh_box *box, int64_t timeout_ms, struct bh_error *err)
{
    struct bh_error why = {0};
    struct err e = {0};
    int r = box->remote ? ctx_fail(&why, remote_destroy(box, timeout_ms, &e), &e)
                        : with_lock(box, timeout_ms, destroy_it, &why);

    return end_result(r, &why, err);
}

/* A removal that was not tried, because another command is at work, is no reason to forget the box. */
static int destroy_or_forget(struct bh_box *box, int64_t timeout_ms, char **ret_left, struct err *e)
{
    _cleanup_close_ int lock = -1;
    struct err why = {0};
    int r = store_lock_name(box->ctx->store, box->row.name, bringup_deadline(box->ctx, timeout_ms),
                            box->ctx->cancel_fd, &lock, e);

    if (r == 0)
        r = box_reload(box, e);
    if (r < 0)
        return r;
    r = bringup_destroy_locked(box, "removed by a command", &why);
    if (r < 0 && r != -ERR_CANCELED) {
        *ret_left = strdup(why.message);
        return bringup_forget_locked(box, "removed by a command, without its engine", e);
    }
    if (r < 0 && e)
        *e = why;
    return r;
}

/* A provider whose disks are on this machine needs no engine, and its failure leaves mounts or processes. */
int bh_forget(struct bh_box *box, int64_t timeout_ms, char **ret_left, struct bh_error *err)
{
    struct bh_error why = {0};
    struct err e = {0};
    int r;

    *ret_left = NULL;
    if (box->remote || !box->provider->has_disk)
        return bh_destroy(box, timeout_ms, err);
    r = ctx_fail(&why, destroy_or_forget(box, timeout_ms, ret_left, &e), &e);
    if (r < 0) {
        free(*ret_left);
        *ret_left = NULL;
    }
    return end_result(r, &why, err);
}

int bh_start(struct bh_box *box, int64_t timeout_ms, struct bh_error *err)
{
    int64_t deadline = bringup_deadline(box->ctx, timeout_ms);
    struct bringup_report report = {0};
    bool no_resume = box->ctx->no_resume;
    struct err e = {0};
    int r;

    if (box->remote)
        return call_daemon_take(box, "start", NULL, timeout_ms, err);
    box->ctx->no_resume = false; /* an explicit start is not an implicit resume */
    r = bringup_back(box, deadline, &report, &e);
    box->ctx->no_resume = no_resume;
    r = ctx_fail(err, r, &e);
    if (r < 0 && err && report.step[0]) {
        (void)snprintf(err->step, sizeof(err->step), "%s", report.step);
        (void)snprintf(err->detail, sizeof(err->detail), "%s", report.log ? report.log : "");
    }
    free(report.log);
    return r;
}
