#include "lib/box/history.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/io.h"
#include "common/jsonx.h"
#include "common/str.h"
#include "lib/util/debug.h"
#include "lib/box/lifecycle.h"
#include "lib/box/remote.h"
#include "lib/box/store_db.h"
#include "lib/box/store_snapshots.h"
#include "lib/util/context.h"

#define EVENTS_PAGE 256

/* ---- events ---- */

int store_check_event_id(const char *event_id, struct err *e)
{
    return event_id && strlen(event_id) >= EVENT_ID_BYTES
               ? err_field(e, ERR_INVALID, "id", "id: an event's id has at most %d bytes",
                           EVENT_ID_BYTES - 1)
               : 0;
}

int store_has_event(struct store *s, const char *box_id, const char *event_id, struct err *e)
{
    _cleanup_stmt_ sqlite3_stmt *st = NULL;
    int r = store_prepare(s, "SELECT 1 FROM events WHERE box_id = ?1 AND id = ?2", &st, e);

    if (r < 0)
        return r;
    (void)sqlite3_bind_text(st, 1, box_id, -1, SQLITE_STATIC);
    (void)sqlite3_bind_text(st, 2, event_id, -1, SQLITE_STATIC);
    r = sqlite3_step(st);
    return r == SQLITE_ROW ? 1 : r == SQLITE_DONE ? 0 : store_fail(s, "read", e);
}

static int drop_oldest_events(struct store *s, const char *box_id, struct err *e)
{
    _cleanup_stmt_ sqlite3_stmt *st = NULL;
    int r = store_prepare(s,
                          "DELETE FROM events WHERE box_id = ?1 AND seq <="
                          " (SELECT MAX(seq) FROM events WHERE box_id = ?1) - ?2",
                          &st, e);

    if (r < 0)
        return r;
    (void)sqlite3_bind_text(st, 1, box_id, -1, SQLITE_STATIC);
    (void)sqlite3_bind_int(st, 2, HISTORY_EVENTS_MAX);
    return store_step(s, st, e);
}

/* The length of text within max bytes, at the end of a character. */
static int cut_length(const char *text, size_t max)
{
    return (int)str_utf8_whole(text, strnlen(text, max));
}

static int insert_event(struct store *s, const struct store_event *event, const char *id,
                        struct err *e)
{
    _cleanup_stmt_ sqlite3_stmt *st = NULL;
    int r = store_prepare(
        s,
        "INSERT INTO events(box_id, seq, id, kind, time_ms, before, after, cause, actor)"
        " VALUES(?1, 1 + COALESCE((SELECT MAX(seq) FROM events WHERE box_id = ?1), 0), ?2, ?3,"
        " MAX(?4, COALESCE((SELECT time_ms FROM events WHERE box_id = ?1"
        " ORDER BY seq DESC LIMIT 1), 0)), ?5, ?6, ?7, ?8)",
        &st, e);

    if (r < 0)
        return r;
    (void)sqlite3_bind_text(st, 1, event->box_id, -1, SQLITE_STATIC);
    (void)sqlite3_bind_text(st, 2, id, -1, SQLITE_STATIC);
    (void)sqlite3_bind_text(st, 3, event->kind, -1, SQLITE_STATIC);
    (void)sqlite3_bind_int64(st, 4, event->time_ms);
    (void)sqlite3_bind_text(st, 5, bh_state_name(event->before), -1, SQLITE_STATIC);
    (void)sqlite3_bind_text(st, 6, bh_state_name(event->after), -1, SQLITE_STATIC);
    (void)sqlite3_bind_text(st, 7, event->cause, cut_length(event->cause, HISTORY_CAUSE_BYTES),
                            SQLITE_STATIC);
    (void)sqlite3_bind_text(st, 8, event->actor ? event->actor : s->actor, -1, SQLITE_STATIC);
    r = store_step(s, st, e);
    if (r == 0)
        debug_line(s->debug, "state", "%s %s %s to %s", event->box_id, event->kind,
                   bh_state_name(event->before), bh_state_name(event->after));
    return r;
}

