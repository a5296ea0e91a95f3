#include "lib/box/store.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sqlite3.h>
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
#include "lib/util/socket.h"

#define STORE_SCHEMA 2 /* 2: boxes have their project */
#define STORE_BUSY_MS 10000
#define STORE_LOCK_POLL_MS 20 /* flock has no descriptor to poll */

struct store {
    sqlite3 *db;
    char *dir; /* the state directory */
};

static void finalize_p(sqlite3_stmt **st)
{
    (void)sqlite3_finalize(*st);
}
#define _cleanup_stmt_ __attribute__((cleanup(finalize_p)))

static int store_fail(struct store *s, const char *what, struct err *e)
{
    int rc = sqlite3_errcode(s->db);
    enum err_code code = rc == SQLITE_BUSY || rc == SQLITE_LOCKED ? ERR_UNAVAILABLE
                         : rc == SQLITE_FULL                      ? ERR_EXHAUSTED
                         : rc == SQLITE_READONLY || rc == SQLITE_CANTOPEN || rc == SQLITE_PERM
                             ? ERR_DENIED
                         : rc == SQLITE_CORRUPT || rc == SQLITE_NOTADB ? ERR_DATA_LOSS
                                                                       : ERR_INTERNAL;

    return err_set(e, code, "the store in '%s': %s: %s", s->dir, what, sqlite3_errmsg(s->db));
}

static int exec_sql(struct store *s, const char *sql, struct err *e)
{
    return sqlite3_exec(s->db, sql, NULL, NULL, NULL) == SQLITE_OK ? 0 : store_fail(s, sql, e);
}

static int store_prepare(struct store *s, const char *sql, sqlite3_stmt **ret, struct err *e)
{
    if (sqlite3_prepare_v2(s->db, sql, -1, ret, NULL) != SQLITE_OK)
        return store_fail(s, "prepare", e);
    return 0;
}

/* ---- opening ---- */

static int read_version(struct store *s, int *ret, struct err *e)
{
    _cleanup_stmt_ sqlite3_stmt *st = NULL;
    int r = store_prepare(s, "PRAGMA user_version", &st, e);

    if (r < 0)
        return r;
    if (sqlite3_step(st) != SQLITE_ROW)
        return store_fail(s, "user_version", e);
    *ret = sqlite3_column_int(st, 0);
    return 0;
}

static int make_schema(struct store *s, struct err *e)
{
    int version = 0;
    int r = read_version(s, &version, e);

    if (r < 0 || version == STORE_SCHEMA)
        return r;
    if (version < 0 || version > STORE_SCHEMA)
        return err_set(e, ERR_PRECONDITION,
                       "the store in '%s' has version %d; this program knows version %d", s->dir,
                       version, STORE_SCHEMA);
    if (version == 0) {
        r = exec_sql(s, "PRAGMA journal_mode=WAL", e);
        if (r == 0)
            r = exec_sql(s,
                         "BEGIN IMMEDIATE;"
                         "CREATE TABLE boxes(id TEXT PRIMARY KEY, name TEXT NOT NULL UNIQUE,"
                         " state TEXT NOT NULL, cause TEXT NOT NULL DEFAULT '',"
                         " created_ms INTEGER NOT NULL, state_since_ms INTEGER NOT NULL,"
                         " deadline_ms INTEGER NOT NULL DEFAULT 0,"
                         " made INTEGER NOT NULL DEFAULT 0,"
                         " spec TEXT NOT NULL, agent TEXT NOT NULL DEFAULT '{}',"
                         " ports TEXT NOT NULL DEFAULT '{}') STRICT;"
                         "PRAGMA user_version=1;"
                         "COMMIT",
                         e);
    }
    /* NULL: a box of version 1, without a known project. */
    return r < 0 ? r
                 : exec_sql(s,
                            "BEGIN IMMEDIATE;"
                            "ALTER TABLE boxes ADD COLUMN project TEXT;"
                            "ALTER TABLE boxes ADD COLUMN remote TEXT NOT NULL DEFAULT '';"
                            "PRAGMA user_version=2;"
                            "COMMIT",
                            e);
}

/* Serializes opening: two processes that switch the journal mode at once get errors instead of
 * waiting. */
static int open_db(struct store *s, struct err *e)
{
    _cleanup_free_ char *path = NULL;
    _cleanup_free_ char *lock_path = NULL;
    _cleanup_close_ int lock = -1;

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
    (void)sqlite3_busy_timeout(s->db, STORE_BUSY_MS);
    (void)chmod(path, 0600);
    return make_schema(s, e);
}

