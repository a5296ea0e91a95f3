/* store_schema: the tables of the store, and the upgrade of an older store. */
#include "common/err.h"
#include "lib/box/store_db.h"

/* 2: boxes have their project. 3: history (history.h), keys, claims. 4: snapshots. 5: access (store_access.h).
 * 6: layers. */
#define STORE_SCHEMA 6

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

/* The i-th makes version i + 1 of the one before. */
static const char *const schema_steps[STORE_SCHEMA] = {
    "CREATE TABLE boxes(id TEXT PRIMARY KEY, name TEXT NOT NULL UNIQUE,"
    " state TEXT NOT NULL, cause TEXT NOT NULL DEFAULT '',"
    " created_ms INTEGER NOT NULL, state_since_ms INTEGER NOT NULL,"
    " deadline_ms INTEGER NOT NULL DEFAULT 0, made INTEGER NOT NULL DEFAULT 0,"
    " spec TEXT NOT NULL, agent TEXT NOT NULL DEFAULT '{}',"
    " ports TEXT NOT NULL DEFAULT '{}') STRICT;",

    /* NULL: a box of version 1, without a known project. */
    "ALTER TABLE boxes ADD COLUMN project TEXT;"
    "ALTER TABLE boxes ADD COLUMN remote TEXT NOT NULL DEFAULT '';",

    /* A program of version 2 that has the store open (a monitor) may still change a state or delete
     * a row: the triggers keep the history whole. */
    "ALTER TABLE boxes ADD COLUMN updated_ms INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE boxes ADD COLUMN paused_ms INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE boxes ADD COLUMN resumed_ms INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE boxes ADD COLUMN used_ms INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE boxes ADD COLUMN transcript TEXT;"
    "UPDATE boxes SET updated_ms = state_since_ms, used_ms = state_since_ms;"
    "CREATE TABLE keys(key BLOB PRIMARY KEY, box_id TEXT NOT NULL) STRICT, WITHOUT ROWID;"
    "CREATE INDEX keys_of_box ON keys(box_id);"
    "CREATE TABLE claims(box_id TEXT PRIMARY KEY, holder TEXT NOT NULL,"
    " until_ms INTEGER NOT NULL) STRICT;"
    "CREATE TABLE events(position INTEGER PRIMARY KEY AUTOINCREMENT, box_id TEXT NOT NULL,"
    " seq INTEGER NOT NULL, id TEXT NOT NULL, kind TEXT NOT NULL,"
    " time_ms INTEGER NOT NULL, before TEXT NOT NULL, after TEXT NOT NULL, cause TEXT NOT NULL,"
    " actor TEXT NOT NULL, UNIQUE(box_id, seq), UNIQUE(box_id, id)) STRICT;"
    "CREATE TABLE records(id TEXT PRIMARY KEY, name TEXT NOT NULL, cause TEXT NOT NULL,"
    " created_ms INTEGER NOT NULL, updated_ms INTEGER NOT NULL, paused_ms INTEGER NOT NULL,"
    " resumed_ms INTEGER NOT NULL, used_ms INTEGER NOT NULL, destroyed_ms INTEGER NOT NULL,"
    " spec TEXT NOT NULL, agent TEXT NOT NULL, project TEXT, remote TEXT NOT NULL,"
    " keys TEXT NOT NULL, exit TEXT NOT NULL DEFAULT 'null', logs TEXT NOT NULL DEFAULT '',"
    " transcript TEXT) STRICT;"
    "CREATE INDEX records_of_name ON records(name, destroyed_ms);"
    "CREATE INDEX records_by_time ON records(destroyed_ms, id);"
    "CREATE TRIGGER record_removed AFTER DELETE ON records BEGIN"
    " DELETE FROM events WHERE box_id = OLD.id;"
    "END;"
    "CREATE TRIGGER box_changed AFTER UPDATE OF state ON boxes"
    " WHEN NEW.state <> OLD.state AND NEW.state <> COALESCE((SELECT after FROM events"
    " WHERE box_id = NEW.id ORDER BY seq DESC LIMIT 1), '') BEGIN"
    " INSERT INTO events(box_id, seq, id, kind, time_ms, before, after, cause, actor)"
    " SELECT NEW.id, 1 + COALESCE(MAX(seq), 0), lower(hex(randomblob(16))), 'state',"
    " MAX(NEW.state_since_ms, NEW.updated_ms, COALESCE(MAX(time_ms), 0)), OLD.state, NEW.state,"
    " substr(NEW.cause, 1, 128), 'unknown' FROM events WHERE box_id = NEW.id;"
    " UPDATE boxes SET updated_ms = MAX(updated_ms, state_since_ms) WHERE id = NEW.id;"
    "END;"
    "CREATE TRIGGER box_removed AFTER DELETE ON boxes BEGIN"
    " INSERT INTO events(box_id, seq, id, kind, time_ms, before, after, cause, actor)"
    " SELECT OLD.id, 1 + COALESCE((SELECT MAX(seq) FROM events WHERE box_id = OLD.id), 0),"
    " lower(hex(randomblob(16))), 'state', MAX(OLD.updated_ms, OLD.state_since_ms,"
    " CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)), OLD.state, 'destroyed',"
    " 'removed by an older program', 'unknown' WHERE OLD.state <> 'destroyed';"
    " INSERT INTO records(id, name, cause, created_ms, updated_ms, paused_ms, resumed_ms, used_ms,"
    " destroyed_ms, spec, agent, project, remote, keys, transcript)"
    " SELECT OLD.id, OLD.name, e.cause, OLD.created_ms, e.time_ms, OLD.paused_ms, OLD.resumed_ms,"
    " OLD.used_ms, e.time_ms, CASE WHEN json_valid(OLD.spec)"
    " THEN json_set(OLD.spec, '$.env', json('[]')) ELSE '{}' END, OLD.agent, OLD.project,"
    " OLD.remote, (SELECT json_group_array(hex(key)) FROM keys WHERE box_id = OLD.id),"
    " OLD.transcript FROM events AS e WHERE e.box_id = OLD.id ORDER BY e.seq DESC LIMIT 1;"
    " DELETE FROM keys WHERE box_id = OLD.id;"
    " DELETE FROM claims WHERE box_id = OLD.id;"
    "END;",

    "CREATE TABLE snapshots(id TEXT PRIMARY KEY, name TEXT NOT NULL UNIQUE, state TEXT NOT NULL,"
    " temporary INTEGER NOT NULL, box_id TEXT NOT NULL, box_name TEXT NOT NULL,"
    " created_ms INTEGER NOT NULL, project TEXT, remote TEXT NOT NULL,"
    " layers TEXT NOT NULL DEFAULT '[]', facts TEXT NOT NULL DEFAULT '{}') STRICT;"
    "CREATE INDEX snapshots_of_box ON snapshots(box_id, created_ms);"
    "CREATE TABLE layer_uses(layer TEXT NOT NULL, user TEXT NOT NULL,"
    " PRIMARY KEY(layer, user)) STRICT, WITHOUT ROWID;"
    "CREATE INDEX layers_of_user ON layer_uses(user);"
    "CREATE TRIGGER snapshot_removed AFTER DELETE ON snapshots BEGIN"
    " DELETE FROM layer_uses WHERE user = OLD.id;"
    "END;"
    "CREATE TRIGGER box_with_layers_removed AFTER DELETE ON boxes BEGIN"
    " DELETE FROM layer_uses WHERE user = OLD.id;"
    "END;",

    "CREATE TABLE tokens(id TEXT PRIMARY KEY, hash BLOB NOT NULL UNIQUE, name TEXT NOT NULL,"
    " owner TEXT NOT NULL, scope INTEGER NOT NULL, created_ms INTEGER NOT NULL,"
    " expires_ms INTEGER NOT NULL, used_ms INTEGER NOT NULL DEFAULT 0) STRICT;"
    "CREATE TABLE quotas(owner TEXT PRIMARY KEY, boxes INTEGER NOT NULL,"
    " cpu_millis INTEGER NOT NULL, memory_bytes INTEGER NOT NULL,"
    " disk_bytes INTEGER NOT NULL) STRICT;"
    "CREATE TABLE open_ports(box_id TEXT NOT NULL, port INTEGER NOT NULL,"
    " PRIMARY KEY(box_id, port)) STRICT, WITHOUT ROWID;"
    "CREATE TRIGGER box_with_open_ports_removed AFTER DELETE ON boxes BEGIN"
    " DELETE FROM open_ports WHERE box_id = OLD.id;"
    "END;"
    "CREATE TABLE webhooks(url TEXT PRIMARY KEY, position INTEGER NOT NULL) STRICT;",

    /* Layers without users are unknown: gc keeps them. */
    "CREATE TABLE layers(digest TEXT PRIMARY KEY) STRICT, WITHOUT ROWID;"
    "INSERT INTO layers SELECT DISTINCT layer FROM layer_uses;",
};

int store_make_schema(struct store *s, struct err *e)
{
    int version = 0;
    int r = read_version(s, &version, e);

    if (r < 0 || version == STORE_SCHEMA)
        return r;
    if (version < 0 || version > STORE_SCHEMA)
        return err_set(e, ERR_PRECONDITION,
                       "the store in '%s' has version %d; this program knows version %d", s->dir,
                       version, STORE_SCHEMA);
    if (version == 0)
        r = store_exec(s, "PRAGMA journal_mode=WAL", e);
    for (; r == 0 && version < STORE_SCHEMA; version++) {
        char set_version[48];

        (void)snprintf(set_version, sizeof(set_version), "PRAGMA user_version=%d", version + 1);
        r = store_begin(s, e);
        if (r < 0)
            break;
        r = store_exec(s, schema_steps[version], e);
        if (r == 0)
            r = store_exec(s, set_version, e);
        r = store_commit(s, r, e);
    }
    return r;
}