int store_write_event(struct store *s, const struct store_event *event, struct err *e)
{
    char random_id[EVENT_ID_BYTES];
    int r = event->id ? store_has_event(s, event->box_id, event->id, e)
                      : io_random_hex(16, random_id, e);

    if (r != 0)
        return r;
    r = insert_event(s, event, event->id ? event->id : random_id, e);
    return r < 0 ? r : drop_oldest_events(s, event->box_id, e);
}

/* Within a transaction: does the box's last event have this kind, cause and actor? 1, 0 or an
 * error. */
static int is_last_event(struct store *s, const struct store_event *event, struct err *e)
{
    _cleanup_stmt_ sqlite3_stmt *st = NULL;
    int r = store_prepare(s,
                          "SELECT kind = ?2 AND cause = ?3 AND actor = ?4 FROM events"
                          " WHERE box_id = ?1 ORDER BY seq DESC LIMIT 1",
                          &st, e);

    if (r < 0)
        return r;
    (void)sqlite3_bind_text(st, 1, event->box_id, -1, SQLITE_STATIC);
    (void)sqlite3_bind_text(st, 2, event->kind, -1, SQLITE_STATIC);
    (void)sqlite3_bind_text(st, 3, event->cause, -1, SQLITE_STATIC);
    (void)sqlite3_bind_text(st, 4, store_actor(s), -1, SQLITE_STATIC);
    r = sqlite3_step(st);
    if (r != SQLITE_ROW && r != SQLITE_DONE)
        return store_fail(s, "read", e);
    return r == SQLITE_ROW && sqlite3_column_int(st, 0);
}

/* A transaction. */
static int add_fact(struct store *s, struct store_event *event, bool is_once, struct err *e)
{
    struct box_row row = {0};
    int r = store_begin(s, e);

    if (r < 0)
        return r;
    r = store_get(s, event->box_id, &row, e);
    event->before = event->after = row.state;
    box_row_done(&row);
    if (r == 0 && is_once)
        r = is_last_event(s, event, e);
    if (r == 0)
        r = store_write_event(s, event, e);
    return store_commit(s, r < 0 ? r : 0, e);
}

int store_add_event(struct store *s, const char *box_id, const char *event_id, const char *kind,
                    const char *cause, struct err *e)
{
    _cleanup_free_ char *text = strdup(cause);
    struct store_event event = {
        .box_id = box_id, .id = event_id, .kind = kind, .time_ms = store_now_ms(s), .cause = text};
    int r;

    if (!text)
        return err_oom(e);
    str_make_utf8(text);
    r = store_check_event_id(event_id, e);
    if (r == 0 && event_id)
        r = store_has_event(s, box_id, event_id, e); /* most repeated ones need no transaction */
    if (r != 0)
        return r < 0 ? r : 0;
    return add_fact(s, &event, false, e);
}

int store_add_fault(struct store *s, const char *box_id, const char *cause, struct err *e)
{
    char text[HISTORY_CAUSE_BYTES];
    struct store_event event = {
        .box_id = box_id, .kind = "fault", .time_ms = store_now_ms(s), .cause = text};

    (void)snprintf(text, sizeof(text), "%s", cause);
    str_make_utf8(text);
    return add_fact(s, &event, true, e);
}

int store_last_event(struct store *s, const char *box_id, int64_t *ret_seq, struct err *e)
{
    _cleanup_stmt_ sqlite3_stmt *st = NULL;
    int r = store_prepare(s, "SELECT COALESCE(MAX(seq), 0) FROM events WHERE box_id = ?1", &st, e);

    if (r < 0)
        return r;
    (void)sqlite3_bind_text(st, 1, box_id, -1, SQLITE_STATIC);
    if (sqlite3_step(st) != SQLITE_ROW)
        return store_fail(s, "read", e);
    *ret_seq = sqlite3_column_int64(st, 0);
    return 0;
}

