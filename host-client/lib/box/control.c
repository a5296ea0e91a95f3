#include "lib/box/control.h"

#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/buf.h"
#include "common/cleanup.h"
#include "common/clock.h"
#include "common/io.h"
#include "common/jsonx.h"
#include "common/str.h"
#include "lib/util/context.h"
#include "lib/util/procfs.h"
#include "lib/util/socket.h"
#include "lib/util/transport.h"

#define CONTROL_PING_MS 2000
#define CONTROL_POLL_MS 20
#define MONITOR_LOG_TAIL 600
#define MONITOR_KNOWN_MS 5000
#define MONITOR_WHY_MS 2000 /* after the time of a start: the provider says why it took so long */
#define MONITOR_EXIT_MS 300 /* after its answer to "stop" */

/* ---- requests ---- */

static int read_line(int fd, int cancel_fd, int64_t deadline_mono_ms, struct buf *line,
                     struct err *e)
{
    char data[4096];

    for (;;) {
        ssize_t n;
        int r = socket_wait(fd, false, cancel_fd, deadline_mono_ms, e);

        if (r < 0)
            return r;
        n = read(fd, data, sizeof(data));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_sys(e, errno, "read");
        if (n == 0)
            return err_set(e, ERR_UNAVAILABLE, "it ended without an answer");
        r = buf_add(line, data, (size_t)n, e);
        if (r < 0)
            return r;
        if (line->data[line->len - 1] == '\n')
            return 0;
    }
}

static int parse_reply(const struct buf *line, json_t **ret, struct err *e)
{
    _cleanup_json_ json_t *reply = NULL;
    struct err told = {0};
    json_t *error;
    int r = jx_parse(line->data, line->len, &reply, e);

    if (r < 0)
        return r;
    error = json_object_get(reply, "error");
    if (!error) {
        if (ret)
            *ret = json_incref(reply);
        return 0;
    }
    if (!jx_read_error(error, &told))
        return err_set(e, ERR_INTERNAL, "an error that cannot be read");
    if (e)
        *e = told;
    return -told.code;
}

static int open_and_ask(struct bh_ctx *ctx, const char *box_id, json_t *req, int64_t timeout_ms,
                        json_t **ret, int *ret_fd, struct err *e)
{
    _cleanup_free_ char *path = ctx_box_path(ctx, box_id, "monitor.sock");
    _cleanup_free_ char *text = NULL;
    _cleanup_buf_ struct buf line = {0};
    _cleanup_close_ int fd = -1;
    size_t len = 0;
    int r;

    if (!path || !req)
        return err_oom(e);
    r = jx_dump(req, &text, &len, e);
    if (r < 0)
        return r;
    r = socket_connect(path, SOCKET_CONNECT_MS, &fd, e);
    if (r < 0)
        return r;
    text[len] = '\n'; /* replaces the NUL */
    if (send(fd, text, len + 1, MSG_NOSIGNAL) != (ssize_t)(len + 1))
        return err_set(e, ERR_UNAVAILABLE, "the monitor does not take requests");
    buf_init(&line, CONTROL_LINE_BYTES);
    r = read_line(fd, ctx->cancel_fd, clock_mono_ms() + timeout_ms, &line, e);
    if (r < 0)
        return err_wrap(e, r, "the monitor");
    r = parse_reply(&line, ret, e);
    if (r == 0 && ret_fd)
        *ret_fd = TAKE_FD(fd);
    return r;
}

int control_call_take(struct bh_ctx *ctx, const char *box_id, json_t *req, int64_t timeout_ms,
                      json_t **ret, struct err *e)
{
    int r = open_and_ask(ctx, box_id, req, timeout_ms, ret, NULL, e);

    json_decref(req);
    return r;
}

int control_open_take(struct bh_ctx *ctx, const char *box_id, json_t *req, int64_t timeout_ms,
                      int *ret_fd, struct err *e)
{
    int r = open_and_ask(ctx, box_id, req, timeout_ms, NULL, ret_fd, e);

    json_decref(req);
    return r;
}

int control_ping(struct bh_ctx *ctx, const char *box_id, struct err *e)
{
    _cleanup_json_ json_t *reply = NULL;
    int r = control_call_take(ctx, box_id, json_pack("{s:s}", "op", "ping"), CONTROL_PING_MS,
                              &reply, e);

    if (r < 0)
        return r;
    if (!json_is_true(json_object_get(reply, "ready")))
        return err_set(e, ERR_UNAVAILABLE, "the monitor is starting the box");
    return 0;
}

/* ---- which it is ---- */

/* The lock file holds "PID START". The monitor writes it once it has the lock. */
static bool read_monitor_pid(const char *path, pid_t *ret_pid, uint64_t *ret_start)
{
    _cleanup_free_ char *text = NULL;
    unsigned long long start = 0;
    size_t len = 0;
    int pid = 0;

    if (io_read_file(AT_FDCWD, path, 256, &text, &len, NULL) < 0 ||
        sscanf(text, "%d %llu", &pid, &start) != 2)
        return false;
    *ret_pid = pid;
    *ret_start = start;
    return true;
}

