#include "lib/box/store_snapshots.h"

#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/io.h"
#include "common/jsonx.h"
#include "common/str.h"
#include "lib/box/store_db.h"

#define SNAPSHOT_COLUMNS \
    "SELECT id, name, state, temporary, box_id, box_name, created_ms, project, remote, layers," \
    " facts FROM snapshots "

void snapshot_row_done(struct snapshot_row *row)
{
    free(row->name);
    free(row->box_name);
    free(row->project);
    free(row->remote);
    (void)strv_free(row->layers);
    json_decref(row->facts);
    memset(row, 0, sizeof(*row));
}

static int read_layers(sqlite3_stmt *st, int i, char ***ret, struct err *e)
{
    _cleanup_json_ json_t *list = store_column_json(st, i, e);
    int r = list ? 0 : -ERR_DATA_LOSS;

    return r < 0 ? r : jx_strv(list, ret, e);
}

static int read_snapshot(sqlite3_stmt *st, struct snapshot_row *ret, struct err *e)
{
    struct snapshot_row row = {.is_ready = str_eq(store_column_text(st, 2), "ready"),
                               .is_temporary = sqlite3_column_int(st, 3) != 0,
                               .created_ms = sqlite3_column_int64(st, 6)};
    int r;

    (void)snprintf(row.id, sizeof(row.id), "%s", store_column_text(st, 0));
    (void)snprintf(row.box_id, sizeof(row.box_id), "%s", store_column_text(st, 4));
    r = store_column_copy(st, 1, &row.name, e);
    if (r == 0)
        r = store_column_copy(st, 5, &row.box_name, e);
    if (r == 0)
        r = store_column_copy(st, 7, &row.project, e);
    if (r == 0)
        r = store_column_copy(st, 8, &row.remote, e);
    if (r == 0)
        r = read_layers(st, 9, &row.layers, e);
    if (r == 0 && !(row.facts = store_column_json(st, 10, e)))
        r = -ERR_DATA_LOSS;
    if (r < 0) {
        snapshot_row_done(&row);
        return r;
    }
    *ret = row;
    return 0;
}

/* ---- rows ---- */

static int count_snapshots(struct store *s, struct err *e)
{
    _cleanup_stmt_ sqlite3_stmt *st = NULL;
    int r = store_prepare(s, "SELECT count(*) FROM snapshots", &st, e);

    if (r < 0)
        return r;
    if (sqlite3_step(st) != SQLITE_ROW)
        return store_fail(s, "read", e);
    return sqlite3_column_int(st, 0) < SNAPSHOTS_MAX
               ? 0
               : err_field(e, ERR_EXHAUSTED, "snapshot", "there are %d snapshots: remove some",
                           SNAPSHOTS_MAX);
}

static int insert_snapshot(struct store *s, const struct snapshot_row *row, struct err *e)
{
    _cleanup_stmt_ sqlite3_stmt *st = NULL;
    int r = store_prepare(s,
                          "INSERT INTO snapshots(id, name, state, temporary, box_id, box_name,"
                          " created_ms, project, remote)"
                          " VALUES(?1, ?2, 'making', ?3, ?4, ?5, ?6, ?7, ?8)",
                          &st, e);

    if (r < 0)
        return r;
    (void)sqlite3_bind_text(st, 1, row->id, -1, SQLITE_STATIC);
    (void)sqlite3_bind_text(st, 2, row->name, -1, SQLITE_STATIC);
    (void)sqlite3_bind_int(st, 3, row->is_temporary);
    (void)sqlite3_bind_text(st, 4, row->box_id, -1, SQLITE_STATIC);
    (void)sqlite3_bind_text(st, 5, row->box_name, -1, SQLITE_STATIC);
    (void)sqlite3_bind_int64(st, 6, row->created_ms);
    (void)sqlite3_bind_text(st, 7, row->project, -1, SQLITE_STATIC);
    (void)sqlite3_bind_text(st, 8, row->remote, -1, SQLITE_STATIC);
    r = sqlite3_step(st);
    if (r == SQLITE_CONSTRAINT)
        return err_field(e, ERR_EXISTS, "name", "name: there is a snapshot '%.64s' already",
                         row->name);
    return r == SQLITE_DONE ? 0 : store_fail(s, "add a snapshot", e);
}

int store_add_snapshot(struct store *s, struct snapshot_row *row, struct err *e)
{
    int r = io_random_hex((BOX_ID_BYTES - 1) / 2, row->id, e);

    row->created_ms = store_now_ms(s);
    if (r == 0)
        r = store_begin(s, e);
    if (r < 0)
        return r;
    r = count_snapshots(s, e);
    if (r == 0)
        r = insert_snapshot(s, row, e);
    return store_commit(s, r, e);
}

/* Within a transaction. */
static int add_uses(struct store *s, const char *user, char *const *layers, struct err *e)
{
    int r = 0;

    for (; r == 0 && layers && *layers; layers++) {
        _cleanup_stmt_ sqlite3_stmt *st = NULL;

        r = store_prepare(s, "INSERT OR IGNORE INTO layer_uses(layer, user) VALUES(?1, ?2)", &st,
                          e);
        if (r < 0)
            return r;
        (void)sqlite3_bind_text(st, 1, *layers, -1, SQLITE_STATIC);
        (void)sqlite3_bind_text(st, 2, user, -1, SQLITE_STATIC);
        r = store_step(s, st, e);
    }
    return r;
}