/* By number, not by time: the clock may have been set since. */
int store_find_stop(struct store *s, const char *box_id, int64_t since, char **ret_cause,
                    struct err *e)
{
    _cleanup_stmt_ sqlite3_stmt *st = NULL;
    int r = store_prepare(s,
                          "SELECT cause FROM events WHERE box_id = ?1 AND seq > ?2"
                          " AND kind = 'state' AND after = 'stopping' ORDER BY seq LIMIT 1",
                          &st, e);

    if (r < 0)
        return r;
    (void)sqlite3_bind_text(st, 1, box_id, -1, SQLITE_STATIC);
    (void)sqlite3_bind_int64(st, 2, since);
    r = sqlite3_step(st);
    if (r != SQLITE_ROW)
        return r == SQLITE_DONE ? 0 : store_fail(s, "read", e);
    r = store_column_copy(st, 0, ret_cause, e);
    return r < 0 ? r : 1;
}

static void event_row_done(struct event_row *row)
{
    free(row->box_name);
    free(row->kind);
    free(row->cause);
    free(row->actor);
}

static int read_event(sqlite3_stmt *st, struct event_row *ret, struct err *e)
{
    struct event_row row = {.position = sqlite3_column_int64(st, 0),
                            .seq = sqlite3_column_int64(st, 1),
                            .time_ms = sqlite3_column_int64(st, 6),
                            .before = lifecycle_parse(store_column_text(st, 7)),
                            .after = lifecycle_parse(store_column_text(st, 8))};
    int r;

    (void)snprintf(row.id, sizeof(row.id), "%s", store_column_text(st, 2));
    (void)snprintf(row.box_id, sizeof(row.box_id), "%s", store_column_text(st, 3));
    r = store_column_copy(st, 4, &row.box_name, e);
    if (r == 0)
        r = store_column_copy(st, 5, &row.kind, e);
    if (r == 0)
        r = store_column_copy(st, 9, &row.cause, e);
    if (r == 0)
        r = store_column_copy(st, 10, &row.actor, e);
    if (r < 0) {
        event_row_done(&row);
        return r;
    }
    *ret = row;
    return 0;
}

#define EVENT_COLUMNS \
    "SELECT position, seq, id, box_id, COALESCE((SELECT name FROM boxes WHERE id = box_id)," \
    " (SELECT name FROM records WHERE id = box_id), ''), kind, time_ms, before, after, cause," \
    " actor FROM events "

/* Reads up to EVENTS_PAGE events. */
static int read_events(struct store *s, const char *box_id, int64_t since, struct event_row *rows,
                       size_t *ret_n, struct err *e)
{
    _cleanup_stmt_ sqlite3_stmt *st = NULL;
    int rc = SQLITE_DONE;
    int r =
        store_prepare(s,
                      box_id ? EVENT_COLUMNS "WHERE box_id = ?3 AND seq > ?1 ORDER BY seq LIMIT ?2"
                             : EVENT_COLUMNS "WHERE position > ?1 ORDER BY position LIMIT ?2",
                      &st, e);

    *ret_n = 0;
    if (r < 0)
        return r;
    (void)sqlite3_bind_int64(st, 1, since);
    (void)sqlite3_bind_int(st, 2, EVENTS_PAGE);
    if (box_id)
        (void)sqlite3_bind_text(st, 3, box_id, -1, SQLITE_STATIC);
    while (r == 0 && *ret_n < EVENTS_PAGE && (rc = sqlite3_step(st)) == SQLITE_ROW) {
        r = read_event(st, &rows[*ret_n], e);
        *ret_n += r == 0;
    }
    return r == 0 && rc != SQLITE_ROW && rc != SQLITE_DONE ? store_fail(s, "read", e) : r;
}