/* ---- starting the monitor ---- */

struct launch {
    const char *path;
    char *argv[24];
    int log_fd;
    int ready_fd;
    const char *failed; /* written to ready_fd if exec fails */
    uint32_t max_files; /* 0: as this process */
};

static void set_max_files(uint32_t n)
{
    struct rlimit limit;

    if (!n || getrlimit(RLIMIT_NOFILE, &limit) < 0)
        return;
    limit.rlim_cur = n < limit.rlim_max ? n : limit.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &limit);
}

/* Between fork and exec: async-signal-safe calls only. */
__attribute__((noreturn)) static void become_monitor(const struct launch *l)
{
    struct sigaction dfl = {.sa_handler = SIG_DFL};
    sigset_t none;
    int null_fd;

    for (int sig = 1; sig < 65; sig++)
        (void)sigaction(sig, &dfl, NULL);
    (void)sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    set_max_files(l->max_files);
    (void)setsid();
    if (fork() != 0)
        _exit(0);
    null_fd = open("/dev/null", O_RDWR);
    if (null_fd < 0 || dup2(null_fd, 0) < 0 || dup2(l->log_fd, 1) < 0 || dup2(l->log_fd, 2) < 0 ||
        dup2(l->ready_fd, 3) < 0 || syscall(SYS_close_range, 4, ~0U, 0) < 0 || chdir("/") < 0)
        _exit(1);
    (void)execv(l->path, l->argv);
    (void)!write(3, l->failed, strlen(l->failed));
    _exit(127);
}

static int spawn_monitor(const struct launch *l, struct err *e)
{
    pid_t pid = fork();

    if (pid < 0)
        return err_sys(e, errno, "fork");
    if (pid == 0)
        become_monitor(l);
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
    return 0;
}