int store_open(const char *state_dir, struct store **ret, struct err *e)
{
    struct store *s = calloc(1, sizeof(*s));
    int r;

    if (!s)
        return err_oom(e);
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
    memset(row, 0, sizeof(*row));
}

bool box_row_is_live(const struct box_row *row)
{
    return row->state == BH_STATE_RUNNING || (row->state == BH_STATE_ERROR && row->deadline_ms);
}

#define ROW_COLUMNS \
    "id, name, state, cause, created_ms, state_since_ms, deadline_ms, made, spec, agent, ports, " \
    "project, remote"

static json_t *column_json(sqlite3_stmt *st, int i, struct err *e)
{
    json_t *v = NULL;
    const char *text = (const char *)sqlite3_column_text(st, i);
    int r = text ? jx_parse(text, (size_t)sqlite3_column_bytes(st, i), &v, e) : -1;

    if (r < 0)
        (void)err_set(e, ERR_DATA_LOSS, "the store holds something that is not JSON");
    return r < 0 ? NULL : v;
}

static const char *column_text(sqlite3_stmt *st, int i)
{
    const char *text = (const char *)sqlite3_column_text(st, i);

    return text ? text : "";
}

static int read_row(sqlite3_stmt *st, struct box_row *ret, struct err *e)
{
    struct box_row row = {0};
    bool is_known, has_texts;

    (void)snprintf(row.id, sizeof(row.id), "%s", column_text(st, 0));
    row.name = strdup(column_text(st, 1));
    row.state = lifecycle_parse(column_text(st, 2));
    row.cause = strdup(column_text(st, 3));
    row.created_ms = sqlite3_column_int64(st, 4);
    row.state_since_ms = sqlite3_column_int64(st, 5);
    row.deadline_ms = sqlite3_column_int64(st, 6);
    row.made = sqlite3_column_int(st, 7) != 0;
    row.spec = column_json(st, 8, e);
    row.agent = column_json(st, 9, e);
    row.ports = column_json(st, 10, e);
    is_known = sqlite3_column_type(st, 11) != SQLITE_NULL;
    row.project = is_known ? strdup(column_text(st, 11)) : NULL;
    row.remote = strdup(column_text(st, 12));
    has_texts = row.name && row.cause && row.remote && (row.project || !is_known);
    if (!has_texts || !row.spec || !row.agent || !row.ports) {
        int r = !has_texts ? err_oom(e) : -ERR_DATA_LOSS;

        box_row_done(&row);
        return r;
    }
    *ret = row;
    return 0;
}

static int find_by(struct store *s, const char *sql, const char *what, const char *key,
                   struct box_row *ret, struct err *e)
{
    _cleanup_stmt_ sqlite3_stmt *st = NULL;
    int r = store_prepare(s, sql, &st, e);

    if (r < 0)
        return r;
    (void)sqlite3_bind_text(st, 1, key, -1, SQLITE_STATIC);
    r = sqlite3_step(st);
    if (r == SQLITE_DONE)
        return err_field(e, ERR_NOT_FOUND, what, "there is no box with the %s '%.64s'", what, key);
    if (r != SQLITE_ROW)
        return store_fail(s, "read", e);
    return read_row(st, ret, e);
}

int store_find(struct store *s, const char *name, struct box_row *ret, struct err *e)
{
    return find_by(s, "SELECT " ROW_COLUMNS " FROM boxes WHERE name = ?1", "name", name, ret, e);
}

int store_get(struct store *s, const char *id, struct box_row *ret, struct err *e)
{
    return find_by(s, "SELECT " ROW_COLUMNS " FROM boxes WHERE id = ?1", "id", id, ret, e);
}

/* Reads the ids first: fn may change the store, and a row that is gone by then is skipped. */
int store_list(struct store *s, int (*fn)(void *arg, const struct box_row *row), void *arg,
               struct err *e)
{
    _cleanup_stmt_ sqlite3_stmt *st = NULL;
    _cleanup_json_ json_t *ids = json_array();
    json_t *id;
    size_t i;
    int r;

