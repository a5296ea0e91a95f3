#include "lib/box/store_access.h"

#include <nettle/sha2.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/io.h"
#include "common/jsonx.h"
#include "common/str.h"
#include "lib/box/store_db.h"

static const char *const scope_names[] = {"read", "use", "admin"};

const char *token_scope_name(enum token_scope scope)
{
    return scope_names[scope - TOKEN_READ];
}

int token_scope_parse(const char *name, enum token_scope *ret, struct err *e)
{
    for (size_t i = 0; i < N_ELEMENTS(scope_names); i++)
        if (str_eq(name, scope_names[i])) {
            *ret = (enum token_scope)(TOKEN_READ + i);
            return 0;
        }
    return err_field(e, ERR_INVALID, "scope",
                     "scope: '%.64s' is not one of 'read', 'use' and 'admin'", name);
}

int access_check_name(const char *field, const char *name, struct err *e)
{
    static const char chars[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._@-";
    size_t len = strlen(name);

    if (len && len < ACCESS_NAME_BYTES && !name[strspn(name, chars)])
        return 0;
    return err_field(e, ERR_INVALID, field,
                     "%s: '%.80s' is not 1 to %d letters, digits and '.', '_', '@', '-'", field,
                     name, ACCESS_NAME_BYTES - 1);
}

/* ---- tokens ---- */

static int copy_name(const char *field, const char *from, char to[ACCESS_NAME_BYTES], struct err *e)
{
    int r = from ? access_check_name(field, from, e) : 0;

    if (r == 0 && from)
        memcpy(to, from, strlen(from) + 1);
    return r;
}

int token_describe(struct store_token *t, const char *scope, const char *name, const char *owner,
                   struct err *e)
{
    int r = token_scope_parse(scope, &t->scope, e);

    if (r == 0)
        r = copy_name("name", name, t->name, e);
    if (r == 0)
        r = copy_name("owner", owner, t->owner, e);
    return r;
}

void token_hash(const char *text, size_t len, uint8_t ret[TOKEN_HASH_BYTES])
{
    struct sha256_ctx sha;

    sha256_init(&sha);
    sha256_update(&sha, len, (const uint8_t *)text);
    sha256_digest(&sha, TOKEN_HASH_BYTES, ret);
}

static int check_token(const struct store_token *t, struct err *e)
{
    int r = *t->name ? access_check_name("name", t->name, e) : 0;

    if (r == 0 && *t->owner)
        r = access_check_name("owner", t->owner, e);
    if (r == 0 && *t->owner && t->scope == TOKEN_ADMIN)
        r = err_field(e, ERR_INVALID, "owner",
                      "owner: an admin token is of all boxes, not of an owner");
    return r;
}

static int count_rows(struct store *s, const char *sql, int64_t max, const char *what,
                      struct err *e)
{
    _cleanup_stmt_ sqlite3_stmt *st = NULL;
    int r = store_prepare(s, sql, &st, e);

    if (r < 0)
        return r;
    if (sqlite3_step(st) != SQLITE_ROW)
        return store_fail(s, "count", e);
    return sqlite3_column_int64(st, 0) < max
               ? 0
               : err_set(e, ERR_EXHAUSTED, "the store has %lld %s already, the most there can be",
                         (long long)max, what);
}

static int insert_token(struct store *s, const struct store_token *t, struct err *e)
{
    _cleanup_stmt_ sqlite3_stmt *st = NULL;
    int r = store_prepare(s,
                          "INSERT INTO tokens(id, hash, name, owner, scope, created_ms, expires_ms)"
                          " VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7)",
                          &st, e);

    if (r < 0)
        return r;
    (void)sqlite3_bind_text(st, 1, t->id, -1, SQLITE_STATIC);
    (void)sqlite3_bind_blob(st, 2, t->hash, TOKEN_HASH_BYTES, SQLITE_STATIC);
    (void)sqlite3_bind_text(st, 3, t->name, -1, SQLITE_STATIC);
    (void)sqlite3_bind_text(st, 4, t->owner, -1, SQLITE_STATIC);
    (void)sqlite3_bind_int(st, 5, (int)t->scope);
    (void)sqlite3_bind_int64(st, 6, t->created_ms);
    (void)sqlite3_bind_int64(st, 7, t->expires_ms);
    return store_step(s, st, e);
}

int store_make_token(struct store *s, struct store_token *t, char ret_text[TOKEN_TEXT_BYTES],
                     struct err *e)
{
    int r = check_token(t, e);

    if (r == 0)
        r = io_random_hex(8, t->id, e);
    memcpy(ret_text, "bh_", 3);
    if (r == 0)
        r = io_random_hex(32, ret_text + 3, e);
    if (r < 0)
        return r;
    token_hash(ret_text, strlen(ret_text), t->hash);
    t->created_ms = store_now_ms(s);
    r = store_begin(s, e);
    if (r < 0)
        return r;
    r = count_rows(s, "SELECT COUNT(*) FROM tokens", TOKENS_MAX, "tokens", e);
    if (r == 0)
        r = insert_token(s, t, e);
    return store_commit(s, r, e);
}

static void read_token(sqlite3_stmt *st, struct store_token *t)
{
    const void *hash = sqlite3_column_blob(st, 1);
    int scope = sqlite3_column_int(st, 4);

    *t = (struct store_token){
        .scope = scope >= TOKEN_READ && scope <= TOKEN_ADMIN ? (enum token_scope)scope : TOKEN_READ,
        .created_ms = sqlite3_column_int64(st, 5),
        .expires_ms = sqlite3_column_int64(st, 6),
        .used_ms = sqlite3_column_int64(st, 7)};
    if (hash && sqlite3_column_bytes(st, 1) == TOKEN_HASH_BYTES)
        memcpy(t->hash, hash, TOKEN_HASH_BYTES);
    (void)snprintf(t->id, sizeof(t->id), "%s", store_column_text(st, 0));
    (void)snprintf(t->name, sizeof(t->name), "%s", store_column_text(st, 2));
    (void)snprintf(t->owner, sizeof(t->owner), "%s", store_column_text(st, 3));
    if (*t->owner &&
        t->scope == TOKEN_ADMIN) /* none is made: an administrator may use this machine */
        t->scope = TOKEN_USE;
}

int store_list_tokens(struct store *s, int (*fn)(void *arg, const struct store_token *t), void *arg,
                      struct err *e)
{
    _cleanup_stmt_ sqlite3_stmt *st = NULL;
    int r = store_prepare(s,
                          "SELECT id, hash, name, owner, scope, created_ms, expires_ms, used_ms"
                          " FROM tokens ORDER BY created_ms, id",
                          &st, e);

    while (r == 0 && (r = sqlite3_step(st)) == SQLITE_ROW) {
        struct store_token t;

        read_token(st, &t);
        r = fn(arg, &t);
        if (r != 0)
            return r;
    }
    return r < 0 || r == SQLITE_DONE ? (r < 0 ? r : 0) : store_fail(s, "read tokens", e);
}

static int delete_access_row(struct store *s, const char *sql, const char *text, struct err *e)
{
    _cleanup_stmt_ sqlite3_stmt *st = NULL;
    int r = store_prepare(s, sql, &st, e);

    if (r < 0)
        return r;
    (void)sqlite3_bind_text(st, 1, text, -1, SQLITE_STATIC);
    r = store_step(s, st, e);
    return r < 0 ? r : sqlite3_changes(s->db);
}

int store_revoke_token(struct store *s, const char *id_or_name, struct err *e)
{
    int r = delete_access_row(s, "DELETE FROM tokens WHERE id = ?1", id_or_name, e);

    if (r == 0)
        r = delete_access_row(s,
                              "DELETE FROM tokens WHERE name = ?1 AND name <> ''"
                              " AND (SELECT COUNT(*) FROM tokens WHERE name = ?1) = 1",
                              id_or_name, e);
    if (r == 0)
        return err_field(e, ERR_NOT_FOUND, "token",
                         "there is no token '%.64s', or several have this name: give its id",
                         id_or_name);
    return r < 0 ? r : 0;
}

int store_set_token_used(struct store *s, const char *id, int64_t used_ms, struct err *e)
{
    _cleanup_stmt_ sqlite3_stmt *st = NULL;
    int r = store_prepare(s, "UPDATE tokens SET used_ms = MAX(used_ms, ?2) WHERE id = ?1", &st, e);

    if (r < 0)
        return r;
    (void)sqlite3_bind_text(st, 1, id, -1, SQLITE_STATIC);
    (void)sqlite3_bind_int64(st, 2, used_ms);
    return store_step(s, st, e);
}

json_t *store_token_json(const struct store_token *t)
{
    return json_pack("{s:s, s:s, s:s, s:s, s:I, s:I, s:I}", "id", t->id, "name", t->name, "owner",
                     t->owner, "scope", token_scope_name(t->scope), "created_ms",
                     (json_int_t)t->created_ms, "expires_ms", (json_int_t)t->expires_ms, "used_ms",
                     (json_int_t)t->used_ms);
}

/* ---- quotas ---- */

static int write_quota(struct store *s, const struct store_quota *q, struct err *e)
{
    _cleanup_stmt_ sqlite3_stmt *st = NULL;
    int r = store_prepare(s,
                          "INSERT OR REPLACE INTO quotas(owner, boxes, cpu_millis, memory_bytes,"
                          " disk_bytes) VALUES(?1, ?2, ?3, ?4, ?5)",
                          &st, e);

    if (r < 0)
        return r;
    (void)sqlite3_bind_text(st, 1, q->owner, -1, SQLITE_STATIC);
    (void)sqlite3_bind_int64(st, 2, q->boxes);
    (void)sqlite3_bind_int64(st, 3, q->cpu_millis);
    (void)sqlite3_bind_int64(st, 4, (int64_t)q->memory_bytes);
    (void)sqlite3_bind_int64(st, 5, (int64_t)q->disk_bytes);
    return store_step(s, st, e);
}

int store_set_quota(struct store *s, const struct store_quota *q, struct err *e)
{
    int r = access_check_name("owner", q->owner, e);

    if (r < 0)
        return r;
    if (q->memory_bytes > INT64_MAX || q->disk_bytes > INT64_MAX)
        return err_set(e, ERR_INVALID, "a quota is too large");
    if (!q->boxes && !q->cpu_millis && !q->memory_bytes && !q->disk_bytes) {
        r = delete_access_row(s, "DELETE FROM quotas WHERE owner = ?1", q->owner, e);
        return r < 0 ? r : 0;
    }
    r = store_begin(s, e);
    if (r < 0)
        return r;
    r = count_rows(s, "SELECT COUNT(*) FROM quotas", QUOTAS_MAX, "quotas", e);
    if (r == 0)
        r = write_quota(s, q, e);
    return store_commit(s, r, e);
}

static void read_quota(sqlite3_stmt *st, struct store_quota *q)
{
    *q = (struct store_quota){.boxes = (uint32_t)sqlite3_column_int64(st, 1),
                              .cpu_millis = (uint32_t)sqlite3_column_int64(st, 2),
                              .memory_bytes = (uint64_t)sqlite3_column_int64(st, 3),
                              .disk_bytes = (uint64_t)sqlite3_column_int64(st, 4)};
    (void)snprintf(q->owner, sizeof(q->owner), "%s", store_column_text(st, 0));
}

struct quota_search {
    const char *owner;
    struct store_quota *ret;
};

static int match_quota(void *arg, const struct store_quota *q)
{
    const struct quota_search *search = arg;

    if (!str_eq(q->owner, search->owner))
        return 0;
    *search->ret = *q;
    return 1;
}

int store_get_quota(struct store *s, const char *owner, struct store_quota *ret, struct err *e)
{
    struct store_quota found = {0};
    struct quota_search search = {.owner = owner, .ret = &found};
    int r = store_list_quotas(s, match_quota, &search, e);

    if (r < 0)
        return r;
    *ret = found;
    return 0;
}

int store_list_quotas(struct store *s, int (*fn)(void *arg, const struct store_quota *q), void *arg,
                      struct err *e)
{
    _cleanup_stmt_ sqlite3_stmt *st = NULL;
    int r = store_prepare(s,
                          "SELECT owner, boxes, cpu_millis, memory_bytes, disk_bytes FROM quotas"
                          " ORDER BY owner",
                          &st, e);

    while (r == 0 && (r = sqlite3_step(st)) == SQLITE_ROW) {
        struct store_quota q;

        read_quota(st, &q);
        r = fn(arg, &q);
        if (r != 0)
            return r;
    }
    return r < 0 || r == SQLITE_DONE ? (r < 0 ? r : 0) : store_fail(s, "read quotas", e);
}

json_t *store_quota_json(const struct store_quota *q)
{
    return json_pack("{s:s, s:I, s:I, s:I, s:I}", "owner", q->owner, "boxes", (json_int_t)q->boxes,
                     "cpu_millis", (json_int_t)q->cpu_millis, "memory_bytes",
                     (json_int_t)q->memory_bytes, "disk_bytes", (json_int_t)q->disk_bytes);
}

/* ---- ports that are open to everybody, and owners ---- */

static int write_open_port(struct store *s, const struct store_open_port *p, bool is_open,
                           struct err *e)
{
    _cleanup_stmt_ sqlite3_stmt *st = NULL;
    int r = store_prepare(s,
                          is_open ? "INSERT OR REPLACE INTO open_ports(box_id, port) VALUES(?1, ?2)"
                                  : "DELETE FROM open_ports WHERE box_id = ?1 AND port = ?2",
                          &st, e);

    if (r < 0)
        return r;
    (void)sqlite3_bind_text(st, 1, p->box_id, -1, SQLITE_STATIC);
    (void)sqlite3_bind_int(st, 2, p->port);
    return store_step(s, st, e);
}

int store_set_open_port(struct store *s, const struct store_open_port *p, bool is_open,
                        struct err *e)
{
    int r = store_begin(s, e);

    if (r < 0)
        return r;
    if (is_open)
        r = count_rows(s, "SELECT COUNT(*) FROM open_ports", OPEN_PORTS_MAX, "open ports", e);
    if (r == 0)
        r = write_open_port(s, p, is_open, e);
    return store_commit(s, r, e);
}

int store_list_open_ports(struct store *s, int (*fn)(void *arg, const struct store_open_port *p),
                          void *arg, struct err *e)
{
    _cleanup_stmt_ sqlite3_stmt *st = NULL;
    int r = store_prepare(s, "SELECT box_id, port FROM open_ports ORDER BY box_id, port", &st, e);

    while (r == 0 && (r = sqlite3_step(st)) == SQLITE_ROW) {
        struct store_open_port p = {.port = (uint16_t)sqlite3_column_int(st, 1)};

        (void)snprintf(p.box_id, sizeof(p.box_id), "%s", store_column_text(st, 0));
        r = fn(arg, &p);
        if (r != 0)
            return r;
    }
    return r < 0 || r == SQLITE_DONE ? (r < 0 ? r : 0) : store_fail(s, "read open ports", e);
}

int store_owner_of(struct store *s, const char *box_id, char ret[ACCESS_NAME_BYTES], struct err *e)
{
    _cleanup_stmt_ sqlite3_stmt *st = NULL;
    int r =
        store_prepare(s,
                      "SELECT substr(l.value, 7) FROM (SELECT spec FROM boxes WHERE id = ?1"
                      " UNION ALL SELECT spec FROM records WHERE id = ?1) AS b,"
                      " json_each(b.spec, '$.labels') AS l WHERE l.value GLOB 'owner=*' LIMIT 1",
                      &st, e);

    if (r < 0)
        return r;
    (void)sqlite3_bind_text(st, 1, box_id, -1, SQLITE_STATIC);
    r = sqlite3_step(st);
    if (r != SQLITE_ROW && r != SQLITE_DONE)
        return store_fail(s, "read an owner", e);
    (void)snprintf(ret, ACCESS_NAME_BYTES, "%s", r == SQLITE_ROW ? store_column_text(st, 0) : "");
    return 0;
}

/* ---- webhooks ---- */

int store_get_webhook(struct store *s, const char *url, int64_t *ret_position, struct err *e)
{
    _cleanup_stmt_ sqlite3_stmt *st = NULL;
    int r = store_prepare(s, "SELECT position FROM webhooks WHERE url = ?1", &st, e);

    if (r < 0)
        return r;
    (void)sqlite3_bind_text(st, 1, url, -1, SQLITE_STATIC);
    r = sqlite3_step(st);
    if (r == SQLITE_ROW)
        *ret_position = sqlite3_column_int64(st, 0);
    return r == SQLITE_ROW ? 1 : r == SQLITE_DONE ? 0 : store_fail(s, "read webhooks", e);
}

int store_set_webhook(struct store *s, const char *url, int64_t position, struct err *e)
{
    _cleanup_stmt_ sqlite3_stmt *st = NULL;
    int r =
        store_prepare(s, "INSERT OR REPLACE INTO webhooks(url, position) VALUES(?1, ?2)", &st, e);

    if (r < 0)
        return r;
    (void)sqlite3_bind_text(st, 1, url, -1, SQLITE_STATIC);
    (void)sqlite3_bind_int64(st, 2, position);
    return store_step(s, st, e);
}
