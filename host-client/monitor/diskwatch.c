#include "monitor/diskwatch.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/io.h"
#include "common/str.h"

#define LOOK_MS 1000                 /* interval of looks at the file system */
#define COUNT_MS (5 * 60 * 1000)     /* maximum interval of counts */
#define COUNT_SHARE 10               /* counting takes at most 1/10 of the time */
#define COUNT_MIN_BYTES (1ULL << 20) /* less growth causes no count */
#define GRACE_SHARE 20

struct diskwatch {
    char *dir, *fs_dir;
    uint64_t limit; /* limit of this run */
    uint64_t used;
    bool is_counted; /* counted at least once */
    uint64_t fs_used;
    int64_t next_ms;
    int64_t counted_ms, took_ms;
    /* du, while it runs: */
    int pidfd, out_fd;
    int64_t began_ms;
    char text[32];
    size_t len;
};

/* The used bytes of the file system of the box's disk. Other writers on it cause needless
 * counts. */
static uint64_t fs_used(const char *dir)
{
    struct statvfs fs;

    return statvfs(dir, &fs) < 0 ? 0 : (uint64_t)(fs.f_blocks - fs.f_bfree) * fs.f_frsize;
}

int diskwatch_new(const char *dir, const char *fs_dir, uint64_t limit_bytes, struct diskwatch **ret,
                  struct err *e)
{
    struct diskwatch *w;

    if (!limit_bytes) {
        *ret = NULL;
        return 0;
    }
    w = calloc(1, sizeof(*w));
    if (!w)
        return err_oom(e);
    w->pidfd = w->out_fd = -1;
    w->limit = limit_bytes;
    w->dir = strdup(dir);
    w->fs_dir = strdup(fs_dir);
    if (!w->dir || !w->fs_dir) {
        (void)diskwatch_free(w);
        return err_oom(e);
    }
    w->next_ms = clock_mono_ms();
    *ret = w;
    return 0;
}

static void end_count(struct diskwatch *w)
{
    fd_close(TAKE_FD(w->out_fd));
    fd_close(TAKE_FD(w->pidfd));
}

struct diskwatch *diskwatch_free(struct diskwatch *w)
{
    if (!w)
        return NULL;
    if (w->pidfd >= 0)
        (void)pidfd_send_signal(w->pidfd, SIGKILL, NULL, 0);
    end_count(w);
    free(w->dir);
    free(w->fs_dir);
    free(w);
    return NULL;
}

/* ---- counting ---- */

static int spawn_du(const char *dir, int out_fd, pid_t *ret)
{
    /* nice: the box's own work has priority. -x: mounts below are not the box's disk. */
    const char *const argv[] = {"nice", "du", "-s", "-x", "--block-size=1", "--", dir, NULL};
    const char *const env[] = {"LC_ALL=C", "PATH=/usr/local/bin:/usr/bin:/bin", NULL};
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attr;
    sigset_t none, all;
    int r;

    (void)sigemptyset(&none);
    (void)sigfillset(&all);
    (void)posix_spawn_file_actions_init(&actions);
    (void)posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    (void)posix_spawn_file_actions_adddup2(&actions, out_fd, 1);
    (void)posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
    (void)posix_spawnattr_init(&attr);
    (void)posix_spawnattr_setsigmask(&attr, &none);
    (void)posix_spawnattr_setsigdefault(&attr, &all);
    (void)posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    r = posix_spawnp(ret, argv[0], &actions, &attr, (char *const *)argv, (char *const *)env);
    (void)posix_spawn_file_actions_destroy(&actions);
    (void)posix_spawnattr_destroy(&attr);
    return r;
}

static void begin_count(struct diskwatch *w)
{
    int ends[2];
    pid_t pid;

    w->began_ms = clock_mono_ms();
    w->fs_used = fs_used(w->fs_dir);
    w->len = 0;
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) < 0)
        return;
    if (spawn_du(w->dir, ends[1], &pid) == 0) {
        w->pidfd = pidfd_open(pid, 0); /* not reaped yet: only this thread reaps */
        w->out_fd = TAKE_FD(ends[0]);
    }
    fd_close(ends[0]);
    fd_close(ends[1]);
}

/* du prints bytes, a tab, the directory. A file that vanishes during the count is no error. */
static void take_count(struct diskwatch *w)
{
    int64_t now = clock_mono_ms();
    uint64_t used;

    w->text[w->len] = '\0';
    w->text[strcspn(w->text, "\t")] = '\0';
    end_count(w);
    w->counted_ms = now;
    w->took_ms = now - w->began_ms;
    if (str_parse_u64(w->text, 0, UINT64_MAX, &used, NULL) < 0)
        return;
    if (!w->is_counted && used + used / GRACE_SHARE > w->limit)
        w->limit = used + used / GRACE_SHARE;
    w->is_counted = true;
    w->used = used;
}

static void read_count(struct diskwatch *w)
{
    char dropped[256];
    ssize_t n;

    for (;;) {
        size_t room = sizeof(w->text) - 1 - w->len;

        n = read(w->out_fd, room ? w->text + w->len : dropped, room ? room : sizeof(dropped));
        if (n <= 0)
            break;
        w->len += room ? (size_t)n : 0;
    }
    if (n == 0 || errno != EAGAIN)
        take_count(w);
}

/* A count is due after the maximum interval, or once the file system has grown by half of the
 * room below the limit. */
static bool is_due(const struct diskwatch *w)
{
    int64_t since_ms = clock_mono_ms() - w->counted_ms;
    uint64_t left = w->limit > w->used ? w->limit - w->used : 0;
    uint64_t now_used = fs_used(w->fs_dir);
    uint64_t grown = now_used > w->fs_used ? now_used - w->fs_used : 0;

    if (!w->counted_ms)
        return true;
    if (since_ms < w->took_ms * COUNT_SHARE)
        return false;
    return since_ms >= COUNT_MS || (grown >= COUNT_MIN_BYTES && grown >= left / 2);
}

/* ---- the monitor's side ---- */

int diskwatch_fd(const struct diskwatch *w)
{
    return w ? w->out_fd : -1;
}

int64_t diskwatch_next_ms(const struct diskwatch *w)
{
    return w && w->out_fd < 0 ? w->next_ms : INT64_MAX;
}

bool diskwatch_act(struct diskwatch *w)
{
    if (!w)
        return false;
    if (w->out_fd >= 0) {
        read_count(w);
    } else if (clock_mono_ms() >= w->next_ms) {
        w->next_ms = clock_mono_ms() + LOOK_MS;
        if (is_due(w))
            begin_count(w);
    }
    return w->is_counted && w->used > w->limit;
}

uint64_t diskwatch_used(const struct diskwatch *w)
{
    return w ? w->used : 0;
}
