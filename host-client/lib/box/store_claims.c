/* store_claims: who works on a box: the janitor's claims, and the locks on names. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/io.h"
#include "lib/box/store_db.h"
#include "lib/util/procfs.h"
#include "lib/util/socket.h"

#define STORE_LOCK_POLL_MS 20 /* flock has no descriptor to poll */

/* ---- the janitor's claims ---- */

void store_make_holder(char ret[STORE_HOLDER_BYTES], const char *random)
{
    (void)snprintf(ret, STORE_HOLDER_BYTES, "%d:%" PRIu64 ":%.32s", (int)getpid(),
                   procfs_start_time(getpid()), random);
}

/* Is the holder, "PID:START:...", a process of this machine that has ended? Any other text is the
 * holder of an older program. */
static bool is_dead_holder(const char *holder)
{
    unsigned long long start = 0;
    int pid = 0;

    return sscanf(holder, "%d:%llu:", &pid, &start) == 2 && !procfs_is_alive(pid, start);
}

/* Within a transaction. Also calls a live holder of another PID namespace dead: then two janitors
 * try the same box, and its name lock lets one remove it. */
static int drop_dead_claims(struct store *s, struct err *e)
{
    _cleanup_stmt_ sqlite3_stmt *st = NULL;
    int r = store_prepare(s, "SELECT DISTINCT holder FROM claims", &st, e);

    if (r < 0)
        return r;
    while ((r = sqlite3_step(st)) == SQLITE_ROW)
        if (is_dead_holder(store_column_text(st, 0)))
            store_release_claims(s, store_column_text(st, 0));
    return r == SQLITE_DONE ? 0 : store_fail(s, "read claims", e);
}

/* Within a transaction. A claim whose end is far ahead was made by a clock that was ahead: it does
 * not count. */
static int claim_stopped(struct store *s, const struct store_claim *c,
                         char (*ret_ids)[BOX_ID_BYTES], size_t *ret_n, struct err *e)
{
    _cleanup_stmt_ sqlite3_stmt *st = NULL;
    size_t n = 0;
    int r = store_prepare(s,
                          "INSERT OR REPLACE INTO claims(box_id, holder, until_ms)"
                          " SELECT id, ?1, ?2 + ?3 FROM boxes WHERE state_since_ms <= ?4"
                          " AND (state = 'stopped' OR (state = 'error' AND deadline_ms = 0))"
                          " AND id NOT IN (SELECT box_id FROM claims"
                          " WHERE until_ms > ?2 AND until_ms <= ?2 + 2 * ?3)"
                          " ORDER BY state_since_ms, id LIMIT ?5 RETURNING box_id",
                          &st, e);

    if (r < 0)
        return r;
    (void)sqlite3_bind_text(st, 1, c->holder, -1, SQLITE_STATIC);
    (void)sqlite3_bind_int64(st, 2, store_now_ms(s));
    (void)sqlite3_bind_int64(st, 3, c->claim_ms);
    (void)sqlite3_bind_int64(st, 4, c->before_ms);
    (void)sqlite3_bind_int64(st, 5, (int64_t)c->max);
    while ((r = sqlite3_step(st)) == SQLITE_ROW && n < c->max)
        (void)snprintf(ret_ids[n++], BOX_ID_BYTES, "%s", store_column_text(st, 0));
    if (r != SQLITE_DONE)
        return store_fail(s, "claim", e);
    *ret_n = n;
    return 0;
}

int store_claim_stopped(struct store *s, const struct store_claim *c, char (*ret_ids)[BOX_ID_BYTES],
                        size_t *ret_n, struct err *e)
{
    size_t n = 0;
    int r = store_begin(s, e);

    if (r < 0)
        return r;
    r = drop_dead_claims(s, e);
    if (r == 0)
        r = claim_stopped(s, c, ret_ids, &n, e);
    r = store_commit(s, r, e);
    if (r == 0)
        *ret_n = n;
    return r;
}

void store_release_claims(struct store *s, const char *holder)
{
    _cleanup_stmt_ sqlite3_stmt *st = NULL;

    if (store_prepare(s, "DELETE FROM claims WHERE holder = ?1", &st, NULL) < 0)
        return;
    (void)sqlite3_bind_text(st, 1, holder, -1, SQLITE_STATIC);
    (void)store_step(s, st, NULL);
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
