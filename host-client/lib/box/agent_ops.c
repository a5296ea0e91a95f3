/* agent_ops: the operations on a box that the calls of lib/agent need. */
#include "common/cleanup.h"
#include "common/clock.h"
#include "lib/box/box.h"
#include "lib/box/box_environment.h"
#include "lib/box/control.h"
#include "lib/box/history.h"
#include "lib/box/lease.h"
#include "lib/box/remote.h"

#define EXTEND_MS 5000

static int check_live(struct bh_box *box, struct err *e)
{
    int r = box_reload(box, e);

    if (r < 0 || (box_row_is_live(&box->row) && !box_row_is_paused(&box->row)))
        return r;
    return err_field(e, ERR_PRECONDITION, "state", "the box '%s' is %s", box->row.name,
                     bh_state_name(box->row.state));
}

static int check_gone(struct bh_box *box, int64_t mark, struct err *e)
{
    struct store *s = box->ctx->store;
    _cleanup_free_ char *cause = NULL;
    struct box_row row = {0};
    int r;

    if (box->remote)
        return remote_check_gone(box, e);
    r = box->is_handle_only ? -ERR_UNAVAILABLE : store_get(s, box->row.id, &row, NULL);

    if (r == -ERR_NOT_FOUND || (r == 0 && row.state == BH_STATE_DESTROYING)) {
        r = err_field(e, ERR_ABORTED, "name", "the box '%s' was removed while the command ran",
                      box->row.name);
    } else if (r == 0) {
        const char *why;

        r = store_find_stop(s, box->row.id, mark, &cause, NULL);
        why = r == 1 ? cause : row.cause;
        if (r == 1 || !box_row_is_live(&row))
            r = err_field(e, ERR_ABORTED, "name",
                          "the box '%s' was stopped while the command ran%s%s", box->row.name,
                          why && *why ? ": " : "", why ? why : "");
    }
    box_row_done(&row);
    return r == -ERR_ABORTED ? r : 0;
}

/* The number of the box's last event. */
static int64_t get_mark(struct bh_box *box)
{
    int64_t seq = 0;

    if (!box->url)
        (void)store_last_event(box->ctx->store, box->row.id, &seq, NULL);
    return seq;
}

static int extend_lease(struct bh_box *box, int64_t timeout_ms, struct err *e)
{
    const struct bh_limits *l = box->ctx->limits;
    int64_t lease_ms = lease_for_command_ms(timeout_ms, l ? l->timeout_ms : 0);

    if (timeout_ms > 0 && box->remote)
        return remote_extend(box, lease_ms);
    if (timeout_ms <= 0 || box->url)
        return 0;
    return control_call_take(box->ctx, box->row.id,
                             json_pack("{s:s, s:I}", "op", "extend", "until_ms",
                                       (json_int_t)(clock_real_ms() + lease_ms)),
                             EXTEND_MS, NULL, e);
}

static int get_cancel_fd(const struct bh_box *box)
{
    return box->ctx->cancel_fd;
}

/* lib/agent finds the operations at the start of the struct. */
_Static_assert(offsetof(struct bh_box, agent) == 0, "a struct bh_box begins with a struct agent");

const struct agent_ops box_agent_ops = {
    .wake = box_wake,
    .check_live = check_live,
    .check_gone = check_gone,
    .get_mark = get_mark,
    .hold = box_hold,
    .extend_lease = extend_lease,
    .get_client = box_client,
    .new_client = box_new_client,
    .get_cancel_fd = get_cancel_fd,
    .new_workdir = box_workdir,
    .new_environment = box_environment_json,
};
