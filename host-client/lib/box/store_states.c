/* store_states: the changes of a box's state, and its end. */
#include "lib/box/store.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/jsonx.h"
#include "common/str.h"
#include "lib/box/lifecycle.h"
#include "lib/box/store_db.h"

/* ---- states ---- */

struct state_change {
    const char *id;
    enum bh_state before, after;
    const char *cause; /* UTF-8 */
    int64_t now_ms;    /* not before the row's last change */
    bool made;         /* as in struct box_row */
};

static int update_state(struct store *s, const struct state_change *c, struct err *e)
{
    _cleanup_stmt_ sqlite3_stmt *st = NULL;
    int r =
        store_prepare(s,
                      "UPDATE boxes SET state = ?2, cause = ?3, state_since_ms = ?4,"
                      " updated_ms = ?4, made = made OR ?2 = 'running',"
                      " paused_ms = CASE WHEN ?2 = 'paused' THEN ?4 ELSE paused_ms END,"
                      " resumed_ms = CASE WHEN ?2 = 'running' AND state = 'resuming' THEN ?4"
                      " ELSE resumed_ms END,"
                      " used_ms = CASE WHEN ?2 = 'running' THEN MAX(used_ms, ?4) ELSE used_ms END,"
                      " deadline_ms = CASE WHEN ?2 IN ('stopped', 'destroying', 'destroyed')"
                      " OR (?2 = 'error' AND state = 'stopping') THEN 0"
                      " ELSE deadline_ms END WHERE id = ?1",
                      &st, e);

    if (r < 0)
        return r;
    (void)sqlite3_bind_text(st, 1, c->id, -1, SQLITE_STATIC);
    (void)sqlite3_bind_text(st, 2, bh_state_name(c->after), -1, SQLITE_STATIC);
    (void)sqlite3_bind_text(st, 3, c->cause, -1, SQLITE_STATIC);
    (void)sqlite3_bind_int64(st, 4, c->now_ms);
    return store_change_row(s, st, c->id, e);
}

/* The time of the box's last event; 0: it has none. */
static int read_last_event(struct store *s, const char *id, int64_t *ret_ms, struct err *e)
{
    _cleanup_stmt_ sqlite3_stmt *st = NULL;
    int r = store_prepare(
        s, "SELECT time_ms FROM events WHERE box_id = ?1 ORDER BY seq DESC LIMIT 1", &st, e);

    if (r < 0)
        return r;
    (void)sqlite3_bind_text(st, 1, id, -1, SQLITE_STATIC);
    r = sqlite3_step(st);
    if (r != SQLITE_ROW && r != SQLITE_DONE)
        return store_fail(s, "read", e);
    *ret_ms = r == SQLITE_ROW ? sqlite3_column_int64(st, 0) : 0;
    return 0;
}

/* Within a transaction. The time of a change is not before any time of the box. */
static int read_state(struct store *s, struct state_change *c, struct err *e)
{
    struct box_row row = {0};
    int64_t times[4] = {store_now_ms(s)};
    int r = store_get(s, c->id, &row, e);

    if (r == 0)
        r = read_last_event(s, c->id, &times[1], e);
    times[2] = row.times.updated_ms;
    times[3] = row.times.used_ms;
    c->before = row.state;
    c->made = row.made;
    c->now_ms = 0;
    for (size_t i = 0; i < N_ELEMENTS(times); i++)
        if (times[i] > c->now_ms)
            c->now_ms = times[i];
    box_row_done(&row);
    return r;
}

/* Within a transaction: the event, then the row. In this order a trigger sees that the change of the
 * state has its event. */
static int write_state(struct store *s, const struct state_change *c, const char *event_id,
                       struct err *e)
{
    const struct store_event event = {.box_id = c->id,
                                      .id = event_id,
                                      .kind = "state",
                                      .time_ms = c->now_ms,
                                      .before = c->before,
                                      .after = c->after,
                                      .cause = c->cause};
    int r = store_write_event(s, &event, e);

    return r < 0 ? r : update_state(s, c, e);
}

/* Within a transaction. */
static int change_row_state(struct store *s, struct state_change *c, const char *event_id,
                            struct err *e)
{
    int r = read_state(s, c, e);

    if (r == 0 && !lifecycle_is_legal(c->before, c->after))
        r = err_field(e, ERR_PRECONDITION, "state", "a box that is %s can't become %s",
                      bh_state_name(c->before), bh_state_name(c->after));
    return r < 0 ? r : write_state(s, c, event_id, e);
}

int store_change_state(struct store *s, const char *id, enum bh_state state, const char *cause,
                       struct err *e)
{
    struct state_change c = {.id = id, .after = state, .cause = cause};

    return change_row_state(s, &c, NULL, e);
}

