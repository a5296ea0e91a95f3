/* bringup_back: finds a box as it is, finishes or rolls back interrupted work, makes it run. */
#include "lib/box/bringup_internal.h"

#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/str.h"
#include "lib/box/box_provider.h"
#include "lib/box/control.h"
#include "lib/box/lease_file.h"
#include "lib/box/lifecycle.h"
#include "lib/box/recreate.h"
#include "lib/box/restore.h"
#include "lib/box/snapshot.h"
#include "lib/provider/limits.h"

#define HEALTH_MS 5000
#define INTERRUPTED "interrupted"

int bringup_settle_locked(struct bh_box *box, bool *ret_gone, struct err *e)
{
    enum bh_state state = box->row.state;

    *ret_gone = false;
    if (!lifecycle_is_transitional(state))
        return restore_settle_locked(box, INTERRUPTED, e);
    if (box_row_is_paused(&box->row)) {
        int r = bringup_resume_locked(box, INTERRUPTED, clock_mono_ms() + BOX_RESUME_MS, e);

        return r < 0 && box->row.state == BH_STATE_STOPPED ? 0 : r;
    }
    if (state == BH_STATE_DESTROYING || !box->row.made) {
        _cleanup_free_ char *before = strdup(box->row.cause);

        *ret_gone = true;
        return bringup_destroy_locked(
            box, state == BH_STATE_DESTROYING && before && *before ? before : INTERRUPTED, e);
    }
    return bringup_stop_locked(box, INTERRUPTED, e);
}

/* Verifies a box whose row says that it runs: 1, or 0 after it was marked stopped. */
static int check_processes(struct bh_box *box, int64_t deadline, struct err *e)
{
    struct provider_run run;
    struct client *c = NULL;
    int r = box_provider_find(box, &run, e);

    if (r < 0)
        return r;
    if (r == 0) {
        r = bringup_stop_locked(box, BRINGUP_ENDED_UNSEEN, e);
        return r < 0 ? r : 0;
    }
    r = control_ensure_monitor(box->ctx, box->row.id, deadline, e);
    if (r == 0)
        r = box_client(box, &c, e);
    if (r == 0)
        r = client_health(c, HEALTH_MS, e);
    return r < 0 ? r : 1;
}

/* Did its time to live end while it had no monitor, or one that was refused the end? A stop that a command began is one. */
static bool is_overdue(struct bh_box *box)
{
    struct lease_facts lease;
    int r;

    if (box->row.state == BH_STATE_STOPPING && !str_eq(box->row.cause, BRINGUP_TIME_IS_OVER))
        return false;
    if (!box_row_is_live(&box->row) || !box->row.made || !lease_file_load(box->dir, &lease) ||
        clock_mono_ms() < lease.deadline_mono_ms)
        return false;
    r = control_ping(box->ctx, box->row.id, NULL);
    return r < 0 && r != -ERR_CANCELED && r != -ERR_DEADLINE;
}

/* Of a box whose processes are gone. With --on-timeout rm the end may have been its monitor's, which was refused the rest. */
static int end_unseen(struct bh_box *box)
{
    return is_overdue(box) && str_eq(box->spec.on_timeout, "rm")
               ? bringup_destroy_locked(box, BRINGUP_EXPIRED BRINGUP_TIME_IS_OVER, NULL)
               : bringup_stop_locked(box, BRINGUP_ENDED_UNSEEN, NULL);
}

void bringup_notice(struct bh_box *box)
{
    _cleanup_close_ int lock = -1;
    struct provider_run run;
    int r;

    if (!box_row_is_live(&box->row) || box->ctx->trusts_store || box->url)
        return;
    r = control_ping(box->ctx, box->row.id, NULL);
    if (r == 0 || r == -ERR_CANCELED ||
        store_lock_name(box->ctx->store, box->row.name, clock_mono_ms(), -1, &lock, NULL) < 0 ||
        box_reload(box, NULL) < 0 || !box_row_is_live(&box->row))
        return;
    if (box_provider_find(box, &run, NULL) == 0)
        (void)end_unseen(box);
}