int store_list_events(struct store *s, const char *box_id, int64_t since,
                      int (*fn)(void *arg, const struct event_row *event), void *arg, struct err *e)
{
    _cleanup_free_ struct event_row *rows = calloc(EVENTS_PAGE, sizeof(*rows));
    size_t n = EVENTS_PAGE;
    int r = rows ? 0 : err_oom(e);

    while (r == 0 && n == EVENTS_PAGE) {
        r = read_events(s, box_id, since, rows, &n, e);
        for (size_t i = 0; i < n; i++) {
            if (r == 0)
                r = fn(arg, &rows[i]);
            since = box_id ? rows[i].seq : rows[i].position;
            event_row_done(&rows[i]);
        }
    }
    return r;
}

/* ---- records ---- */

void record_row_done(struct record_row *row)
{
    if (!row)
        return;
    free(row->name);
    free(row->cause);
    json_decref(row->spec);
    json_decref(row->agent);
    free(row->project);
    free(row->remote);
    json_decref(row->keys);
    json_decref(row->exit);
    free(row->logs);
    free(row->transcript);
    memset(row, 0, sizeof(*row));
}

#define RECORD_COLUMNS \
    "SELECT id, name, cause, created_ms, updated_ms, paused_ms, resumed_ms, used_ms," \
    " destroyed_ms, spec, agent, project, remote, keys, exit, logs, transcript, rowid" \
    " FROM records "

/* null is no document for jx_parse(). */
static json_t *column_exit(sqlite3_stmt *st, int i, struct err *e)
{
    return str_eq(store_column_text(st, i), "null") ? json_null() : store_column_json(st, i, e);
}

static int read_record(sqlite3_stmt *st, struct record_row *ret, struct err *e)
{
    struct record_row row = {.times = {.created_ms = sqlite3_column_int64(st, 3),
                                       .updated_ms = sqlite3_column_int64(st, 4),
                                       .paused_ms = sqlite3_column_int64(st, 5),
                                       .resumed_ms = sqlite3_column_int64(st, 6),
                                       .used_ms = sqlite3_column_int64(st, 7)},
                             .destroyed_ms = sqlite3_column_int64(st, 8)};
    int r = 0;

    (void)snprintf(row.id, sizeof(row.id), "%s", store_column_text(st, 0));
    row.spec = store_column_json(st, 9, e);
    row.agent = store_column_json(st, 10, e);
    row.keys = store_keys_json(store_column_text(st, 13));
    row.exit = column_exit(st, 14, e);
    if (!row.spec || !row.agent || !row.keys || !row.exit)
        r = -ERR_DATA_LOSS;
    if (r == 0)
        r = store_column_copy(st, 1, &row.name, e);
    if (r == 0)
        r = store_column_copy(st, 2, &row.cause, e);
    if (r == 0)
        r = store_column_copy(st, 11, &row.project, e);
    if (r == 0)
        r = store_column_copy(st, 12, &row.remote, e);
    if (r == 0)
        r = store_column_copy(st, 15, &row.logs, e);
    if (r == 0)
        r = store_column_copy(st, 16, &row.transcript, e);
    if (r < 0) {
        record_row_done(&row);
        return r;
    }
    *ret = row;
    return 0;
}

#define LAST_RECORD " ORDER BY destroyed_ms DESC, rowid DESC LIMIT 1"
#define HAS_KEY "instr(keys, '\"' || hex(?1) || '\"') > 0" /* keys: ["312E32"] */

int store_find_record(struct store *s, const char *what, const char *value, struct record_row *ret,
                      struct err *e)
{
    _cleanup_stmt_ sqlite3_stmt *st = NULL;
    const char *sql = str_eq(what, "id")     ? RECORD_COLUMNS "WHERE id = ?1"
                      : str_eq(what, "name") ? RECORD_COLUMNS "WHERE name = ?1" LAST_RECORD
                                             : RECORD_COLUMNS "WHERE " HAS_KEY LAST_RECORD;
    int r = store_prepare(s, sql, &st, e);

