#pragma once
/*
 * store_db: the store's database from the inside, for store*.c and history.c alone. A struct store
 * is used by one thread at a time.
 */
#include <sqlite3.h>

#include "lib/box/history.h"
#include "lib/box/store.h"

#define STORE_ACTOR_BYTES 64
#define STORE_BUSY_MS 10000

struct store {
    sqlite3 *db;
    char *dir;                     /* the state directory */
    char actor[STORE_ACTOR_BYTES]; /* of the events that are written */
    int64_t (*now_ms)(void *arg);  /* NULL: the real clock */
    void *now_arg;
    int64_t records_for_ms;
    const struct debug *debug; /* or NULL */
    int64_t busy_since_ms;     /* while a call waits for another process: since when */
};

static inline void store_finalize_p(sqlite3_stmt **st)
{
    (void)sqlite3_finalize(*st);
}
#define _cleanup_stmt_ __attribute__((cleanup(store_finalize_p)))

/* Makes the tables of an empty store, upgrades an older one, refuses a newer one. */
int store_make_schema(struct store *s, struct err *e);
/* Makes an error of what the database said last. */
int store_fail(struct store *s, const char *what, struct err *e);
int store_exec(struct store *s, const char *sql, struct err *e);
int store_prepare(struct store *s, const char *sql, sqlite3_stmt **ret, struct err *e);
int store_begin(struct store *s, struct err *e); /* a transaction that may write */
/* From now on calls wait for other processes, for STORE_BUSY_MS at most. */
void store_set_patience(struct store *s);
/* Ends it: commits if r is not negative. Returns r, or the error of the commit. */
int store_commit(struct store *s, int r, struct err *e);
/* Runs a statement that returns no row; finalizes nothing. */
int store_step(struct store *s, sqlite3_stmt *st, struct err *e);
/* Does a query with one text find a row? 1, 0 or an error. */
int store_has_any(struct store *s, const char *sql, const char *text, struct err *e);
/* Runs a statement that changes exactly the row called id. */
int store_change_row(struct store *s, sqlite3_stmt *st, const char *id, struct err *e);

const char *store_column_text(sqlite3_stmt *st, int i); /* "" for NULL */
json_t *store_column_json(sqlite3_stmt *st, int i, struct err *e);
int store_column_copy(sqlite3_stmt *st, int i, char **ret, struct err *e); /* NULL for NULL */

/* Within a transaction: gives a box one more key. */
int store_insert_key(struct store *s, const char *id, const char *key, struct err *e);

/* Makes the reserve as large as there is room for, up to STORE_RESERVE_BYTES. */
void store_fill_reserve(struct store *s);
/* Completes the reserve if there is plenty of room: otherwise the process that has just spent it
 * needs the room. */
void store_keep_reserve(struct store *s);
/* True: the disk has room for the next transaction. store_fill_reserve() when that is done. */
bool store_spend_reserve(struct store *s);

/*
 * Appends an event to a box's history, within the caller's transaction; forgets the oldest beyond
 * HISTORY_EVENTS_MAX. 1: an event with this id is there already and nothing was written.
 */
struct store_event {
    const char *box_id;
    const char *id; /* NULL: random */
    const char *kind;
    int64_t time_ms;
    enum bh_state before, after;
    const char *cause;
    const char *actor; /* NULL: the store's */
};
int store_write_event(struct store *s, const struct store_event *event, struct err *e);
int store_check_event_id(const char *event_id, struct err *e); /* NULL is one too */
/* Has the box an event with this id? 1, 0 or an error. */
int store_has_event(struct store *s, const char *box_id, const char *event_id, struct err *e);

/* Within the caller's transaction; see store_add() and store_remove(). */
int store_insert_row(struct store *s, const char *name, const json_t *spec,
                     char ret_id[BOX_ID_BYTES], struct err *e);
int store_change_state(struct store *s, const char *id, enum bh_state state, const char *cause,
                       struct err *e);
int store_remove_row(struct store *s, const char *id, const struct store_end *end, struct err *e);
/* The box of this record was to take another's place: that one has its name again. */
int store_restore_name(struct store *s, const char *id, struct err *e);

/* Within the caller's transaction: forgets records that are too old, a batch of them at most. */
int store_drop_old_records(struct store *s, int64_t keep_ms, int64_t *ret_n, struct err *e);