    if (!ids)
        return err_oom(e);
    r = store_prepare(s, "SELECT id FROM boxes ORDER BY name", &st, e);
    if (r < 0)
        return r;
    while ((r = sqlite3_step(st)) == SQLITE_ROW)
        if (json_array_append_new(ids, json_string(column_text(st, 0))) < 0)
            return err_oom(e);
    if (r != SQLITE_DONE)
        return store_fail(s, "read", e);

    json_array_foreach (ids, i, id) {
        struct box_row row = {0};

        r = store_get(s, json_string_value(id), &row, e);
        if (r == -ERR_NOT_FOUND)
            continue;
        if (r < 0)
            return r;
        r = fn(arg, &row);
        box_row_done(&row);
        if (r != 0)
            return r;
    }
    return 0;
}

/* Runs a statement that changes exactly the row called id. */
static int change_row(struct store *s, sqlite3_stmt *st, const char *id, struct err *e)
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
    return change_row(s, st, id, e);
}

int store_set_agent(struct store *s, const char *id, const json_t *agent, struct err *e)
{
    return set_json(s, "UPDATE boxes SET agent = ?2 WHERE id = ?1", id, agent, e);
}

int store_set_project(struct store *s, const char *id, const char *path, const char *remote,
                      struct err *e)
{
    _cleanup_stmt_ sqlite3_stmt *st = NULL;
    int r = store_prepare(s, "UPDATE boxes SET project = ?2, remote = ?3 WHERE id = ?1", &st, e);

    if (r < 0)
        return r;
    (void)sqlite3_bind_text(st, 1, id, -1, SQLITE_STATIC);
    (void)sqlite3_bind_text(st, 2, path, -1, SQLITE_STATIC);
    (void)sqlite3_bind_text(st, 3, remote, -1, SQLITE_STATIC);
    return change_row(s, st, id, e);
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
    return change_row(s, st, id, e);
}

int store_set_deadline(struct store *s, const char *id, int64_t deadline_ms, struct err *e)
{
    _cleanup_stmt_ sqlite3_stmt *st = NULL;
    int r = store_prepare(s, "UPDATE boxes SET deadline_ms = ?2 WHERE id = ?1", &st, e);

    if (r < 0)
        return r;
    (void)sqlite3_bind_text(st, 1, id, -1, SQLITE_STATIC);
    (void)sqlite3_bind_int64(st, 2, deadline_ms);
    return change_row(s, st, id, e);
}

int store_remove(struct store *s, const char *id, struct err *e)
{
    _cleanup_stmt_ sqlite3_stmt *st = NULL;
    int r = store_prepare(s, "DELETE FROM boxes WHERE id = ?1", &st, e);

    if (r < 0)
        return r;
    (void)sqlite3_bind_text(st, 1, id, -1, SQLITE_STATIC);
    return sqlite3_step(st) == SQLITE_DONE ? 0 : store_fail(s, "remove", e);
}

static int insert_row(struct store *s, const char *id, const char *name, const char *spec,
                      struct err *e)
{
    _cleanup_stmt_ sqlite3_stmt *st = NULL;
    int r = store_prepare(s,
                          "INSERT INTO boxes(id, name, state, created_ms, state_since_ms, spec)"
                          " VALUES(?1, ?2, 'requested', ?3, ?3, ?4)",
                          &st, e);

    if (r < 0)
        return r;
    (void)sqlite3_bind_text(st, 1, id, -1, SQLITE_STATIC);
    (void)sqlite3_bind_text(st, 2, name, -1, SQLITE_STATIC);
    (void)sqlite3_bind_int64(st, 3, clock_real_ms());
    (void)sqlite3_bind_text(st, 4, spec, -1, SQLITE_STATIC);
    r = sqlite3_step(st);
    if (r == SQLITE_CONSTRAINT)
        return err_field(e, ERR_EXISTS, "name", "there is a box called '%s' already", name);
    return r == SQLITE_DONE ? 0 : store_fail(s, "add", e);
}

int store_add(struct store *s, const char *name, const json_t *spec, struct box_row *ret,
              struct err *e)
{
    _cleanup_free_ char *text = NULL;
    char id[BOX_ID_BYTES];
    int r = io_random_hex((BOX_ID_BYTES - 1) / 2, id, e);

    if (r < 0)
        return r;
    r = jx_dump(spec, &text, NULL, e);
    if (r < 0)
        return r;
    r = insert_row(s, id, name, text, e);
    if (r < 0)
        return r;
    return store_get(s, id, ret, e);
}

/* ---- states ---- */