/* One transaction. */
static int change_state(struct store *s, struct state_change *c, const char *event_id,
                        struct err *e)
{
    int r = store_begin(s, e);

    if (r < 0)
        return r;
    r = event_id ? store_has_event(s, c->id, event_id, e) : 0;
    if (r != 0)
        return store_commit(s, r < 0 ? r : 0, e);
    return store_commit(s, change_row_state(s, c, event_id, e), e);
}

/* The reserve is for the end of boxes that hold somebody's work. The undo of a new box frees its
 * own room. */
static bool is_worth_reserve(const struct state_change *c)
{
    return c->made && (c->after == BH_STATE_STOPPING || c->after == BH_STATE_STOPPED ||
                       c->after == BH_STATE_ERROR || c->after == BH_STATE_DESTROYING);
}

int store_set_state_once(struct store *s, const char *id, const char *event_id, enum bh_state state,
                         const char *cause, struct err *e)
{
    _cleanup_free_ char *text = strdup(cause ? cause : "");
    struct state_change c = {.id = id, .after = state, .cause = text};
    int r;

    if (!text)
        return err_oom(e);
    str_make_utf8(text); /* it may contain text of a box */
    r = store_check_event_id(event_id, e);
    if (r == 0)
        r = change_state(s, &c, event_id, e);
    if (r == -ERR_EXHAUSTED && is_worth_reserve(&c) && store_spend_reserve(s)) {
        r = change_state(s, &c, event_id, e);
        store_fill_reserve(s);
    }
    return r;
}

int store_set_state(struct store *s, const char *id, enum bh_state state, const char *cause,
                    struct err *e)
{
    return store_set_state_once(s, id, NULL, state, cause, e);
}

/* ---- the end of a box ---- */

/* Within a transaction, after the row is gone: a trigger has made the record. */
static int complete_record(struct store *s, const char *id, const struct store_end *end,
                           struct err *e)
{
    _cleanup_stmt_ sqlite3_stmt *st = NULL;
    _cleanup_free_ char *exit_text = NULL;
    size_t cut = end->n_logs > HISTORY_LOGS_BYTES ? end->n_logs - HISTORY_LOGS_BYTES : 0;
    _cleanup_free_ char *logs = strndup(end->logs ? end->logs + cut : "", end->n_logs - cut);
    int r = !logs ? err_oom(e) : end->exit ? jx_dump(end->exit, &exit_text, NULL, e) : 0;

    if (r == 0)
        r = store_prepare(s, "UPDATE records SET exit = ?2, logs = ?3 WHERE id = ?1", &st, e);
    if (r < 0)
        return r;
    str_make_utf8(logs);
    (void)sqlite3_bind_text(st, 1, id, -1, SQLITE_STATIC);
    (void)sqlite3_bind_text(st, 2, exit_text ? exit_text : "null", -1, SQLITE_STATIC);
    (void)sqlite3_bind_text(st, 3, logs, -1, SQLITE_STATIC);
    return store_step(s, st, e);
}

int store_remove_row(struct store *s, const char *id, const struct store_end *end, struct err *e)
{
    _cleanup_stmt_ sqlite3_stmt *st = NULL;
    _cleanup_free_ char *cause = strdup(end->cause ? end->cause : "");
    struct state_change c = {.id = id, .after = BH_STATE_DESTROYED, .cause = cause};
    int r = cause ? read_state(s, &c, e) : err_oom(e);

    if (r == -ERR_NOT_FOUND)
        return 0;
    if (r < 0)
        return r;
    str_make_utf8(cause);
    r = write_state(s, &c, NULL, e);
    if (r == 0)
        r = store_prepare(s, "DELETE FROM boxes WHERE id = ?1", &st, e);
    if (r < 0)
        return r;
    (void)sqlite3_bind_text(st, 1, id, -1, SQLITE_STATIC);
    r = store_step(s, st, e);
    if (r == 0)
        r = complete_record(s, id, end, e);
    if (r == 0 && !c.made)
        r = store_restore_name(s, id, e);
    return r < 0 ? r : store_drop_old_records(s, s->records_for_ms, NULL, e);
}

/* One transaction. */
static int remove_with_record(struct store *s, const char *id, const struct store_end *end,
                              struct err *e)
{
    int r = store_begin(s, e);

    return r < 0 ? r : store_commit(s, store_remove_row(s, id, end, e), e);
}

int store_remove(struct store *s, const char *id, const struct store_end *end, struct err *e)
{
    int r = remove_with_record(s, id, end, e);

    if (r == -ERR_EXHAUSTED && store_spend_reserve(s)) {
        r = remove_with_record(s, id, end, e);
        store_fill_reserve(s);
    }
    if (r < 0)
        return r;
    store_forget_log(s);
    store_keep_reserve(s);
    return 0;
}