    if (r < 0)
        return r;
    (void)sqlite3_bind_text(st, 1, value, -1, SQLITE_STATIC);
    r = sqlite3_step(st);
    if (r == SQLITE_DONE)
        return err_field(e, ERR_NOT_FOUND, what, "there is no record of a box with the %s '%.64s'",
                         what, value);
    return r == SQLITE_ROW ? read_record(st, ret, e) : store_fail(s, "read", e);
}

int store_not_found(struct store *s, const char *what, const char *value, struct err *e)
{
    struct record_row row = {0};
    _cleanup_free_ char *snapshot = NULL;
    int r = store_find_record(s, what, value, &row, NULL);

    if (r == 0)
        (void)store_last_snapshot(s, row.id, &snapshot, NULL);
    (void)err_field(e, ERR_NOT_FOUND, what, "there is no box with the %s '%.64s'", what, value);
    if (r == 0)
        ctx_gone_error(e, &(struct ctx_gone){
                              .id = row.id,
                              .name = row.name,
                              .provider = json_string_value(json_object_get(row.spec, "provider")),
                              .cause = row.cause,
                              .destroyed_ms = row.destroyed_ms,
                              .snapshot = snapshot});
    record_row_done(&row);
    return -ERR_NOT_FOUND;
}

/* Reads up to HISTORY_BATCH records that come after the one of this time and row. */
static int read_records(struct store *s, int64_t before_ms, int64_t before_row,
                        struct record_row *rows, int64_t *ret_last_row, size_t *ret_n,
                        struct err *e)
{
    _cleanup_stmt_ sqlite3_stmt *st = NULL;
    int rc = SQLITE_DONE;
    int r =
        store_prepare(s,
                      RECORD_COLUMNS "WHERE destroyed_ms < ?1 OR (destroyed_ms = ?1 AND rowid < ?2)"
                                     " ORDER BY destroyed_ms DESC, rowid DESC LIMIT ?3",
                      &st, e);

    *ret_n = 0;
    if (r < 0)
        return r;
    (void)sqlite3_bind_int64(st, 1, before_ms);
    (void)sqlite3_bind_int64(st, 2, before_row);
    (void)sqlite3_bind_int(st, 3, HISTORY_BATCH);
    while (r == 0 && *ret_n < HISTORY_BATCH && (rc = sqlite3_step(st)) == SQLITE_ROW) {
        r = read_record(st, &rows[*ret_n], e);
        *ret_last_row = sqlite3_column_int64(st, 17);
        *ret_n += r == 0;
    }
    return r == 0 && rc != SQLITE_ROW && rc != SQLITE_DONE ? store_fail(s, "read", e) : r;
}

int store_list_records(struct store *s, int (*fn)(void *arg, const struct record_row *row),
                       void *arg, struct err *e)
{
    _cleanup_free_ struct record_row *rows = calloc(HISTORY_BATCH, sizeof(*rows));
    int64_t last_ms = INT64_MAX;
    int64_t last_row = INT64_MAX;
    size_t n = HISTORY_BATCH;
    int r = rows ? 0 : err_oom(e);

    while (r == 0 && n == HISTORY_BATCH) {
        r = read_records(s, last_ms, last_row, rows, &last_row, &n, e);
        for (size_t i = 0; i < n; i++) {
            if (r == 0)
                r = fn(arg, &rows[i]);
            last_ms = rows[i].destroyed_ms;
            record_row_done(&rows[i]);
        }
    }
    return r;
}

/* Records that are too old, or beyond the most that are kept. */
#define OLD_RECORDS \
    " FROM records WHERE (destroyed_ms <= ?1 OR rowid IN (SELECT rowid FROM records" \
    " ORDER BY destroyed_ms DESC, rowid DESC LIMIT -1 OFFSET ?2))"
