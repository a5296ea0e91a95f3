#include "lib/box/store_other.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "lib/box/store_db.h"

#define URI_SAFE "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-"

/* A database that nobody has open has no write-ahead log: it is read as a plain file, for which
 * SQLite makes no files beside it. */
static char *new_uri(const char *path, bool is_open)
{
    size_t n = 5, max = strlen(path) * 3 + 32;
    char *uri = malloc(max);

    if (!uri)
        return NULL;
    (void)snprintf(uri, max, "file:");
    for (; *path; path++) {
        bool is_safe = strchr(URI_SAFE, *path) != NULL;

        n += (size_t)snprintf(uri + n, max - n, is_safe ? "%c" : "%%%02x", (unsigned char)*path);
    }
    (void)snprintf(uri + n, max - n, "%s", is_open ? "" : "?immutable=1");
    return uri;
}

static int find_box_there(sqlite3 *db, const char *id)
{
    _cleanup_stmt_ sqlite3_stmt *st = NULL;
    int r = sqlite3_prepare_v2(db, "SELECT 1 FROM boxes WHERE id = ?1", -1, &st, NULL);

    if (r == SQLITE_OK)
        r = sqlite3_bind_text(st, 1, id, -1, SQLITE_STATIC);
    return r == SQLITE_OK ? sqlite3_step(st) : r;
}

static bool is_there(const char *state_dir, const char *suffix)
{
    _cleanup_free_ char *path = NULL;

    if (asprintf(&path, "%s/store.db%s", state_dir, suffix) < 0) {
        path = NULL;
        return false;
    }
    return access(path, F_OK) == 0;
}

enum store_other store_other_find(const char *state_dir, const char *id)
{
    _cleanup_free_ char *path = NULL;
    _cleanup_free_ char *uri = NULL;
    sqlite3 *db = NULL;
    struct stat st;
    int r = SQLITE_ERROR;

    if (asprintf(&path, "%s/store.db", state_dir) < 0) {
        path = NULL;
        return STORE_OTHER_CLOSED;
    }
    if (lstat(path, &st) < 0)
        return errno == ENOENT || errno == ENOTDIR ? STORE_OTHER_GONE : STORE_OTHER_CLOSED;
    if (!S_ISREG(st.st_mode) || st.st_uid != geteuid()) /* it may lie */
        return STORE_OTHER_CLOSED;
    uri = new_uri(path, is_there(state_dir, "-wal") && is_there(state_dir, "-shm"));
    if (uri && sqlite3_open_v2(uri, &db, SQLITE_OPEN_READONLY | SQLITE_OPEN_URI, NULL) == SQLITE_OK)
        r = find_box_there(db, id);
    (void)sqlite3_close(db);
    return r == SQLITE_ROW    ? STORE_OTHER_HAS
           : r == SQLITE_DONE ? STORE_OTHER_LACKS
                              : STORE_OTHER_CLOSED;
}
