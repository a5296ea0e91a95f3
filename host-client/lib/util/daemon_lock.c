#include "lib/util/daemon_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/io.h"
#include "common/jsonx.h"
#include "lib/util/socket.h"

#define LOCK_FILE "daemon.lock"
#define FACTS_MAX_BYTES 4096
#define TAKE_MS 5000 /* for a lock that no daemon has */
#define TAKE_POLL_MS 10

static int lock_open(const char *state_dir, int flags, int *ret, struct err *e)
{
    _cleanup_free_ char *path = NULL;

    if (asprintf(&path, "%s/" LOCK_FILE, state_dir) < 0)
        return err_oom(e);
    *ret = open(path, flags | O_CLOEXEC | O_NOFOLLOW, 0600);
    return *ret < 0 ? err_sys(e, errno, "open '%s'", path) : 0;
}

static json_t *read_facts(int fd)
{
    char text[FACTS_MAX_BYTES];
    ssize_t n = pread(fd, text, sizeof(text), 0);
    json_t *facts = n > 0 ? json_loadb(text, (size_t)n, 0, NULL) : NULL;

    return json_is_object(facts) ? facts : (json_decref(facts), json_object());
}

/* A child that a killed daemon was just starting has its lock for a moment, and who asks for the facts has one. */
static bool daemon_is_dead(int fd)
{
    _cleanup_json_ json_t *facts = read_facts(fd);
    json_int_t pid = json_integer_value(json_object_get(facts, "pid"));

    return pid <= 0 || pid > INT_MAX || (kill((pid_t)pid, 0) < 0 && errno == ESRCH);
}

static int wait_for_lock(int fd)
{
    int64_t deadline_mono_ms = clock_mono_ms() + TAKE_MS;

    while (flock(fd, LOCK_EX | LOCK_NB) < 0) {
        if (errno != EWOULDBLOCK)
            return -errno;
        if (!daemon_is_dead(fd) || clock_until_ms(deadline_mono_ms) == 0)
            return -EWOULDBLOCK;
        (void)poll(NULL, 0, TAKE_POLL_MS);
    }
    return 0;
}

int daemon_lock_take(const char *state_dir, int *ret_fd, struct err *e)
{
    _cleanup_json_ json_t *facts = NULL;
    _cleanup_close_ int fd = -1;
    int r = lock_open(state_dir, O_RDWR | O_CREAT, &fd, e);

    if (r < 0)
        return r;
    r = wait_for_lock(fd);
    if (r == 0) {
        if (ftruncate(fd, 0) < 0)
            return err_sys(e, errno, "truncate '" LOCK_FILE "'");
        *ret_fd = TAKE_FD(fd);
        return 0;
    }
    if (r != -EWOULDBLOCK)
        return err_sys(e, -r, "lock '" LOCK_FILE "'");
    facts = read_facts(fd);
    return err_field(e, ERR_EXISTS, "state-dir",
                     "a daemon (pid %lld) serves the boxes of '%s' already",
                     (long long)json_integer_value(json_object_get(facts, "pid")), state_dir);
}

int daemon_lock_write(int fd, const json_t *facts, struct err *e)
{
    _cleanup_free_ char *text = NULL;
    size_t len = 0;
    int r = jx_dump(facts, &text, &len, e);

    if (r < 0)
        return r;
    if (pwrite(fd, text, len, 0) != (ssize_t)len || ftruncate(fd, (off_t)len) < 0)
        return err_sys(e, errno, "write '" LOCK_FILE "'");
    return 0;
}

int daemon_lock_read(const char *state_dir, json_t **ret, struct err *e)
{
    _cleanup_close_ int fd = -1;
    struct err why = {0};
    int r = lock_open(state_dir, O_RDONLY, &fd, &why);

    if (r < 0 && why.sys == ENOENT) {
        *ret = NULL;
        return 0;
    }
    if (r < 0) {
        if (e)
            *e = why;
        return r;
    }
    /* A shared lock: two who ask at once are not taken for a daemon. */
    if (flock(fd, LOCK_SH | LOCK_NB) == 0)
        *ret = NULL;
    else if (errno != EWOULDBLOCK)
        return err_sys(e, errno, "lock '" LOCK_FILE "'");
    else if (!(*ret = read_facts(fd)))
        return err_oom(e);
    return 0;
}

bool daemon_answers(const char *socket, int wait_ms)
{
    static const char request[] =
        "GET /v1/health HTTP/1.1\r\nHost: bellhop\r\nConnection: close\r\n\r\n";
    const struct timeval wait = {.tv_sec = wait_ms / 1000, .tv_usec = wait_ms % 1000 * 1000};
    _cleanup_close_ int fd = -1;
    char reply[16];
    size_t n = 0;

    if (!socket || socket_connect(socket, wait_ms, &fd, NULL) < 0)
        return false;
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait));
    return io_write_all(fd, request, sizeof(request) - 1, NULL) == 0 &&
           io_read_full(fd, reply, 12, &n, NULL) == 0 && n == 12 &&
           memcmp(reply, "HTTP/1.1 204", n) == 0;
}