/* A record whose box has a directory still stays: a removal is at work there, or was killed, and gc removes what is left
 * only of boxes that have a record. */
#define REMOVED_RECORDS OLD_RECORDS " AND NOT has_directory(id)"

static int run_over_old_records(struct store *s, const char *sql, int64_t keep_ms, int64_t *ret_n,
                                struct err *e)
{
    _cleanup_stmt_ sqlite3_stmt *st = NULL;
    int rc, r = store_prepare(s, sql, &st, e);

    if (r < 0)
        return r;
    /* A record may be from a clock that was ahead. */
    (void)sqlite3_bind_int64(st, 1, keep_ms > 0 ? store_now_ms(s) - keep_ms : INT64_MAX);
    (void)sqlite3_bind_int(st, 2, HISTORY_RECORDS_MAX);
    (void)sqlite3_bind_int(st, 3, HISTORY_BATCH); /* where it is asked for */
    rc = sqlite3_step(st);
    if (rc != SQLITE_ROW && rc != SQLITE_DONE)
        return store_fail(s, "old records", e);
    if (ret_n)
        *ret_n = rc == SQLITE_ROW ? sqlite3_column_int64(st, 0) : sqlite3_changes(s->db);
    return 0;
}

int store_drop_old_records(struct store *s, int64_t keep_ms, int64_t *ret_n, struct err *e)
{
    return run_over_old_records(
        s, "DELETE FROM records WHERE rowid IN (SELECT rowid" REMOVED_RECORDS " LIMIT ?3)", keep_ms,
        ret_n, e);
}

int store_prune_records(struct store *s, int64_t keep_ms, bool dry_run, int64_t *ret_n,
                        struct err *e)
{
    int64_t n = HISTORY_BATCH, all = 0;
    int r = 0;

    if (dry_run)
        return run_over_old_records(s, "SELECT count(*)" OLD_RECORDS, keep_ms, ret_n, e);
    while (r == 0 && n == HISTORY_BATCH) {
        r = store_begin(s, e);
        if (r == 0)
            r = store_commit(s, store_drop_old_records(s, keep_ms, &n, e), e);
        all += r == 0 ? n : 0;
    }
    if (r == 0)
        *ret_n = all;
    return r;
}

/* ---- summaries ---- */

/* json_string() of text within max characters; takes text. */
static json_t *new_clamped_take(char *text, size_t max, char *clamp(const char *s, size_t max))
{
    char *line = text ? clamp(text, max) : NULL;
    json_t *v = line ? json_string(line) : NULL;

    free(line);
    free(text);
    return v;
}

__attribute__((format(printf, 2, 3))) static json_t *new_clamped(size_t max, const char *fmt, ...)
{
    char *text = NULL;
    va_list ap;
    int n;

    va_start(ap, fmt);
    n = vasprintf(&text, fmt, ap);
    va_end(ap);
    return new_clamped_take(n < 0 ? NULL : text, max, str_clamp);
}

/* One of an event or a record; `what` is the state, or the fact that changes none. */
static json_t *new_summary_of(const char *name, const char *what, const char *cause,
                              const char *actor)
{
    bool has_actor = *cause && *actor;

    return json_pack("{s:o, s:o, s:o}", "title",
                     new_clamped(HISTORY_TITLE_CHARS, "%s: %s", name, what), "status",
                     new_clamped(HISTORY_STATUS_CHARS, "%s%s%s", what, *cause ? ": " : "", cause),
                     "details",
                     new_clamped(HISTORY_DETAILS_CHARS, "%s%s%s%s", cause, has_actor ? " (" : "",
                                 actor, has_actor ? ")" : ""));
}

/* ---- the public ones ---- */

static const char *spec_text(const json_t *spec, const char *key)
{
    const char *text = json_string_value(json_object_get(spec, key));

    return text ? text : "";
}

