/* snapshot_calls: bh_snapshot, bh_restore, bh_fork, bh_list_snapshots, bh_remove_snapshot and
 * bh_verify_snapshot. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/io.h"
#include "common/jsonx.h"
#include "common/str.h"
#include "lib/box/box_environment.h"
#include "lib/box/box_provider.h"
#include "lib/box/bringup_internal.h"
#include "lib/box/remote.h"
#include "lib/box/restore.h"
#include "lib/box/snapshot.h"
#include "lib/provider/layer_store.h"

#define SNAPSHOT_TIMEOUT_MS (30 * 60 * 1000)
#define FORK_NAMES 1000

static int64_t deadline_of(int64_t timeout_ms)
{
    return clock_mono_ms() + (timeout_ms > 0 ? timeout_ms : SNAPSHOT_TIMEOUT_MS);
}

static int lock_box(struct bh_box *box, int64_t deadline_mono_ms, int *ret_lock, struct err *e)
{
    int r = store_lock_name(box->ctx->store, box->row.name, deadline_mono_ms, box->ctx->cancel_fd,
                            ret_lock, e);

    return r < 0 ? r : box_reload(box, e);
}

/* ---- what there is ---- */

static json_t *new_snapshot_json(const struct snapshot_row *row)
{
    json_t *spec = json_object_get(row->facts, "spec");

    return json_pack(
        "{s:s, s:s, s:s, s:s, s:O?, s:O?, s:O?, s:I, s:o, s:O?, s:O?, s:O?, s:O?, "
        "s:O?, s:o, s:o}",
        "name", row->name, "id", row->id, "box", row->box_name, "box_id", row->box_id, "provider",
        json_object_get(spec, "provider"), "image", json_object_get(spec, "image"), "image_hash",
        json_object_get(row->facts, "image_hash"), "created_ms", (json_int_t)row->created_ms,
        "layers", jx_new_strv(row->layers), "bytes", json_object_get(row->facts, "bytes"),
        "copied_bytes", json_object_get(row->facts, "copied"), "entries",
        json_object_get(row->facts, "entries"), "devices_left_out",
        json_object_get(row->facts, "devices"), "variables",
        json_object_get(row->facts, "variables"), "agent",
        json_incref(json_object_get(spec, "agent")), "project",
        row->project ? jx_new_path(row->project) : json_null());
}

struct snapshot_list {
    int (*fn)(void *arg, const struct bh_snapshot_info *info);
    void *arg;
    struct err e;
};

static uint64_t fact_number(const struct snapshot_row *row, const char *name)
{
    json_int_t n = json_integer_value(json_object_get(row->facts, name));

    return n > 0 ? (uint64_t)n : 0;
}

static int tell_snapshot(const struct snapshot_row *row,
                         int (*fn)(void *arg, const struct bh_snapshot_info *info), void *arg,
                         struct err *e)
{
    _cleanup_json_ json_t *doc = new_snapshot_json(row);
    _cleanup_free_ char *text = doc ? json_dumps(doc, JSON_COMPACT) : NULL;
    const struct bh_snapshot_info info = {.size = sizeof(info),
                                          .name = row->name,
                                          .id = row->id,
                                          .box_name = row->box_name,
                                          .box_id = row->box_id,
                                          .provider = snapshot_spec_member(row, "provider"),
                                          .image = snapshot_spec_member(row, "image"),
                                          .agent = snapshot_spec_member(row, "agent"),
                                          .created_ms = row->created_ms,
                                          .bytes = fact_number(row, "bytes"),
                                          .copied_bytes = fact_number(row, "copied"),
                                          .entries = fact_number(row, "entries"),
                                          .n_layers = (uint32_t)strv_len(row->layers),
                                          .json = text};

    return text ? fn(arg, &info) : err_oom(e);
}

static int on_snapshot(void *arg, struct snapshot_row *row)
{
    struct snapshot_list *l = arg;

    return row->is_ready && !row->is_temporary ? tell_snapshot(row, l->fn, l->arg, &l->e) : 0;
}

int bh_list_snapshots(struct bh_ctx *ctx, int (*fn)(void *arg, const struct bh_snapshot_info *info),
                      void *arg, struct bh_error *err)
{
    struct snapshot_list l = {.fn = fn, .arg = arg};
    int r = ctx->daemon ? remote_list_snapshots(ctx, fn, arg, &l.e)
                        : store_list_snapshots(ctx->store, on_snapshot, &l, &l.e);

    return r < 0 ? ctx_fail(err, r, &l.e) : r;
}

