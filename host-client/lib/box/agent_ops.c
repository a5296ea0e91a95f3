/* agent_ops: the operations on a box that the calls of lib/agent need. */
#include "common/clock.h"
#include "lib/box/box.h"
#include "lib/box/box_environment.h"
#include "lib/box/control.h"

#define EXTEND_MS 5000
#define LEASE_GRACE_MS 60000 /* beyond the command's own deadline */

static int check_live(struct bh_box *box, struct err *e)
{
    int r = box_reload(box, e);

    if (r < 0 || (box_row_is_live(&box->row) && !box_row_is_paused(&box->row)))
        return r;
    return err_field(e, ERR_PRECONDITION, "state", "the box '%s' is %s", box->row.name,
                     bh_state_name(box->row.state));
}

static int check_gone(struct bh_box *box, struct err *e)
{
    struct box_row row = {0};
    int r = box->url ? -ERR_UNAVAILABLE : store_get(box->ctx->store, box->row.id, &row, NULL);

    if (r == -ERR_NOT_FOUND || (r == 0 && row.state == BH_STATE_DESTROYING))
        r = err_field(e, ERR_ABORTED, "name", "the box '%s' was removed while the command ran",
                      box->row.name);
    else if (r == 0 && !box_row_is_live(&row))
        r = err_field(e, ERR_ABORTED, "name", "the box '%s' was stopped while the command ran%s%s",
                      box->row.name, row.cause && *row.cause ? ": " : "",
                      row.cause ? row.cause : "");
    else
        r = 0;
    box_row_done(&row);
    return r;
}

static int extend_lease(struct bh_box *box, int64_t timeout_ms, struct err *e)
{
    const struct bh_limits *l = box->ctx->limits;
    int64_t lease_ms = timeout_ms + LEASE_GRACE_MS;

    if (timeout_ms <= 0 || box->url)
        return 0;
    /* The command counts as use while it runs: its lease is extended within the limit. */
    if (l && l->timeout_ms && lease_ms > l->timeout_ms)
        lease_ms = l->timeout_ms;
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
    .hold = box_hold,
    .extend_lease = extend_lease,
    .get_client = box_client,
    .new_client = box_new_client,
    .get_cancel_fd = get_cancel_fd,
    .new_workdir = box_workdir,
    .new_environment = box_environment_json,
};