static int update_snapshot(struct store *s, const struct snapshot_row *row, struct err *e)
{
    _cleanup_stmt_ sqlite3_stmt *st = NULL;
    _cleanup_json_ json_t *list = jx_new_strv(row->layers);
    _cleanup_free_ char *layers = NULL, *facts = NULL;
    int r = list ? jx_dump(list, &layers, NULL, e) : err_oom(e);

    if (r == 0)
        r = jx_dump(row->facts, &facts, NULL, e);
    if (r == 0)
        r = store_prepare(
            s, "UPDATE snapshots SET state = 'ready', layers = ?2, facts = ?3 WHERE id = ?1", &st,
            e);
    if (r < 0)
        return r;
    (void)sqlite3_bind_text(st, 1, row->id, -1, SQLITE_STATIC);
    (void)sqlite3_bind_text(st, 2, layers, -1, SQLITE_STATIC);
    (void)sqlite3_bind_text(st, 3, facts, -1, SQLITE_STATIC);
    r = store_step(s, st, e);
    if (r == 0 && sqlite3_changes(s->db) != 1)
        return err_field(e, ERR_ABORTED, "name", "the snapshot '%.64s' was removed meanwhile",
                         row->name);
    return r;
}

/* Within a transaction. */
static int write_made(struct store *s, const struct snapshot_row *row, struct err *e)
{
    struct box_row box = {0};
    _cleanup_free_ char *cause = NULL;
    struct store_event event = {
        .box_id = row->box_id, .kind = "snapshot", .time_ms = store_now_ms(s)};
    int r = store_get(s, row->box_id, &box, e);

    event.before = event.after = box.state;
    box_row_done(&box);
    if (r == 0 && asprintf(&cause, "the snapshot '%s'", row->name) < 0)
        r = err_oom(e);
    event.cause = cause;
    return r < 0 ? r : store_write_event(s, &event, e);
}

int store_finish_snapshot(struct store *s, const struct snapshot_row *row, struct err *e)
{
    int r = store_begin(s, e);

    if (r < 0)
        return r;
    r = update_snapshot(s, row, e);
    if (r == 0)
        r = add_uses(s, row->id, row->layers, e);
    if (r == 0)
        r = write_made(s, row, e);
    return store_commit(s, r < 0 ? r : 0, e);
}

int store_find_snapshot(struct store *s, const char *name, struct snapshot_row *ret, struct err *e)
{
    _cleanup_stmt_ sqlite3_stmt *st = NULL;
    int r = store_prepare(s, SNAPSHOT_COLUMNS "WHERE name = ?1 AND state = 'ready'", &st, e);

    if (r < 0)
        return r;
    (void)sqlite3_bind_text(st, 1, name, -1, SQLITE_STATIC);
    r = sqlite3_step(st);
    if (r == SQLITE_DONE)
        return err_field(e, ERR_NOT_FOUND, "snapshot", "there is no snapshot '%.64s'", name);
    return r == SQLITE_ROW ? read_snapshot(st, ret, e) : store_fail(s, "read", e);
}

static int read_snapshots(struct store *s, struct snapshot_row **rows, size_t *n, struct err *e)
{
    _cleanup_stmt_ sqlite3_stmt *st = NULL;
    int rc = SQLITE_DONE;
    int r = store_prepare(s, SNAPSHOT_COLUMNS "ORDER BY created_ms, rowid LIMIT ?1", &st, e);

    if (r < 0)
        return r;
    (void)sqlite3_bind_int(st, 1, SNAPSHOTS_MAX);
    *rows = calloc(SNAPSHOTS_MAX, sizeof(**rows));
    if (!*rows)
        return err_oom(e);
    while (r == 0 && *n < SNAPSHOTS_MAX && (rc = sqlite3_step(st)) == SQLITE_ROW) {
        r = read_snapshot(st, &(*rows)[*n], e);
        *n += r == 0;
    }
    return r == 0 && rc != SQLITE_ROW && rc != SQLITE_DONE ? store_fail(s, "read", e) : r;
}

int store_list_snapshots(struct store *s, int (*fn)(void *arg, struct snapshot_row *row), void *arg,
                         struct err *e)
{
    struct snapshot_row *rows = NULL;
    size_t n = 0;
    int r = read_snapshots(s, &rows, &n, e);

    for (size_t i = 0; r == 0 && i < n; i++)
        r = fn(arg, &rows[i]);
    for (size_t i = 0; i < n; i++)
        snapshot_row_done(&rows[i]);
    free(rows);
    return r;
}

static int change_with(struct store *s, const char *sql, const char *text, struct err *e)
{
    _cleanup_stmt_ sqlite3_stmt *st = NULL;
    int r = store_prepare(s, sql, &st, e);

    if (r < 0)
        return r;
    (void)sqlite3_bind_text(st, 1, text, -1, SQLITE_STATIC);
    return store_step(s, st, e);
}