/* ---- snapshot ---- */

int bh_snapshot(struct bh_box *box, const struct bh_snapshot_options *opts,
                int (*fn)(void *arg, const struct bh_snapshot_info *info), void *arg,
                struct bh_error *err)
{
    struct bh_snapshot_options none = {.size = sizeof(none)}, o;
    struct snapshot_row row = {0};
    _cleanup_close_ int lock = -1;
    struct err e = {0};
    int r = options_copy(&o, sizeof(o), opts ? opts : &none, &e);
    int64_t deadline = r == 0 ? deadline_of(o.timeout_ms) : 0;

    if (r == 0 && box->remote) {
        r = remote_snapshot(box, &o, fn, arg, &e);
        return r < 0 ? ctx_fail(err, r, &e) : r;
    }
    if (r == 0)
        r = lock_box(box, deadline, &lock, &e);
    if (r == 0)
        r = snapshot_make_locked(box, o.name, SNAPSHOT_ASKED, deadline, &row, &e);
    if (r == 0 && fn)
        r = tell_snapshot(&row, fn, arg, &e);
    snapshot_row_done(&row);
    return r < 0 ? ctx_fail(err, r, &e) : r;
}

/* ---- rm and verify ---- */

void snapshot_forget_capture(struct bh_ctx *ctx, const struct snapshot_row *row)
{
    const struct provider *p = provider_find(snapshot_spec_member(row, "provider"));

    if (p && p->forget)
        (void)p->forget(ctx, json_object_get(row->facts, "disk"), NULL);
}

int snapshot_remove(struct bh_ctx *ctx, const struct snapshot_row *row, struct err *e)
{
    const struct snapshot_gc gc = {.ctx = ctx};
    size_t n = strv_len(row->layers);
    _cleanup_free_ char *user = NULL;
    int r = n ? store_layer_user(ctx->store, row->layers[n - 1], true, &user, e) : 0;

    if (r == 0 && user)
        return err_field(e, ERR_PRECONDITION, "snapshot", "%s has the snapshot '%s' as its disk",
                         user, row->name);
    if (r == 0)
        r = store_remove_snapshot(ctx->store, row->id, e);
    if (r == 0) { /* else the next gc removes them */
        (void)snapshot_gc_run(&gc, NULL);
        snapshot_forget_capture(ctx, row);
    }
    return r;
}

int bh_remove_snapshot(struct bh_ctx *ctx, const char *name, struct bh_error *err)
{
    struct snapshot_row row = {0};
    struct err e = {0};
    int r;

    if (ctx->daemon)
        return ctx_fail(err, remote_remove_snapshot(ctx, name ? name : "", &e), &e);
    r = store_find_snapshot(ctx->store, name ? name : "", &row, &e);
    if (r == 0)
        r = snapshot_remove(ctx, &row, &e);
    snapshot_row_done(&row);
    return ctx_fail(err, r, &e);
}

int bh_verify_snapshot(struct bh_ctx *ctx, const char *name, int64_t timeout_ms,
                       struct bh_error *err)
{
    int64_t deadline = deadline_of(timeout_ms);
    struct snapshot_row row = {0};
    const struct provider *p;
    struct err e = {0};
    int r;

    if (ctx->daemon)
        return ctx_fail(err, remote_verify_snapshot(ctx, name ? name : "", timeout_ms, &e), &e);
    r = store_find_snapshot(ctx->store, name ? name : "", &row, &e);
    for (char **l = row.layers; r == 0 && l && *l; l++) {
        r = layer_verify(ctx, *l, deadline, &e);
        if (r < 0)
            r = err_wrap(&e, r, "the snapshot '%s'", row.name);
    }
    p = r == 0 ? provider_find(snapshot_spec_member(&row, "provider")) : NULL;
    if (p && p->verify)
        r = p->verify(ctx, json_object_get(row.facts, "disk"), deadline, &e);
    snapshot_row_done(&row);
    return ctx_fail(err, r, &e);
}

/* ---- restore ---- */

