/* store_keys: the keys of boxes: bytes, in JSON as hex digits. */
#include <ctype.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/jsonx.h"
#include "lib/box/store_db.h"

static unsigned hex_value(char digit)
{
    return digit <= '9' ? (unsigned)(digit - '0') : ((unsigned)digit | 0x20) - 'a' + 10;
}

/* A list is read by `bellhop ls` for every box: no JSON parser. */
json_t *store_keys_json(const char *text)
{
    json_t *keys = json_array();
    const char *at = text;

    while (keys && at && (at = strchr(at, '"'))) {
        char key[STORE_KEY_BYTES + 1] = "";

        at++;
        for (size_t n = 0; n < STORE_KEY_BYTES && isxdigit((unsigned char)at[0]) &&
                           isxdigit((unsigned char)at[1]);
             n++, at += 2)
            key[n] = (char)(hex_value(at[0]) << 4 | hex_value(at[1]));
        at += *at == '"';
        (void)json_array_append_new(keys, jx_new_path(key));
    }
    return keys;
}

int store_insert_key(struct store *s, const char *id, const char *key, struct err *e)
{
    _cleanup_stmt_ sqlite3_stmt *st = NULL;
    int r = store_prepare(s,
                          "INSERT INTO keys(key, box_id) SELECT ?2, ?1"
                          " WHERE (SELECT count(*) FROM keys WHERE box_id = ?1) < ?3",
                          &st, e);

    if (r < 0)
        return r;
    (void)sqlite3_bind_text(st, 1, id, -1, SQLITE_STATIC);
    (void)sqlite3_bind_blob(st, 2, key, (int)strlen(key), SQLITE_STATIC);
    (void)sqlite3_bind_int(st, 3, STORE_KEYS_MAX);
    r = sqlite3_step(st);
    if (r == SQLITE_CONSTRAINT)
        return err_field(e, ERR_EXISTS, "key", "key: there is a box with the key '%.64s' already",
                         key);
    if (r != SQLITE_DONE)
        return store_fail(s, "add a key", e);
    if (sqlite3_changes(s->db) != 1)
        return err_field(e, ERR_EXHAUSTED, "key", "key: a box has at most %d keys", STORE_KEYS_MAX);
    return 0;
}

/* Within a transaction: does the box have the key already? */
static int has_key(struct store *s, const char *id, const char *key, bool *ret, struct err *e)
{
    _cleanup_stmt_ sqlite3_stmt *st = NULL;
    int r = store_prepare(s, "SELECT 1 FROM keys WHERE key = ?1 AND box_id = ?2", &st, e);

    if (r < 0)
        return r;
    (void)sqlite3_bind_blob(st, 1, key, (int)strlen(key), SQLITE_STATIC);
    (void)sqlite3_bind_text(st, 2, id, -1, SQLITE_STATIC);
    r = sqlite3_step(st);
    if (r != SQLITE_ROW && r != SQLITE_DONE)
        return store_fail(s, "read", e);
    *ret = r == SQLITE_ROW;
    return 0;
}

int store_add_key(struct store *s, const char *id, const char *key, struct err *e)
{
    struct box_row row = {0};
    bool is_there = false;
    int r = store_begin(s, e);

    if (r < 0)
        return r;
    r = store_get(s, id, &row, e);
    box_row_done(&row);
    if (r == 0)
        r = has_key(s, id, key, &is_there, e);
    if (r == 0 && !is_there)
        r = store_insert_key(s, id, key, e);
    return store_commit(s, r, e);
}
