#include "lib/box/store.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/io.h"
#include "common/jsonx.h"
#include "common/str.h"
#include "lib/box/lifecycle.h"
#include "lib/box/store_db.h"

/* ---- the database ---- */

int store_fail(struct store *s, const char *what, struct err *e)
{
    int rc = sqlite3_errcode(s->db);
    bool is_full =
        rc == SQLITE_FULL || (rc == SQLITE_IOERR && sqlite3_system_errno(s->db) == ENOSPC);
    enum err_code code = rc == SQLITE_BUSY || rc == SQLITE_LOCKED ? ERR_UNAVAILABLE
                         : is_full                                ? ERR_EXHAUSTED
                         : rc == SQLITE_READONLY || rc == SQLITE_CANTOPEN || rc == SQLITE_PERM
                             ? ERR_DENIED
                         : rc == SQLITE_CORRUPT || rc == SQLITE_NOTADB ? ERR_DATA_LOSS
                                                                       : ERR_INTERNAL;

    return err_set(e, code, "the store in '%s': %s: %s", s->dir, what, sqlite3_errmsg(s->db));
}

int store_exec(struct store *s, const char *sql, struct err *e)
{
    return sqlite3_exec(s->db, sql, NULL, NULL, NULL) == SQLITE_OK ? 0 : store_fail(s, sql, e);
}

int store_prepare(struct store *s, const char *sql, sqlite3_stmt **ret, struct err *e)
{
    if (sqlite3_prepare_v2(s->db, sql, -1, ret, NULL) != SQLITE_OK)
        return store_fail(s, "prepare", e);
    return 0;
}

int store_step(struct store *s, sqlite3_stmt *st, struct err *e)
{
    return sqlite3_step(st) == SQLITE_DONE ? 0 : store_fail(s, "write", e);
}

int store_begin(struct store *s, struct err *e)
{
    return store_exec(s, "BEGIN IMMEDIATE", e);
}

int store_commit(struct store *s, int r, struct err *e)
{
    if (r >= 0 && store_exec(s, "COMMIT", e) == 0)
        return r;
    if (r >= 0)
        r = store_fail(s, "commit", e);
    (void)store_exec(s, "ROLLBACK", NULL);
    return r;
}

void store_set_debug(struct store *s, const struct debug *d)
{
    s->debug = d;
}

void store_set_actor(struct store *s, const char *actor)
{
    (void)snprintf(s->actor, sizeof(s->actor), "%s", actor);
    str_make_utf8(s->actor);
}

const char *store_actor(const struct store *s)
{
    return s->actor;
}

void store_set_clock(struct store *s, int64_t (*now_ms)(void *arg), void *arg)
{
    s->now_ms = now_ms;
    s->now_arg = arg;
}

int64_t store_now_ms(const struct store *s)
{
    return s->now_ms ? s->now_ms(s->now_arg) : clock_real_ms();
}

void store_set_records_for(struct store *s, int64_t keep_ms)
{
    s->records_for_ms = keep_ms;
}

int64_t store_records_for(const struct store *s)
{
    return s->records_for_ms;
}

/* ---- opening ---- */

/* Of SQLite's own waits each is longer than the one before, so that of many processes the newest
 * comes first and the oldest gives up. */
static int wait_for_others(void *arg, int n_tries)
{
    struct store *s = arg;
    struct timespec pause = {.tv_nsec = (1 + (getpid() + n_tries) % 4) * 1000000L};

    if (n_tries == 0)
        s->busy_since_ms = clock_mono_ms();
    if (clock_mono_ms() - s->busy_since_ms >= STORE_BUSY_MS)
        return 0;
    (void)nanosleep(&pause, NULL);
    return 1;
}

void store_set_patience(struct store *s)
{
    (void)sqlite3_busy_handler(s->db, wait_for_others, s);
}