/* Duplicates above 3, so that dup2 to 3 in the child closes none of them. */
static int open_launch_fds(const char *log_path, int *ret_log, int ready[2], struct err *e)
{
    _cleanup_close_ int log = open(log_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    int p[2];

    if (log < 0)
        return err_sys(e, errno, "open '%s'", log_path);
    if (pipe2(p, O_CLOEXEC) < 0)
        return err_sys(e, errno, "pipe");
    ready[0] = p[0];
    ready[1] = fcntl(p[1], F_DUPFD_CLOEXEC, 10);
    fd_close(p[1]);
    *ret_log = fcntl(log, F_DUPFD_CLOEXEC, 10);
    return ready[1] < 0 || *ret_log < 0 ? err_sys(e, errno, "fcntl") : 0;
}

/* Makes an error of the end of what the monitor has logged after the first log_begin bytes,
 * which are about earlier starts. */
static int monitor_death_error(const char *log_path, size_t log_begin, struct err *e)
{
    _cleanup_free_ char *log = NULL;
    size_t len = 0;

    if (io_read_file(AT_FDCWD, log_path, 1024 * 1024, &log, &len, NULL) < 0 || len <= log_begin)
        return err_set(e, ERR_INTERNAL, "the monitor ended before the box was there");
    while (len > log_begin && log[len - 1] == '\n')
        log[--len] = '\0';
    return err_set(e, ERR_INTERNAL, "the monitor ended before the box was there: %s",
                   log + (len - log_begin > MONITOR_LOG_TAIL ? len - MONITOR_LOG_TAIL : log_begin));
}

static int wait_ready(struct bh_ctx *ctx, int fd, const char *log_path, size_t log_begin,
                      int64_t deadline_mono_ms, struct err *e)
{
    _cleanup_buf_ struct buf line = {0};
    int r;

    buf_init(&line, CONTROL_LINE_BYTES);
    r = read_line(fd, ctx->cancel_fd, deadline_mono_ms, &line, e);
    if (r == -ERR_UNAVAILABLE)
        return monitor_death_error(log_path, log_begin, e);
    if (r < 0)
        return err_wrap(e, r, "while the box starts");
    return parse_reply(&line, NULL, e);
}

/* Waits for the monitor that another command has started. */
static int wait_for_other(struct bh_ctx *ctx, const char *box_id, int64_t deadline_mono_ms,
                          struct err *e)
{
    for (;;) {
        int r = control_ping(ctx, box_id, e);

        if (r == 0 || r == -ERR_CANCELED || clock_until_ms(deadline_mono_ms) == 0)
            return r;
        if (socket_wait_canceled(ctx->cancel_fd, CONTROL_POLL_MS))
            return err_set(e, ERR_CANCELED, "canceled while the box starts");
    }
}

/*
 * A command that gives up waiting rolls back next, and ends the monitor for that. It must be able
 * to find it. Waits until the monitor has its lock or has ended (ready_fd is readable).
 */
static void wait_until_known(struct bh_ctx *ctx, const char *box_id, int ready_fd)
{
    _cleanup_free_ char *path = ctx_box_path(ctx, box_id, "monitor.lock");
    int64_t deadline_mono_ms = clock_mono_ms() + MONITOR_KNOWN_MS;
    struct pollfd ready = {.fd = ready_fd, .events = POLLIN};
    uint64_t start = 0;
    pid_t pid = 0;

    while (path && clock_until_ms(deadline_mono_ms) > 0) {
        if (read_monitor_pid(path, &pid, &start) && procfs_is_alive(pid, start))
            return;
        if (poll(&ready, 1, CONTROL_POLL_MS) > 0)
            return;
    }
}

static int start_monitor(struct bh_ctx *ctx, const char *box_id, int64_t deadline_mono_ms,
                         struct err *e)
{
    static const char failed[] = "{\"error\":{\"code\":\"not_found\",\"message\":"
                                 "\"the program bellhop-monitor cannot be executed\"}}\n";
    _cleanup_free_ char *log_path = ctx_box_path(ctx, box_id, "monitor.log");
    _cleanup_close_ int log = -1;
    _cleanup_close_ int ready = -1;
    int p[2] = {-1, -1};
    char start_ms[16], provider_ms[24], none[1] = "";
    char *engine = ctx->docker_host ? ctx->docker_host : none; /* where the box's may have moved */
    struct launch l = {
        .path = ctx->monitor_path,
        .argv = {ctx->monitor_path,
                 (char *)"--state-dir",
                 ctx->state_dir,
                 (char *)"--cache-dir",
                 ctx->cache_dir,
                 (char *)"--agent",
                 ctx->agent_path,
                 (char *)"--recipes",
                 ctx->recipe_dir,
                 (char *)"--images",
                 ctx->image_dir,
                 (char *)"--id",
                 (char *)box_id,
                 (char *)"--ready-fd",
                 (char *)"3",
                 (char *)"--start-ms",
                 start_ms,
                 (char *)"--provider-ms",
                 provider_ms,
                 (char *)"--engine",
                 engine,
                 ctx->debug.fn ? (char *)"--debug" : NULL,
                 (char *)"1",
                 NULL},
        .failed = failed,
        .max_files = ctx->box_max_files,
    };
    off_t log_begin;
    int left_ms, r;

    if (!log_path)
        return err_oom(e);
    left_ms = clock_until_ms(deadline_mono_ms);
    (void)snprintf(start_ms, sizeof(start_ms), "%d", left_ms > 0 ? left_ms : 1);
    (void)snprintf(provider_ms, sizeof(provider_ms), "%" PRId64, ctx->provider_timeout_ms);
    r = open_launch_fds(log_path, &log, p, e);
    ready = p[0];
    l.log_fd = log;
    l.ready_fd = p[1];
    log_begin = r == 0 ? lseek(log, 0, SEEK_END) : 0;
    if (r == 0)
        r = spawn_monitor(&l, e);
    fd_close(p[1]);
    if (r < 0)
        return r;
    (void)http_load(NULL); /* while the monitor works: the caller has requests next */
    r = wait_ready(ctx, ready, log_path, log_begin > 0 ? (size_t)log_begin : 0,
                   deadline_mono_ms + MONITOR_WHY_MS, e);
    if (r == -ERR_EXISTS && e && str_eq(e->field, "monitor"))
        return wait_for_other(ctx, box_id, deadline_mono_ms, e);
    if (r == -ERR_CANCELED || r == -ERR_DEADLINE)
        wait_until_known(ctx, box_id, ready);
    return r;
}

int control_ensure_monitor(struct bh_ctx *ctx, const char *box_id, int64_t deadline_mono_ms,
                           struct err *e)
{
    int r = control_ping(ctx, box_id, NULL);

    if (r == 0 || r == -ERR_CANCELED)
        return r < 0 ? err_set(e, ERR_CANCELED, "canceled") : 0;
    if (r == -ERR_DEADLINE) /* it exists and hangs */
        control_kill_monitor(ctx, box_id);
    return start_monitor(ctx, box_id, deadline_mono_ms, e);
}

/* ---- ending it ---- */

void control_kill_monitor(struct bh_ctx *ctx, const char *box_id)
{
    _cleanup_free_ char *path = ctx_box_path(ctx, box_id, "monitor.lock");
    uint64_t start = 0;
    pid_t pid = 0;

    if (!path || !read_monitor_pid(path, &pid, &start) || pid == getpid())
        return;
    if (procfs_wait_gone(pid, start, MONITOR_EXIT_MS))
        return;
    if (procfs_kill(pid, start, SIGKILL))
        (void)procfs_wait_gone(pid, start, 5000);
}