/* null if an older store did not record the project. */
static json_t *new_project(const struct record_row *row)
{
    return row->project ? json_pack("{s:o, s:o}", "path", jx_new_path(row->project), "remote",
                                    jx_new_path(row->remote ? row->remote : ""))
                        : json_null();
}

/* {"K":"V"} of "K=V", as in bh_box_info.json. */
static json_t *new_labels(const struct record_row *row)
{
    json_t *labels = json_object();
    const json_t *pair;
    size_t i;

    json_array_foreach (json_object_get(row->spec, "labels"), i, pair) {
        const char *text = json_is_string(pair) ? json_string_value(pair) : "";
        const char *eq = strchr(text, '=');
        _cleanup_free_ char *key = eq ? strndup(text, (size_t)(eq - text)) : NULL;

        if (key)
            (void)json_object_set_new(labels, key, json_string(eq + 1));
    }
    return labels;
}

static json_t *new_record_summary(const struct record_row *row)
{
    json_t *v = new_summary_of(*row->name ? row->name : row->id, bh_state_name(BH_STATE_DESTROYED),
                               row->cause, "");

    (void)json_object_set_new(
        v, "output",
        new_clamped_take(strdup(row->logs ? row->logs : ""), HISTORY_OUTPUT_CHARS, str_clamp_end));
    return v;
}

static json_t *new_record(const struct record_row *row)
{
    return json_pack(
        "{s:s, s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:O, s:O, s:o, s:s?, s:o, "
        "s:o}",
        "name", row->name, "id", row->id, "provider", spec_text(row->spec, "provider"), "image",
        spec_text(row->spec, "image"), "state", bh_state_name(BH_STATE_DESTROYED), "cause",
        row->cause, "created_ms", (json_int_t)row->times.created_ms, "updated_ms",
        (json_int_t)row->times.updated_ms, "paused_ms", (json_int_t)row->times.paused_ms,
        "resumed_ms", (json_int_t)row->times.resumed_ms, "used_ms", (json_int_t)row->times.used_ms,
        "destroyed_ms", (json_int_t)row->destroyed_ms, "keys", row->keys, "exit", row->exit,
        "project", new_project(row), "transcript", row->transcript, "labels", new_labels(row),
        "summary", new_record_summary(row));
}

struct record_list {
    int (*fn)(void *arg, const struct bh_record *record);
    void *arg;
    struct err e;
};

static int on_record(void *arg, const struct record_row *row)
{
    struct record_list *l = arg;
    _cleanup_json_ json_t *whole = new_record(row);
    _cleanup_free_ char *text = whole ? json_dumps(whole, JSON_COMPACT) : NULL;
    json_t *code = json_object_get(row->exit, "code");
    const struct bh_record record = {
        .size = sizeof(record),
        .id = row->id,
        .name = row->name,
        .provider = spec_text(row->spec, "provider"),
        .image = spec_text(row->spec, "image"),
        .cause = row->cause,
        .created_ms = row->times.created_ms,
        .updated_ms = row->times.updated_ms,
        .paused_ms = row->times.paused_ms,
        .resumed_ms = row->times.resumed_ms,
        .used_ms = row->times.used_ms,
        .destroyed_ms = row->destroyed_ms,
        .exit_code = json_is_integer(code) ? (int)json_integer_value(code) : -1,
        .exit_signal = (int)json_integer_value(json_object_get(row->exit, "signal")),
        .logs = row->logs,
        .transcript = row->transcript,
        .json = text,
    };

    return text ? l->fn(l->arg, &record) : err_oom(&l->e);
}

int bh_list_records(struct bh_ctx *ctx, int (*fn)(void *arg, const struct bh_record *record),
                    void *arg, struct bh_error *err)
{
    struct record_list l = {.fn = fn, .arg = arg};
    int r = ctx->daemon ? remote_list_records(ctx, fn, arg, &l.e)
                        : store_list_records(ctx->store, on_record, &l, &l.e);

    return r < 0 ? ctx_fail(err, r, &l.e) : r;
}

