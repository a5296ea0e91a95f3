/* store_replace: the rows of a box that is gone and of the one that takes its place. */
#include "common/cleanup.h"
#include "lib/box/store_db.h"

/* Runs a statement with up to two texts. */
static int run_with(struct store *s, const char *sql, const char *first, const char *second,
                    struct err *e)
{
    _cleanup_stmt_ sqlite3_stmt *st = NULL;
    int r = store_prepare(s, sql, &st, e);

    if (r < 0)
        return r;
    (void)sqlite3_bind_text(st, 1, first, -1, SQLITE_STATIC);
    if (second)
        (void)sqlite3_bind_text(st, 2, second, -1, SQLITE_STATIC);
    return store_step(s, st, e);
}

static int replace_row(struct store *s, const struct box_row *old, const json_t *spec,
                       char ret_id[BOX_ID_BYTES], struct err *e)
{
    int r = run_with(s, "UPDATE boxes SET name = name || '" STORE_ASIDE "' WHERE id = ?1", old->id,
                     NULL, e);

    if (r == 0)
        r = store_insert_row(s, old->name, spec, ret_id, e);
    return r < 0 ? r
                 : run_with(s,
                            "UPDATE boxes SET (project, remote) = (SELECT project, remote FROM"
                            " boxes WHERE id = ?2) WHERE id = ?1",
                            ret_id, old->id, e);
}

int store_set_aside(struct store *s, const char *old_id, const json_t *spec, struct box_row *ret,
                    struct err *e)
{
    struct box_row old = {0};
    char id[BOX_ID_BYTES];
    int r = store_begin(s, e);

    if (r < 0)
        return r;
    r = store_get(s, old_id, &old, e);
    if (r == 0)
        r = replace_row(s, &old, spec, id, e);
    box_row_done(&old);
    r = store_commit(s, r, e);
    return r < 0 ? r : store_get(s, id, ret, e);
}

int store_restore_name(struct store *s, const char *id, struct err *e)
{
    return run_with(s,
                    "UPDATE boxes SET name = (SELECT name FROM records WHERE id = ?1)"
                    " WHERE name = (SELECT name || '" STORE_ASIDE "' FROM records WHERE id = ?1)",
                    id, NULL, e);
}

static int write_take_place(struct store *s, const struct box_row *row, const char *old_id,
                            const struct store_end *end, struct err *e)
{
    struct store_event event = {.box_id = row->id,
                                .kind = "recreated",
                                .before = BH_STATE_RUNNING,
                                .after = BH_STATE_RUNNING};
    char cause[HISTORY_CAUSE_BYTES];
    int r = store_change_state(s, row->id, BH_STATE_RUNNING, "", e);

    if (r == 0)
        r = run_with(s, "UPDATE keys SET box_id = ?1 WHERE box_id = ?2", row->id, old_id, e);

    if (r == 0)
        r = store_remove_row(s, old_id, end, e);
    if (r == 0)
        r = run_with(s,
                     "UPDATE records SET name = (SELECT name FROM boxes WHERE id = ?1),"
                     " keys = (SELECT json_group_array(hex(key)) FROM keys WHERE box_id = ?1)"
                     " WHERE id = ?2",
                     row->id, old_id, e);
    (void)snprintf(cause, sizeof(cause), "it takes the place of %s: %s", old_id, end->cause);
    event.cause = cause;
    event.time_ms = store_now_ms(s);
    return r < 0 ? r : store_write_event(s, &event, e);
}

int store_take_place(struct store *s, const char *id, const char *old_id,
                     const struct store_end *end, struct err *e)
{
    struct box_row row = {0};
    int r = store_begin(s, e);

    if (r < 0)
        return r;
    r = store_get(s, id, &row, e);
    if (r == 0)
        r = write_take_place(s, &row, old_id, end, e);
    box_row_done(&row);
    r = store_commit(s, r < 0 ? r : 0, e);
    if (r == 0)
        store_forget_log(s);
    return r;
}

int store_forget_record(struct store *s, const char *id, struct err *e)
{
    return run_with(s, "DELETE FROM records WHERE id = ?1", id, NULL, e);
}
