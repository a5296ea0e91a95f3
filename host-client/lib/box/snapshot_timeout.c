/* snapshot_timeout: the snapshot that a box with `--on-timeout snapshot` gets at the end of its time. */
#include <stdio.h>
#include <string.h>

#include "common/str.h"
#include "lib/box/history.h"
#include "lib/box/lifecycle.h"
#include "lib/box/snapshot.h"

#define CAUSE_BYTES 512

struct former {
    struct bh_box *box;
    const char *id; /* of the new one */
};

/* A box that ends again and again has one such snapshot. One that became the disk of a box stays. */
static int drop_former(void *arg, struct snapshot_row *row)
{
    const struct former *f = arg;

    if (row->is_ready && str_eq(row->box_id, f->box->row.id) && !str_eq(row->id, f->id) &&
        json_is_true(json_object_get(row->facts, "at_timeout")))
        (void)snapshot_remove(f->box->ctx, row, NULL);
    return 0;
}

/* The box is stopped all the same: its disk has everything. */
static void note_no_snapshot(struct bh_box *box, const struct err *why)
{
    char cause[CAUSE_BYTES];

    (void)snprintf(cause, sizeof(cause), "no snapshot at the end of its time: %.440s",
                   why->message);
    (void)store_add_fault(box->ctx->store, box->row.id, cause, NULL);
}

bool snapshot_at_timeout(struct bh_box *box, int64_t deadline_mono_ms)
{
    struct snapshot_row row = {0};
    struct former former = {.box = box, .id = row.id};
    struct err e = {0};
    int r;

    if (lifecycle_is_transitional(box->row.state)) /* by a command that died */
        return false;
    r = snapshot_make_locked(box, NULL, SNAPSHOT_TIMEOUT, deadline_mono_ms, &row, &e);
    if (r == -ERR_UNIMPLEMENTED && box_row_is_live(&box->row))
        return false;
    if (r == 0)
        (void)store_list_snapshots(box->ctx->store, drop_former, &former, NULL);
    else
        note_no_snapshot(box, &e);
    snapshot_row_done(&row);
    return true;
}