struct event_list {
    int (*fn)(void *arg, const struct bh_event *event);
    void *arg;
    struct err e;
};

static json_t *new_event(const struct event_row *row)
{
    bool is_new = row->before == BH_STATE_UNKNOWN;
    const char *what = str_eq(row->kind, "state") ? bh_state_name(row->after) : row->kind;
    const char *name = *row->box_name ? row->box_name : row->box_id;

    return json_pack("{s:I, s:I, s:s, s:{s:s, s:s}, s:s, s:I, s:s?, s:s, s:s, s:s, s:o}",
                     "position", (json_int_t)row->position, "seq", (json_int_t)row->seq, "id",
                     row->id, "box", "id", row->box_id, "name", row->box_name, "kind", row->kind,
                     "time_ms", (json_int_t)row->time_ms, "before",
                     is_new ? NULL : bh_state_name(row->before), "after", bh_state_name(row->after),
                     "cause", row->cause, "actor", row->actor, "summary",
                     new_summary_of(name, what, row->cause, row->actor));
}

static int on_event(void *arg, const struct event_row *row)
{
    struct event_list *l = arg;
    _cleanup_json_ json_t *whole = new_event(row);
    _cleanup_free_ char *text = whole ? json_dumps(whole, JSON_COMPACT) : NULL;
    const struct bh_event event = {
        .size = sizeof(event),
        .position = row->position,
        .seq = row->seq,
        .id = row->id,
        .box_id = row->box_id,
        .box_name = row->box_name,
        .kind = row->kind,
        .time_ms = row->time_ms,
        .before = row->before,
        .after = row->after,
        .cause = row->cause,
        .actor = row->actor,
        .json = text,
    };

    return text ? l->fn(l->arg, &event) : err_oom(&l->e);
}

/* A box's id, from its name or from its id, of a row or of a record. */
static int find_box_id(struct store *s, const char *box, char ret_id[BOX_ID_BYTES], struct err *e)
{
    static const char *const keys[] = {"name", "id"};
    int r = -ERR_NOT_FOUND;

    for (size_t i = 0; r == -ERR_NOT_FOUND && i < N_ELEMENTS(keys); i++) {
        struct box_row row = {0};
        struct record_row record = {0};

        r = i == 0 ? store_find(s, box, &row, e) : store_get(s, box, &row, e);
        if (r == -ERR_NOT_FOUND)
            r = store_find_record(s, keys[i], box, &record, NULL);
        if (r == 0)
            (void)snprintf(ret_id, BOX_ID_BYTES, "%s", *row.id ? row.id : record.id);
        box_row_done(&row);
        record_row_done(&record);
    }
    return r == -ERR_NOT_FOUND
               ? err_field(e, ERR_NOT_FOUND, "name", "there is no box with the name '%.64s'", box)
               : r;
}

int bh_list_events(struct bh_ctx *ctx, const struct bh_event_options *opts,
                   int (*fn)(void *arg, const struct bh_event *event), void *arg,
                   struct bh_error *err)
{
    struct event_list l = {.fn = fn, .arg = arg};
    struct bh_event_options o;
    char id[BOX_ID_BYTES];
    int r = options_copy(&o, sizeof(o), opts, &l.e);

    if (r == 0 && o.since < 0)
        r = err_field(&l.e, ERR_INVALID, "since", "since: the number must not be negative");
    if (r == 0 && ctx->daemon) {
        r = remote_list_events(ctx, &o, fn, arg, &l.e);
        return r < 0 ? ctx_fail(err, r, &l.e) : r;
    }
    if (r == 0 && o.box)
        r = find_box_id(ctx->store, o.box, id, &l.e);
    if (r == 0)
        r = store_list_events(ctx->store, o.box ? id : NULL, o.since, on_event, &l, &l.e);
    return r < 0 ? ctx_fail(err, r, &l.e) : r;
}
