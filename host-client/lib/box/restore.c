#include "lib/box/restore.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/io.h"
#include "common/jsonx.h"
#include "common/str.h"
#include "lib/box/box_provider.h"
#include "lib/box/bringup_internal.h"
#include "lib/box/history.h"
#include "lib/box/snapshot.h"

#define INTENT "restore.json"
#define INTENT_MAX_BYTES ((size_t)2 << 20) /* a session is half of it at most */
#define TAG_BYTES 17

static int check_fits(struct bh_box *box, const struct snapshot_row *row, struct err *e)
{
    const char *provider = snapshot_spec_member(row, "provider");

    if (!box->provider->has_snapshots || !str_eq(provider, box->spec.provider))
        return err_field(e, ERR_UNIMPLEMENTED, "snapshot",
                         "the snapshot '%s' is of the provider '%s', and the box '%s' of '%s'",
                         row->name, provider, box->row.name, box->spec.provider);
    if (!str_eq(snapshot_spec_member(row, "image_dir"), box->spec.image_dir))
        return err_field(e, ERR_PRECONDITION, "image",
                         "the snapshot '%s' is over the image '%.100s' in '%.200s', and the box "
                         "'%s' over '%.200s'",
                         row->name, snapshot_spec_member(row, "image"),
                         snapshot_spec_member(row, "image_dir"), box->row.name,
                         box->spec.image_dir);
    return 0;
}

/* ---- the intent ---- */

struct restore_intent {
    const char *tag;      /* of the disk that the snapshot's content is on */
    const char *snapshot; /* its name */
    char **before, **layers;
    json_t *session; /* NULL: the snapshot has none */
};

static const struct jx_field intent_fields[] = {
    JX(struct restore_intent, tag, jx_str, JX_REQUIRED),
    JX(struct restore_intent, snapshot, jx_str, JX_REQUIRED),
    JX(struct restore_intent, before, jx_strv, JX_REQUIRED),
    JX(struct restore_intent, layers, jx_strv, JX_REQUIRED),
    JX(struct restore_intent, session, jx_any, JX_NULLABLE),
    {0},
};

static int write_intent(struct bh_box *box, const struct snapshot_row *row, const char *tag,
                        struct err *e)
{
    _cleanup_free_ char *path = box_path(box, INTENT);
    _cleanup_strv_ char **before = NULL;
    _cleanup_json_ json_t *doc = NULL;
    _cleanup_free_ char *text = NULL;
    size_t len = 0;
    int r = path ? store_list_layers(box->ctx->store, box->row.id, &before, e) : err_oom(e);

    if (r < 0)
        return r;
    doc = json_pack("{s:s, s:s, s:o, s:o, s:O*}", "tag", tag, "snapshot", row->name, "before",
                    jx_new_strv(before), "layers", jx_new_strv(row->layers), "session",
                    snapshot_session(row));
    r = doc ? jx_dump(doc, &text, &len, e) : err_oom(e);
    return r < 0 ? r : io_write_file(AT_FDCWD, path, text, len, 0600, true, e);
}

bool restore_is_pending(const struct bh_box *box)
{
    _cleanup_free_ char *path = box_path(box, INTENT);

    return path && access(path, F_OK) == 0;
}

/* event_id NULL: random. */
static int note_restore(struct bh_box *box, const char *event_id, const char *kind,
                        const char *snapshot, const char *why, struct err *e)
{
    char cause[HISTORY_CAUSE_BYTES];

    (void)snprintf(cause, sizeof(cause), "the snapshot '%.64s'%s%.400s", snapshot, *why ? ": " : "",
                   why);
    return store_add_event(box->ctx->store, box->row.id, event_id, kind, cause, e);
}

/* Brings the layers, the session and the history in line with the disk. May be repeated. */
static int settle_intent(struct bh_box *box, const struct restore_intent *i, const char *why,
                         struct err *e)
{
    int restored = box_provider_has_restored(box, i->tag, e);
    int r = restored;

    if (restored == 1)
        r = snapshot_save_session(box, i->session, e);
    if (r == 0)
        r = store_set_layers(box->ctx->store, box->row.id, restored ? i->layers : i->before, e);
    if (r < 0)
        return r;
    return restored ? note_restore(box, i->tag, "restored", i->snapshot, "", e)
                    : note_restore(box, i->tag, "restore failed", i->snapshot, why, e);
}

int restore_settle_locked(struct bh_box *box, const char *why, struct err *e)
{
    _cleanup_free_ char *path = box_path(box, INTENT);
    _cleanup_free_ char *text = NULL;
    _cleanup_json_ json_t *doc = NULL;
    struct restore_intent i = {0};
    size_t len = 0;
    int r;

    if (!restore_is_pending(box))
        return 0;
    r = path ? io_read_file(AT_FDCWD, path, INTENT_MAX_BYTES, &text, &len, e) : err_oom(e);
    if (r == 0)
        r = jx_parse(text, len, &doc, e);
    if (r == 0)
        r = jx_decode_lax(doc, intent_fields, &i, e);
    if (r == 0)
        r = settle_intent(box, &i, why, e);
    (void)strv_free(i.before);
    (void)strv_free(i.layers);
    if (r == 0 && unlink(path) < 0)
        r = err_sys(e, errno, "remove '%s'", path);
    return r < 0 ? err_wrap(e, r, "settling a restore") : 0;
}

/* ---- restore ---- */

/* The box is stopped. The layers of both disks are the box's until it is known which one it has. */
static int exchange_disk(struct bh_box *box, const struct snapshot_row *row,
                         int64_t deadline_mono_ms, struct err *e)
{
    char tag[TAG_BYTES];
    const struct provider_source source = {
        .layers = row->layers, .disk = json_object_get(row->facts, "disk"), .tag = tag};
    int r = io_random_hex((TAG_BYTES - 1) / 2, tag, e);

    if (r == 0)
        r = note_restore(box, NULL, "restoring", row->name, "", e);
    if (r == 0)
        r = write_intent(box, row, tag, e);
    if (r == 0)
        r = store_add_layers(box->ctx->store, box->row.id, row, e);
    return r < 0 ? r : box_provider_restore(box, &source, deadline_mono_ms, e);
}

int restore_locked(struct bh_box *box, const struct snapshot_row *row, int64_t deadline_mono_ms,
                   struct err *e)
{
    bool is_gone = false, runs;
    struct err why = {0}, late = {0};
    int r = check_fits(box, row, e), settled;

    if (r == 0 && box->row.state != BH_STATE_PAUSED)
        r = bringup_settle_locked(box, &is_gone, e);
    if (r == 0 && is_gone)
        return box_reload(box, e);
    runs = r == 0 && box_row_is_live(&box->row);
    if (runs)
        r = bringup_stop_locked(box, "a snapshot is restored", e);
    if (r < 0)
        return r;
    r = exchange_disk(box, row, deadline_mono_ms, &why);
    settled = restore_settle_locked(box, why.message, &late);
    if (settled == 0 && runs) /* also with the disk that it had */
        settled = bringup_run_locked(box, NULL, deadline_mono_ms, NULL, &late);
    if (e && (r < 0 || settled < 0))
        *e = r < 0 ? why : late;
    return r < 0 ? r : settled;
}