/* Ends it as its monitor would have. */
static int end_overdue(struct bh_box *box, int64_t deadline_mono_ms, struct err *e)
{
    bool has_snapshot =
        !str_eq(box->spec.on_timeout, "snapshot") || snapshot_at_timeout(box, deadline_mono_ms);
    int r = str_eq(box->spec.on_timeout, "rm")
                ? bringup_destroy_locked(box, BRINGUP_EXPIRED BRINGUP_TIME_IS_OVER, e)
                : bringup_stop_locked(box, BRINGUP_TIME_IS_OVER, e);

    if (r == 0 && !has_snapshot)
        (void)snapshot_at_timeout(box, deadline_mono_ms);
    return r;
}

int bringup_back_locked(struct bh_box *box, const struct bh_create_options *up,
                        int64_t deadline_mono_ms, struct bringup_report *report, struct err *e)
{
    bool is_gone = false;
    int r = box_refuse_elsewhere(box, e);

    if (r == 0 && is_overdue(box)) { /* before an end that was interrupted is finished as a stop */
        r = end_overdue(box, deadline_mono_ms, e);
        if (r == 0)
            r = box_reload(box, e);
    }
    if (r == 0)
        r = bringup_settle_locked(box, &is_gone, e);
    if (r < 0)
        return r;
    if (is_gone)
        return box_reload(box, e); /* it says what became of the box */
    if (box->row.state == BH_STATE_PAUSED && box->ctx->no_resume)
        return err_field(e, ERR_PRECONDITION, "state", "the box '%s' is paused", box->row.name);
    if (box->row.state == BH_STATE_PAUSED) {
        r = bringup_resume_locked(box, "used by a command", deadline_mono_ms, e);
        if (r == 0 || box->row.state != BH_STATE_STOPPED)
            return r;
    }
    if (box_row_is_live(&box->row)) {
        r = check_processes(box, deadline_mono_ms, e);
        if (r < 0)
            return r;
        if (r == 1)
            return 0;
    }
    if (box->ctx->no_resume)
        return err_field(e, ERR_PRECONDITION, "state", "the box '%s' %s", box->row.name,
                         box->row.state == BH_STATE_ERROR ? "could not be started" : "is stopped");
    r = bringup_is_disk_gone(box, e);
    if (r < 0)
        return r;
    if (r == 1 && recreate_is_wanted(box))
        return recreate_box_locked(box, up, BRINGUP_DISK_GONE, deadline_mono_ms, report, e);
    if (r == 1) {
        r = bringup_destroy_locked(box, BRINGUP_DISK_GONE, e);
        return r < 0 ? r : box_reload(box, e);
    }
    r = limits_check(box->ctx->limits, &box->spec, e);
    return r < 0 ? r : bringup_run_locked(box, NULL, deadline_mono_ms, report, e);
}

int bringup_back(struct bh_box *box, int64_t deadline_mono_ms, struct bringup_report *report,
                 struct err *e)
{
    _cleanup_close_ int lock = -1;
    bool is_replaced = recreate_is_wanted(box);
    char name[64];
    int r;

    recreate_base_name(box->row.name, name);
    r = store_lock_name(box->ctx->store, name, deadline_mono_ms, box->ctx->cancel_fd, &lock, e);
    if (r < 0)
        return r;
    r = box_reload(box, e);
    if (r == 0)
        r = bringup_back_locked(box, NULL, deadline_mono_ms, report, e);
    /* Another command has recreated it, or died while it did. */
    if (r == -ERR_NOT_FOUND && is_replaced && recreate_follow(box, e) == 0)
        r = bringup_back_locked(box, NULL, deadline_mono_ms, report, e);
    return r;
}