/* The SQL function has_directory(ID). */
static void has_directory(sqlite3_context *c, int n, sqlite3_value **values)
{
    const struct store *s = sqlite3_user_data(c);
    const char *id = (const char *)sqlite3_value_text(values[0]);
    _cleanup_free_ char *path = NULL;

    (void)n;
    if (asprintf(&path, "%s/boxes/%s", s->dir, id ? id : "") < 0) {
        sqlite3_result_error_nomem(c);
        return;
    }
    sqlite3_result_int(c, access(path, F_OK) == 0);
}

/* Serializes opening: two processes that switch the journal mode at once get errors instead of
 * waiting. */
static int open_db(struct store *s, struct err *e)
{
    _cleanup_free_ char *path = NULL;
    _cleanup_free_ char *lock_path = NULL;
    _cleanup_close_ int lock = -1;
    int r;

    if (asprintf(&path, "%s/store.db", s->dir) < 0 ||
        asprintf(&lock_path, "%s/store.lock", s->dir) < 0)
        return err_oom(e);
    lock = open(lock_path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (lock < 0)
        return err_sys(e, errno, "open '%s'", lock_path);
    while (flock(lock, LOCK_EX) < 0)
        if (errno != EINTR)
            return err_sys(e, errno, "lock '%s'", lock_path);

    if (sqlite3_open_v2(path, &s->db,
                        SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_FULLMUTEX,
                        NULL) != SQLITE_OK)
        return s->db ? store_fail(s, "open", e) : err_oom(e);
    store_set_patience(s);
    (void)chmod(path, 0600);
    if (sqlite3_create_function(s->db, "has_directory", 1, SQLITE_UTF8 | SQLITE_DIRECTONLY, s,
                                has_directory, NULL, NULL) != SQLITE_OK)
        return store_fail(s, "open", e);
    r = store_exec(s, "PRAGMA secure_delete=ON", e); /* variables may be secrets */
    if (r == 0) /* KiB; a daemon has several stores open, and the kernel has the pages too */
        r = store_exec(s, "PRAGMA cache_size=-256", e);
    if (r == 0)
        r = store_make_schema(s, e);
    if (r == 0)
        store_keep_reserve(s);
    return r;
}

int store_open(const char *state_dir, struct store **ret, struct err *e)
{
    struct store *s = calloc(1, sizeof(*s));
    int r;

    if (!s)
        return err_oom(e);
    store_set_actor(s, "library");
    s->records_for_ms = HISTORY_RECORDS_FOR_MS;
    s->dir = strdup(state_dir);
    r = s->dir ? open_db(s, e) : err_oom(e);
    if (r < 0) {
        (void)store_close(s);
        return r;
    }
    *ret = s;
    return 0;
}

struct store *store_close(struct store *s)
{
    if (!s)
        return NULL;
    (void)sqlite3_close(s->db);
    free(s->dir);
    free(s);
    return NULL;
}

/* ---- rows ---- */

void box_row_done(struct box_row *row)
{
    if (!row)
        return;
    free(row->name);
    free(row->cause);
    free(row->project);
    free(row->remote);
    json_decref(row->spec);
    json_decref(row->agent);
    json_decref(row->ports);
    free(row->keys);
    free(row->transcript);
    free(row->snapshot);
    memset(row, 0, sizeof(*row));
}

bool box_row_is_paused(const struct box_row *row)
{
    return row->state == BH_STATE_PAUSING || row->state == BH_STATE_PAUSED ||
           row->state == BH_STATE_RESUMING;
}

bool box_row_is_live(const struct box_row *row)
{
    return row->state == BH_STATE_RUNNING || box_row_is_paused(row) ||
           (row->state == BH_STATE_ERROR && row->deadline_ms);
}

/* Keys are bytes: in JSON as hex digits. */
#define ROW_COLUMNS \
    "id, name, state, cause, created_ms, state_since_ms, deadline_ms, made, spec, agent, ports, " \
    "project, remote, updated_ms, paused_ms, resumed_ms, used_ms, transcript, " \
    "(SELECT json_group_array(hex(key)) FROM keys WHERE box_id = boxes.id), " \
    "(SELECT json_object('name', name, 'id', id) FROM snapshots WHERE box_id = boxes.id" \
    " AND state = 'ready' AND temporary = 0 ORDER BY created_ms DESC, rowid DESC LIMIT 1)"

json_t *store_column_json(sqlite3_stmt *st, int i, struct err *e)
{
    json_t *v = NULL;
    const char *text = (const char *)sqlite3_column_text(st, i);
    int r;

    if (text && str_eq(text, "{}") && (v = json_object())) /* as most are; it saves a parser */
        return v;
    r = text ? jx_parse(text, (size_t)sqlite3_column_bytes(st, i), &v, e) : -1;

    if (r < 0)
        (void)err_set(e, ERR_DATA_LOSS, "the store holds something that is not JSON");
    return r < 0 ? NULL : v;
}

const char *store_column_text(sqlite3_stmt *st, int i)
{
    const char *text = (const char *)sqlite3_column_text(st, i);

    return text ? text : "";
}

int store_column_copy(sqlite3_stmt *st, int i, char **ret, struct err *e)
{
    bool is_null = sqlite3_column_type(st, i) == SQLITE_NULL;

    *ret = is_null ? NULL : strdup(store_column_text(st, i));
    return is_null || *ret ? 0 : err_oom(e);
}

static int read_row(sqlite3_stmt *st, struct box_row *ret, struct err *e)
{
    struct box_row row = {0};
    int r = 0;

    (void)snprintf(row.id, sizeof(row.id), "%s", store_column_text(st, 0));
    row.state = lifecycle_parse(store_column_text(st, 2));
    row.times.created_ms = sqlite3_column_int64(st, 4);
    row.state_since_ms = sqlite3_column_int64(st, 5);
    row.deadline_ms = sqlite3_column_int64(st, 6);
    row.made = sqlite3_column_int(st, 7) != 0;
    row.times.updated_ms = sqlite3_column_int64(st, 13);
    row.times.paused_ms = sqlite3_column_int64(st, 14);
    row.times.resumed_ms = sqlite3_column_int64(st, 15);
    row.times.used_ms = sqlite3_column_int64(st, 16);
    row.spec = store_column_json(st, 8, e);
    row.agent = store_column_json(st, 9, e);
    row.ports = store_column_json(st, 10, e);
    if (!row.spec || !row.agent || !row.ports)
        r = -ERR_DATA_LOSS;
    if (r == 0)
        r = store_column_copy(st, 1, &row.name, e);
    if (r == 0)
        r = store_column_copy(st, 3, &row.cause, e);
    if (r == 0)
        r = store_column_copy(st, 11, &row.project, e);
    if (r == 0)
        r = store_column_copy(st, 12, &row.remote, e);
    if (r == 0)
        r = store_column_copy(st, 17, &row.transcript, e);
    if (r == 0)
        r = store_column_copy(st, 18, &row.keys, e);
    if (r == 0)
        r = store_column_copy(st, 19, &row.snapshot, e);
    if (r < 0) {
        box_row_done(&row);
        return r;
    }
    *ret = row;
    return 0;
}

/* *ret_found: is there a row? */
static int read_one(struct store *s, sqlite3_stmt *st, bool *ret_found, struct box_row *ret,
                    struct err *e)
{
    int rc = sqlite3_step(st);

    *ret_found = rc == SQLITE_ROW;
    return *ret_found ? read_row(st, ret, e) : rc == SQLITE_DONE ? 0 : store_fail(s, "read", e);
}

static int find_by(struct store *s, const char *sql, const char *what, const char *value,
                   struct box_row *ret, struct err *e)
{
    _cleanup_stmt_ sqlite3_stmt *st = NULL;
    bool is_there = false;
    int r = store_prepare(s, sql, &st, e);

    if (r < 0)
        return r;
    (void)sqlite3_bind_text(st, 1, value, -1, SQLITE_STATIC);
    r = read_one(s, st, &is_there, ret, e);
    return r < 0 || is_there ? r : store_not_found(s, what, value, e);
}

int store_find(struct store *s, const char *name, struct box_row *ret, struct err *e)
{
    return find_by(s, "SELECT " ROW_COLUMNS " FROM boxes WHERE name = ?1", "name", name, ret, e);
}

int store_get(struct store *s, const char *id, struct box_row *ret, struct err *e)
{
    return find_by(s, "SELECT " ROW_COLUMNS " FROM boxes WHERE id = ?1", "id", id, ret, e);
}

int store_find_key(struct store *s, const char *key, struct box_row *ret, struct err *e)
{
    _cleanup_stmt_ sqlite3_stmt *st = NULL;
    bool is_there = false;
    int r = store_prepare(
        s, "SELECT " ROW_COLUMNS " FROM boxes WHERE id = (SELECT box_id FROM keys WHERE key = ?1)",
        &st, e);

    if (r < 0)
        return r;
    (void)sqlite3_bind_blob(st, 1, key, (int)strlen(key), SQLITE_STATIC);
    r = read_one(s, st, &is_there, ret, e);
    return r < 0 || is_there
               ? r
               : err_field(e, ERR_NOT_FOUND, "key", "there is no box with the key '%.64s'", key);
}

/* ---- lists: in batches, so that fn may use the store, and a thousand rows are not in memory at once ---- */

#define LIST_BATCH 32

struct row_list {
    struct box_row rows[LIST_BATCH];
    size_t n;
};

static void row_list_done(struct row_list *l)
{
    while (l->n)
        box_row_done(&l->rows[--l->n]);
}

/* A spec that is not JSON passes: its row is an error of the list. */
#define SQL_HAS_LABEL \
    "CASE WHEN json_valid(spec) THEN EXISTS(SELECT 1 FROM json_each(spec, '$.labels')" \
    " WHERE value = ?3 OR (instr(?3, '=') = 0 AND substr(value, 1, length(?3) + 1) = ?3 || '='))" \
    " ELSE 1 END"

/* The next rows: those behind ?1. */
static int read_batch(struct store *s, sqlite3_stmt *st, struct row_list *l, struct err *e)
{
    bool is_there = true;
    int r = 0;

    while (r == 0 && is_there && l->n < LIST_BATCH) {
        r = read_one(s, st, &is_there, &l->rows[l->n], e);
        l->n += r == 0 && is_there;
    }
    (void)sqlite3_reset(st); /* no transaction stays open while fn runs */
    return r;
}

int store_list_some(struct store *s, const struct store_filter *f,
                    int (*fn)(void *arg, struct box_row *row), void *arg, struct err *e)
{
    _cleanup_stmt_ sqlite3_stmt *st = NULL;
    bool is_full = true;
    int r = store_prepare(s,
                          "SELECT " ROW_COLUMNS " FROM boxes WHERE name > ?1"
                          " AND (?2 IS NULL OR instr(',' || ?2 || ',', ',' || state || ','))"
                          " AND (?3 IS NULL OR " SQL_HAS_LABEL ") ORDER BY name LIMIT ?4",
                          &st, e);

    if (r < 0)
        return r;
    (void)sqlite3_bind_text(st, 1, f->after ? f->after : "", -1, SQLITE_STATIC);
    (void)sqlite3_bind_text(st, 2, f->states, -1, SQLITE_STATIC);
    (void)sqlite3_bind_text(st, 3, f->label, -1, SQLITE_STATIC);
    (void)sqlite3_bind_int(st, 4, LIST_BATCH);
    while (r == 0 && is_full) {
        struct row_list l = {0};

        r = read_batch(s, st, &l, e);
        is_full = l.n == LIST_BATCH;
        if (is_full) /* before fn may take the row over */
            (void)sqlite3_bind_text(st, 1, l.rows[l.n - 1].name, -1, SQLITE_TRANSIENT);
        for (size_t i = 0; r == 0 && i < l.n; i++)
            r = fn(arg, &l.rows[i]);
        row_list_done(&l);
    }
    return r;
}

int store_list(struct store *s, int (*fn)(void *arg, struct box_row *row), void *arg, struct err *e)
{
    return store_list_some(s, &(struct store_filter){0}, fn, arg, e);
}

int store_change_row(struct store *s, sqlite3_stmt *st, const char *id, struct err *e)
{
    int rc = sqlite3_step(st);

    if (rc != SQLITE_DONE)
        return store_fail(s, "write", e);
    if (sqlite3_changes(s->db) != 1)
        return err_field(e, ERR_NOT_FOUND, "id", "there is no box with the id '%.64s'", id);
    return 0;
}

static int set_json(struct store *s, const char *sql, const char *id, const json_t *v,
                    struct err *e)
{
    _cleanup_stmt_ sqlite3_stmt *st = NULL;
    _cleanup_free_ char *text = NULL;
    int r = jx_dump(v, &text, NULL, e);

    if (r < 0)
        return r;
    r = store_prepare(s, sql, &st, e);
    if (r < 0)
        return r;
    (void)sqlite3_bind_text(st, 1, id, -1, SQLITE_STATIC);
    (void)sqlite3_bind_text(st, 2, text, -1, SQLITE_STATIC);
    (void)sqlite3_bind_int64(st, 3, store_now_ms(s));
    return store_change_row(s, st, id, e);
}

int store_set_agent(struct store *s, const char *id, const json_t *agent, struct err *e)
{
    return set_json(s,
                    "UPDATE boxes SET agent = ?2, updated_ms = MAX(updated_ms, ?3) WHERE id = ?1",
                    id, agent, e);
}

int store_set_project(struct store *s, const char *id, const char *path, const char *remote,
                      struct err *e)
{
    _cleanup_stmt_ sqlite3_stmt *st = NULL;
    int r = store_prepare(s,
                          "UPDATE boxes SET project = ?2, remote = ?3,"
                          " updated_ms = MAX(updated_ms, ?4) WHERE id = ?1",
                          &st, e);

    if (r < 0)
        return r;
    (void)sqlite3_bind_text(st, 1, id, -1, SQLITE_STATIC);
    (void)sqlite3_bind_text(st, 2, path, -1, SQLITE_STATIC);
    (void)sqlite3_bind_text(st, 3, remote, -1, SQLITE_STATIC);
    (void)sqlite3_bind_int64(st, 4, store_now_ms(s));
    return store_change_row(s, st, id, e);
}

int store_set_port(struct store *s, const char *id, uint16_t port, uint16_t host_port,
                   struct err *e)
{
    _cleanup_stmt_ sqlite3_stmt *st = NULL;
    char path[16];
    int r =
        store_prepare(s, "UPDATE boxes SET ports = json_set(ports, ?2, ?3) WHERE id = ?1", &st, e);

    if (r < 0)
        return r;
    (void)snprintf(path, sizeof(path), "$.\"%u\"", (unsigned)port);
    (void)sqlite3_bind_text(st, 1, id, -1, SQLITE_STATIC);
    (void)sqlite3_bind_text(st, 2, path, -1, SQLITE_STATIC);
    (void)sqlite3_bind_int(st, 3, host_port);
    return store_change_row(s, st, id, e);
}

int store_set_deadline(struct store *s, const char *id, int64_t deadline_ms, int64_t used_ms,
                       struct err *e)
{
    _cleanup_stmt_ sqlite3_stmt *st = NULL;
    int r = store_prepare(s,
                          "UPDATE boxes SET deadline_ms = ?2, used_ms = MAX(used_ms, ?3)"
                          " WHERE id = ?1",
                          &st, e);

    if (r < 0)
        return r;
    (void)sqlite3_bind_text(st, 1, id, -1, SQLITE_STATIC);
    (void)sqlite3_bind_int64(st, 2, deadline_ms);
    (void)sqlite3_bind_int64(st, 3, used_ms);
    return store_change_row(s, st, id, e);
}

int store_set_transcript(struct store *s, const char *id, const char *reference, struct err *e)
{
    _cleanup_stmt_ sqlite3_stmt *st = NULL;
    int r = store_prepare(s, "UPDATE boxes SET transcript = ?2 WHERE id = ?1", &st, e);

    if (r < 0)
        return r;
    (void)sqlite3_bind_text(st, 1, id, -1, SQLITE_STATIC);
    (void)sqlite3_bind_text(st, 2, reference, -1, SQLITE_STATIC);
    return store_change_row(s, st, id, e);
}

/* ---- a new box ---- */

int store_insert_row(struct store *s, const char *name, const json_t *spec,
                     char ret_id[BOX_ID_BYTES], struct err *e)
{
    _cleanup_stmt_ sqlite3_stmt *st = NULL;
    _cleanup_free_ char *text = NULL;
    struct store_event event = {.box_id = ret_id,
                                .kind = "state",
                                .time_ms = store_now_ms(s),
                                .after = BH_STATE_REQUESTED,
                                .cause = ""};
    int r = io_random_hex((BOX_ID_BYTES - 1) / 2, ret_id, e);

    if (r == 0)
        r = jx_dump(spec, &text, NULL, e);
    if (r == 0)
        r = store_prepare(s,
                          "INSERT INTO boxes(id, name, state, created_ms, state_since_ms,"
                          " updated_ms, used_ms, spec)"
                          " VALUES(?1, ?2, 'requested', ?3, ?3, ?3, ?3, ?4)",
                          &st, e);
    if (r < 0)
        return r;
    (void)sqlite3_bind_text(st, 1, ret_id, -1, SQLITE_STATIC);
    (void)sqlite3_bind_text(st, 2, name, -1, SQLITE_STATIC);
    (void)sqlite3_bind_int64(st, 3, event.time_ms);
    (void)sqlite3_bind_text(st, 4, text, -1, SQLITE_STATIC);
    r = sqlite3_step(st);
    if (r == SQLITE_CONSTRAINT)
        return err_field(e, ERR_EXISTS, "name", "there is a box called '%s' already", name);
    return r == SQLITE_DONE ? store_write_event(s, &event, e) : store_fail(s, "add", e);
}

int store_add(struct store *s, const char *name, const json_t *spec, const char *key,
              struct box_row *ret, struct err *e)
{
    char id[BOX_ID_BYTES];
    int r = store_begin(s, e);

    if (r < 0)
        return r;
    r = store_insert_row(s, name, spec, id, e);
    if (r == 0 && key)
        r = store_insert_key(s, id, key, e);
    r = store_commit(s, r, e);
    return r < 0 ? r : store_get(s, id, ret, e);
}

int store_has_any(struct store *s, const char *sql, const char *text, struct err *e)
{
    _cleanup_stmt_ sqlite3_stmt *st = NULL;
    int r = store_prepare(s, sql, &st, e);

    if (r < 0)
        return r;
    (void)sqlite3_bind_text(st, 1, text, -1, SQLITE_STATIC);
    r = sqlite3_step(st);
    return r == SQLITE_ROW ? 1 : r == SQLITE_DONE ? 0 : store_fail(s, "read", e);
}

int store_knows_provider(struct store *s, const char *name, struct err *e)
{
    return store_has_any(s,
                         "SELECT 1 FROM (SELECT spec FROM boxes UNION ALL SELECT spec FROM records)"
                         " WHERE json_extract(spec, '$.provider') = ?1",
                         name, e);
}