int store_remove_snapshot(struct store *s, const char *id, struct err *e)
{
    return change_with(s, "DELETE FROM snapshots WHERE id = ?1", id, e);
}

/* ---- layers ---- */

static int require_ready(struct store *s, const struct snapshot_row *row, struct err *e)
{
    struct snapshot_row now = {0};
    int r = store_find_snapshot(s, row->name, &now, e);
    bool is_same = r == 0 && str_eq(now.id, row->id);

    snapshot_row_done(&now);
    return r < 0 || is_same ? r
                            : err_field(e, ERR_NOT_FOUND, "snapshot",
                                        "the snapshot '%.64s' was removed meanwhile", row->name);
}

int store_add_layers(struct store *s, const char *box_id, const struct snapshot_row *from,
                     struct err *e)
{
    int r = store_begin(s, e);

    if (r < 0)
        return r;
    r = require_ready(s, from, e);
    if (r == 0)
        r = add_uses(s, box_id, from->layers, e);
    return store_commit(s, r, e);
}

int store_set_layers(struct store *s, const char *box_id, char *const *layers, struct err *e)
{
    _cleanup_stmt_ sqlite3_stmt *st = NULL;
    int r = store_begin(s, e);

    if (r < 0)
        return r;
    r = store_prepare(s, "DELETE FROM layer_uses WHERE user = ?1", &st, e);
    if (r == 0) {
        (void)sqlite3_bind_text(st, 1, box_id, -1, SQLITE_STATIC);
        r = store_step(s, st, e);
    }
    if (r == 0)
        r = add_uses(s, box_id, layers, e);
    return store_commit(s, r, e);
}

int store_list_layers(struct store *s, const char *box_id, char ***ret, struct err *e)
{
    _cleanup_stmt_ sqlite3_stmt *st = NULL;
    _cleanup_strv_ char **layers = calloc(1, sizeof(*layers));
    int r = layers ? store_prepare(s, "SELECT layer FROM layer_uses WHERE user = ?1", &st, e)
                   : err_oom(e);

    if (r < 0)
        return r;
    (void)sqlite3_bind_text(st, 1, box_id, -1, SQLITE_STATIC);
    while ((r = sqlite3_step(st)) == SQLITE_ROW) {
        r = strv_push(&layers, store_column_text(st, 0), e);
        if (r < 0)
            return r;
    }
    if (r != SQLITE_DONE)
        return store_fail(s, "read", e);
    *ret = TAKE(layers);
    return 0;
}

int store_layer_user(struct store *s, const char *layer, bool only_boxes, char **ret, struct err *e)
{
    _cleanup_stmt_ sqlite3_stmt *st = NULL;
    int r = store_prepare(
        s,
        "SELECT COALESCE((SELECT 'the box ''' || name || '''' FROM boxes WHERE id = user),"
        " (SELECT 'the snapshot ''' || name || '''' FROM snapshots WHERE id = user),"
        " 'something unknown') FROM layer_uses WHERE layer = ?1"
        " AND (?2 = 0 OR user IN (SELECT id FROM boxes)) LIMIT 1",
        &st, e);

    if (r < 0)
        return r;
    (void)sqlite3_bind_text(st, 1, layer, -1, SQLITE_STATIC);
    (void)sqlite3_bind_int(st, 2, only_boxes);
    r = sqlite3_step(st);
    *ret = NULL;
    if (r == SQLITE_DONE)
        return 0;
    return r == SQLITE_ROW ? store_column_copy(st, 0, ret, e) : store_fail(s, "read", e);
}

int store_add_layer(struct store *s, const char *layer, struct err *e)
{
    return change_with(s, "INSERT OR IGNORE INTO layers(digest) VALUES(?1)", layer, e);
}

int store_has_layer(struct store *s, const char *layer, struct err *e)
{
    return store_has_any(s, "SELECT 1 FROM layers WHERE digest = ?1", layer, e);
}

int store_forget_layer(struct store *s, const char *layer, struct err *e)
{
    return change_with(s, "DELETE FROM layers WHERE digest = ?1", layer, e);
}

int store_has_snapshot(struct store *s, const char *id, struct err *e)
{
    return store_has_any(s, "SELECT 1 FROM snapshots WHERE id = ?1", id, e);
}

int store_last_snapshot(struct store *s, const char *box_id, char **ret_name, struct err *e)
{
    _cleanup_stmt_ sqlite3_stmt *st = NULL;
    int r = store_prepare(s,
                          "SELECT name FROM snapshots WHERE box_id = ?1 AND state = 'ready'"
                          " AND temporary = 0 ORDER BY created_ms DESC, rowid DESC LIMIT 1",
                          &st, e);

    if (r < 0)
        return r;
    (void)sqlite3_bind_text(st, 1, box_id, -1, SQLITE_STATIC);
    r = sqlite3_step(st);
    *ret_name = NULL;
    if (r == SQLITE_DONE)
        return 0;
    return r == SQLITE_ROW ? store_column_copy(st, 0, ret_name, e) : store_fail(s, "read", e);
}