int bh_restore(struct bh_box *box, const char *snapshot, int64_t timeout_ms, struct bh_error *err)
{
    int64_t deadline = deadline_of(timeout_ms);
    struct snapshot_row row = {0};
    _cleanup_close_ int lock = -1;
    struct err e = {0};
    int r;

    if (box->remote) {
        r = remote_step_take(box, "restore",
                             json_pack("{s:s, s:I}", "snapshot", snapshot ? snapshot : "",
                                       "timeout_ms", (json_int_t)timeout_ms),
                             REMOTE_LONG_MS, &e);
        return ctx_fail(err, r, &e);
    }
    r = lock_box(box, deadline, &lock, &e);
    if (r == 0)
        r = snapshot_find_usable(box->ctx, snapshot ? snapshot : "", &row, &e);
    if (r == 0)
        r = restore_locked(box, &row, deadline, &e);
    if (r == 0)
        r = box_reload(box, &e);
    snapshot_row_done(&row);
    return ctx_fail(err, r, &e);
}

/* ---- fork ---- */

/* "api-2", "api-3", ... */
static int choose_fork_name(struct bh_box *box, char out[64], struct err *e)
{
    for (int i = 2; i < FORK_NAMES; i++) {
        struct box_row row = {0};
        int r;

        (void)snprintf(out, 64, "%.55s-%d", box->row.name, i);
        r = store_find(box->ctx->store, out, &row, e);
        box_row_done(&row);
        if (r == -ERR_NOT_FOUND)
            return 0;
        if (r < 0)
            return r;
    }
    return err_field(e, ERR_EXISTS, "name", "name: there are too many forks of '%s'",
                     box->row.name);
}

/* Before the disk is copied. */
static int check_fork_name(struct bh_box *box, const char *name, struct err *e)
{
    struct box_row row = {0};
    int r;

    if (!spec_is_name(name))
        return err_field(e, ERR_INVALID, "name", "name: '%.80s' is not the name of a box", name);
    r = store_find(box->ctx->store, name, &row, e);
    box_row_done(&row);
    if (r == 0)
        return err_field(e, ERR_EXISTS, "name", "name: there is a box '%.64s' already", name);
    return r == -ERR_NOT_FOUND ? 0 : r;
}

/* The snapshot that the new box is made from, and what no snapshot has. */
static int take_fork_snapshot(struct bh_box *box, const char *temporary, int64_t deadline_mono_ms,
                              struct snapshot_row *row, char ***ret_secrets, struct err *e)
{
    _cleanup_close_ int lock = -1;
    int r = lock_box(box, deadline_mono_ms, &lock, e);

    if (r == 0)
        r = snapshot_make_locked(box, temporary, SNAPSHOT_FORK, deadline_mono_ms, row, e);
    return r < 0 ? r : box_environment_secrets(box, ret_secrets, e);
}

int bh_fork(struct bh_box *box, const struct bh_fork_options *opts, struct bh_box **ret_box,
            struct bh_error *err)
{
    struct bh_fork_options none = {.size = sizeof(none)}, o;
    struct store *s = box->ctx->store;
    struct bh_create_options as = {0};
    struct snapshot_row row = {0};
    _cleanup_strv_ char **secrets = NULL;
    _cleanup_close_ int held = -1; /* gc takes the snapshot for a dead fork's without it */
    char name[64], temporary[40] = "fork-";
    struct err e = {0};
    int64_t deadline;
    int r = options_copy(&o, sizeof(o), opts ? opts : &none, &e);

    if (r == 0 && box->remote)
        return ctx_fail(err, remote_fork(box, &o, ret_box, &e), &e);
    deadline = r == 0 ? deadline_of(o.timeout_ms) : 0;
    if (r == 0 && o.name)
        r = check_fork_name(box, o.name, &e);
    if (r == 0)
        r = io_random_hex(8, temporary + strlen(temporary), &e);
    if (r == 0)
        r = store_lock_name(s, temporary, deadline, box->ctx->cancel_fd, &held, &e);
    if (r == 0)
        r = take_fork_snapshot(box, temporary, deadline, &row, &secrets, &e);
    if (r == 0 && !o.name)
        r = choose_fork_name(box, name, &e);
    if (r < 0) {
        r = ctx_fail(err, r, &e);
    } else {
        as.size = sizeof(as);
        snapshot_fill_options(&box->spec, &as);
        as.on_gone = NULL; /* its snapshot does not stay: it cannot be made again */
        as.name = o.name ? o.name : name;
        as.from = row.name;
        as.secrets = (const char *const *)secrets;
        as.host_env = o.host_env;
        as.start_timeout_ms = o.timeout_ms;
        r = bh_create(box->ctx, &as, ret_box, err);
    }
    if (row.name && store_remove_snapshot(s, row.id, NULL) == 0)
        snapshot_forget_capture(box->ctx, &row);
    if (held >= 0)
        store_forget_lock(s, temporary);
    snapshot_row_done(&row);
    return r;
}
