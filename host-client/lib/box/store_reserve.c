/* store_reserve: the room on the disk that is kept for the end of boxes, and the write-ahead log. */
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "lib/box/store_db.h"

#define STORE_FORGET_MS 200
#define STORE_RESERVE_BYTES (512 * 1024) /* a record with its logs, the log of it, a few events */
#define STORE_RESERVE_STEP (32 * 1024)

/* The write-ahead log has what was overwritten in the file, such as the variables of a removed row.
 * Another process that reads at this moment keeps it; gc tries again. */
void store_forget_log(struct store *s)
{
    (void)sqlite3_busy_timeout(s->db, STORE_FORGET_MS);
    (void)sqlite3_wal_checkpoint_v2(s->db, NULL, SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL);
    store_set_patience(s);
}

static char *reserve_path(struct store *s)
{
    char *path;

    return asprintf(&path, "%s/store.reserve", s->dir) < 0 ? NULL : path;
}

void store_fill_reserve(struct store *s)
{
    _cleanup_free_ char *path = reserve_path(s);
    _cleanup_close_ int fd =
        path ? open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600) : -1;

    for (off_t n = STORE_RESERVE_BYTES; fd >= 0 && n > 0; n -= STORE_RESERVE_STEP)
        if (posix_fallocate(fd, 0, n) == 0)
            return;
}

void store_keep_reserve(struct store *s)
{
    _cleanup_free_ char *path = reserve_path(s);
    struct statvfs fs;
    struct stat st;

    if (!path || (stat(path, &st) == 0 && st.st_size >= STORE_RESERVE_BYTES) ||
        statvfs(s->dir, &fs) < 0 || fs.f_bavail * fs.f_frsize < 4 * STORE_RESERVE_BYTES)
        return;
    store_fill_reserve(s);
}

bool store_spend_reserve(struct store *s)
{
    _cleanup_free_ char *path = reserve_path(s);

    if (!path || unlink(path) < 0)
        return false;
    store_forget_log(s);
    return true;
}