static int update_state(struct store *s, const char *id, enum bh_state state, const char *cause,
                        struct err *e)
{
    _cleanup_stmt_ sqlite3_stmt *st = NULL;
    _cleanup_free_ char *text = strdup(cause ? cause : "");
    int r = store_prepare(s,
                          "UPDATE boxes SET state = ?2, cause = ?3, state_since_ms = ?4,"
                          " made = made OR ?2 = 'running',"
                          " deadline_ms = CASE WHEN ?2 IN ('stopped', 'destroying', 'destroyed')"
                          " OR (?2 = 'error' AND state = 'stopping') THEN 0"
                          " ELSE deadline_ms END WHERE id = ?1",
                          &st, e);

    if (r < 0)
        return r;
    if (!text)
        return err_oom(e);
    str_make_utf8(text); /* it may contain text of a box */
    (void)sqlite3_bind_text(st, 1, id, -1, SQLITE_STATIC);
    (void)sqlite3_bind_text(st, 2, bh_state_name(state), -1, SQLITE_STATIC);
    (void)sqlite3_bind_text(st, 3, text, -1, SQLITE_STATIC);
    (void)sqlite3_bind_int64(st, 4, clock_real_ms());
    return change_row(s, st, id, e);
}

static int check_edge_and_update(struct store *s, const char *id, enum bh_state state,
                                 const char *cause, struct err *e)
{
    struct box_row row = {0};
    int r = store_get(s, id, &row, e);
    enum bh_state from = row.state;

    box_row_done(&row);
    if (r < 0)
        return r;
    if (!lifecycle_is_legal(from, state))
        return err_field(e, ERR_PRECONDITION, "state", "a box that is %s can't become %s",
                         bh_state_name(from), bh_state_name(state));
    return update_state(s, id, state, cause, e);
}

int store_set_state(struct store *s, const char *id, enum bh_state state, const char *cause,
                    struct err *e)
{
    int r = exec_sql(s, "BEGIN IMMEDIATE", e);

    if (r < 0)
        return r;
    r = check_edge_and_update(s, id, state, cause, e);
    if (r == 0)
        r = exec_sql(s, "COMMIT", e);
    if (r < 0)
        (void)exec_sql(s, "ROLLBACK", NULL);
    return r;
}

/* ---- locks ---- */

static int lock_path(struct store *s, const char *name, char **ret, struct err *e)
{
    _cleanup_free_ char *dir = NULL;
    int r;

    if (asprintf(&dir, "%s/locks", s->dir) < 0)
        return err_oom(e);
    r = io_mkdir_p(dir, 0700, e);
    if (r < 0)
        return r;
    return asprintf(ret, "%s/%s", dir, name) < 0 ? err_oom(e) : 0;
}

/* 1: locked; 0: another process has it. A lock on a file that was removed meanwhile locks
 * nothing. */
static int try_lock(const char *path, int *ret_fd, struct err *e)
{
    _cleanup_close_ int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    struct stat mine;
    struct stat there;

    if (fd < 0)
        return err_sys(e, errno, "open '%s'", path);
    if (flock(fd, LOCK_EX | LOCK_NB) < 0)
        return errno == EWOULDBLOCK || errno == EINTR ? 0 : err_sys(e, errno, "lock '%s'", path);
    if (fstat(fd, &mine) < 0 || stat(path, &there) < 0 || mine.st_ino != there.st_ino)
        return 0;
    *ret_fd = TAKE_FD(fd);
    return 1;
}

int store_lock_name(struct store *s, const char *name, int64_t deadline_mono_ms, int cancel_fd,
                    int *ret_fd, struct err *e)
{
    _cleanup_free_ char *path = NULL;
    int r = lock_path(s, name, &path, e);

    if (r < 0)
        return r;
    for (;;) {
        r = try_lock(path, ret_fd, e);
        if (r != 0)
            return r < 0 ? r : 0;
        if (clock_until_ms(deadline_mono_ms) == 0)
            return err_field(e, ERR_DEADLINE, "name", "another command is at work on the box '%s'",
                             name);
        if (socket_wait_canceled(cancel_fd, STORE_LOCK_POLL_MS))
            return err_set(e, ERR_CANCELED, "canceled while waiting for the box '%s'", name);
    }
}

void store_forget_lock(struct store *s, const char *name)
{
    _cleanup_free_ char *path = NULL;

    if (lock_path(s, name, &path, NULL) == 0)
        (void)unlink(path);
}
