/* bellhop-monitor: libbellhop starts one for each box; people do not. Options and wiring. */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/io.h"
#include "common/jsonx.h"
#include "common/str.h"
#include "lib/box/box_provider.h"
#include "lib/box/bringup.h"
#include "lib/box/control.h"
#include "lib/util/debug.h"
#include "lib/util/procfs.h"
#include "monitor/guard.h"
#include "monitor/monitor.h"

#define DEBUG_MAX_BYTES (10 << 20)
#define ADOPT_MS 60000 /* for the guest agent's response */
#define AGAIN_LOCK_MS 3000
#define AGAIN_POLL_MS 20

enum {
    ARG_STATE,
    ARG_CACHE,
    ARG_AGENT,
    ARG_RECIPES,
    ARG_IMAGES,
    ARG_ID,
    ARG_READY,
    ARG_START_MS,
    ARG_PROVIDER_MS,
    ARG_ENGINE,
    ARG_DEBUG,
    N_ARGS
};

static const struct option monitor_options[] = {
    {"state-dir", required_argument, NULL, ARG_STATE},
    {"cache-dir", required_argument, NULL, ARG_CACHE},
    {"agent", required_argument, NULL, ARG_AGENT},
    {"recipes", required_argument, NULL, ARG_RECIPES},
    {"images", required_argument, NULL, ARG_IMAGES},
    {"id", required_argument, NULL, ARG_ID},
    {"ready-fd", required_argument, NULL, ARG_READY},
    {"start-ms", required_argument, NULL, ARG_START_MS},
    {"provider-ms", required_argument, NULL, ARG_PROVIDER_MS},
    {"engine", required_argument, NULL, ARG_ENGINE},
    {"debug", required_argument, NULL, ARG_DEBUG},
    {0},
};

static int parse_options(int argc, char **argv, const char *args[N_ARGS])
{
    int c;

    while ((c = getopt_long(argc, argv, "", monitor_options, NULL)) >= 0) {
        if (c >= N_ARGS)
            return -1;
        args[c] = optarg;
    }
    return args[ARG_STATE] && args[ARG_CACHE] && args[ARG_ID] && optind == argc ? 0 : -1;
}

/* Writes one line to the ready descriptor, for the command that started us. */
static void tell_ready(int fd, int r, const struct err *e)
{
    _cleanup_json_ json_t *obj =
        r == 0 ? json_pack("{s:b}", "ok", 1) : json_pack("{s:o}", "error", jx_new_error(e));
    _cleanup_free_ char *text = NULL;
    size_t len = 0;

    if (fd < 0 || !obj || jx_dump(obj, &text, &len, NULL) < 0)
        return;
    text[len] = '\n';
    (void)io_write_all(fd, text, len + 1, NULL);
    fd_close(fd);
}

/* One monitor for each box: the process holds the lock as long as it lives. */
static int take_lock(struct bh_ctx *ctx, const char *id, struct err *e)
{
    _cleanup_free_ char *path = ctx_box_path(ctx, id, "monitor.lock");
    char text[64];
    int fd;
    int n;

    fd = path ? open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600) : -1;
    if (fd < 0)
        return err_sys(e, errno, "open '%s'", path ? path : "monitor.lock");
    if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
        fd_close(fd);
        return err_field(e, ERR_EXISTS, "monitor", "the box has a monitor already");
    }
    n = snprintf(text, sizeof(text), "%d %llu\n", (int)getpid(),
                 (unsigned long long)procfs_start_time(getpid()));
    if (ftruncate(fd, 0) < 0 || pwrite(fd, text, (size_t)n, 0) != n) {
        fd_close(fd);
        return err_sys(e, errno, "write '%s'", path);
    }
    return 0; /* fd stays open for the life of the process */
}

static void set_up_process(void)
{
    sigset_t set;

    (void)umask(077);
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGCHLD);
    (void)sigaddset(&set, SIGTERM);
    (void)sigaddset(&set, SIGINT);
    (void)sigprocmask(SIG_BLOCK, &set, NULL);
    (void)signal(SIGPIPE, SIG_IGN);
    (void)signal(SIGHUP, SIG_IGN);
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1);
}

/* A time in milliseconds, which a command has formatted. */
static int64_t read_ms(const char *text, int64_t missing)
{
    uint64_t ms = 0;

    return text && str_parse_u64(text, 1, INT32_MAX, &ms, NULL) == 0 ? (int64_t)ms : missing;
}

/* A line of the debug log goes to monitor.log, as all that the monitor says, up to a size. */
static void take_line(void *arg, const char *part, const char *text)
{
    _cleanup_free_ char *line = debug_format(part, text);
    struct stat st;

    (void)arg;
    if (line && fstat(STDERR_FILENO, &st) == 0 && st.st_size < DEBUG_MAX_BYTES)
        (void)io_write_all(STDERR_FILENO, line, strlen(line), NULL);
}

static int open_context(const char *args[N_ARGS], struct bh_ctx **ret, struct err *e)
{
    struct bh_options o = {
        .size = sizeof(o),
        .state_dir = args[ARG_STATE],
        .cache_dir = args[ARG_CACHE],
        .agent_path = args[ARG_AGENT],
        .recipe_dir = args[ARG_RECIPES],
        .image_dir = args[ARG_IMAGES],
        .cancel_fd = -1,
        .actor = "monitor",
        .records_for_ms = INT64_MAX / 2, /* commands forget records: they know for how long */
        .debug = args[ARG_DEBUG] ? take_line : NULL,
        .provider_timeout_ms = read_ms(args[ARG_PROVIDER_MS], 0),
        .docker_host = args[ARG_ENGINE],
        .daemon = "none", /* it does what a daemon asks for */
    };
    struct bh_error error;
    int r = bh_open(&o, ret, &error);

    return r < 0 ? err_set(e, (enum err_code)error.code, "%s", error.message) : 0;
}

/* Stops a box that did not become ready; the command decides what follows. One that ran before runs on. */
static void give_up(struct monitor *m)
{
    if (m->box && m->has_started)
        (void)box_provider_stop(m->box, 0, NULL);
}

static int run_first(const char *args[N_ARGS], int ready_fd, struct err *e)
{
    const struct monitor_options o = {
        .deadline_mono_ms = clock_mono_ms() + read_ms(args[ARG_START_MS], BRINGUP_TIMEOUT_MS)};
    struct bh_ctx *ctx = NULL;
    struct monitor m;
    int r = open_context(args, &ctx, e);

    if (r == 0)
        r = take_lock(ctx, args[ARG_ID], e);
    /* The lock is of a file, which somebody may have removed under a monitor. */
    if (r == 0 && control_ping(ctx, args[ARG_ID], NULL) == 0)
        r = err_field(e, ERR_EXISTS, "monitor", "the box has a monitor already, which answers");
    if (r < 0) {
        tell_ready(ready_fd, r, e);
        (void)bh_close(ctx);
        return r;
    }
    r = monitor_start(&m, ctx, args[ARG_ID], &o, e);
    if (r < 0)
        give_up(&m);
    tell_ready(ready_fd, r, e);
    if (r == 0)
        r = monitor_run(&m, e);
    monitor_done(&m);
    (void)bh_close(ctx);
    return r;
}

/* ---- in the place of one that was killed ---- */

/* The killed monitor's lock goes with it; a process that it had just forked may hold the lock
 * for a moment. */
static int take_lock_again(struct bh_ctx *ctx, const char *id, struct err *e)
{
    int64_t deadline = clock_mono_ms() + AGAIN_LOCK_MS;
    int r = take_lock(ctx, id, e);

    while (r == -ERR_EXISTS && clock_until_ms(deadline) > 0) {
        (void)poll(NULL, 0, AGAIN_POLL_MS);
        r = take_lock(ctx, id, e);
    }
    return r;
}

/* Holds the name lock, so that no command starts, stops or removes the box meanwhile.
 * ERR_NOT_FOUND: no box runs, so there is nothing to do. */
static int adopt_locked(struct bh_ctx *ctx, const char *id, struct monitor *m, struct err *e)
{
    const struct monitor_options o = {.adopt_only = true,
                                      .deadline_mono_ms = clock_mono_ms() + ADOPT_MS};
    struct box_row row = {0};
    bool is_live;
    int r = store_get(ctx->store, id, &row, e);

    if (r < 0)
        return r;
    is_live = box_row_is_live(&row);
    box_row_done(&row);
    if (!is_live)
        return err_set(e, ERR_NOT_FOUND, "the box does not run");
    r = control_ping(ctx, id, NULL) == 0 ? -ERR_EXISTS : take_lock_again(ctx, id, e);
    if (r == -ERR_EXISTS)
        return err_set(e, ERR_NOT_FOUND, "a command has started another monitor");
    if (r == 0)
        r = monitor_start(m, ctx, id, &o, e);
    if (r == 0 && !m->is_paused && box_row_is_paused(&m->box->row))
        r = store_set_state(ctx->store, id, BH_STATE_RUNNING, "interrupted", e);
    if (r == -ERR_NOT_FOUND && m->box)
        (void)bringup_stop_locked(m->box, "it ended with its monitor", NULL);
    return r;
}

static int adopt_box(struct bh_ctx *ctx, const char *id, struct monitor *m, struct err *e)
{
    _cleanup_close_ int lock = -1;
    struct box_row row = {0}, now = {0};
    int r = store_get(ctx->store, id, &row, e);

    if (r == 0)
        r = store_lock_name(ctx->store, row.name, clock_mono_ms() + BOX_WAIT_MS, -1, &lock, e);
    if (r == 0)
        r = adopt_locked(ctx, id, m, e);
    if (r < 0 && lock >= 0 && store_find(ctx->store, row.name, &now, NULL) == -ERR_NOT_FOUND)
        store_forget_lock(ctx->store, row.name); /* store_lock_name() made this file */
    box_row_done(&now);
    box_row_done(&row);
    return r;
}

/* Replaces a killed monitor: the box keeps its lease and ports. This never starts a box. */
static int run_again(const char *args[N_ARGS], struct err *e)
{
    struct monitor m = {.signal_fd = -1, .exit = {.fd = -1}};
    struct bh_ctx *ctx = NULL;
    int r = open_context(args, &ctx, e);

    if (r == 0)
        r = adopt_box(ctx, args[ARG_ID], &m, e);
    if (r == 0)
        r = monitor_run(&m, e);
    monitor_done(&m);
    (void)bh_close(ctx);
    return r == -ERR_NOT_FOUND ? 0 : r;
}

int main(int argc, char **argv)
{
    const char *args[N_ARGS] = {NULL};
    uint64_t ready = 0;
    struct err e = {0};
    bool is_again;

    if (parse_options(argc, argv, args) < 0 ||
        (args[ARG_READY] && str_parse_u64(args[ARG_READY], 3, 1024, &ready, NULL) < 0)) {
        (void)fprintf(stderr, "bellhop-monitor is started by bellhop; see bellhop(1)\n");
        return 2;
    }
    is_again = guard_begin(argv[0], ready ? (int)ready : -1);
    set_up_process();
    if (ready && !is_again)
        (void)fcntl((int)ready, F_SETFD, FD_CLOEXEC);
    if ((is_again ? run_again(args, &e) : run_first(args, ready ? (int)ready : -1, &e)) < 0) {
        (void)fprintf(stderr, "bellhop-monitor: %s\n", e.message);
        return 1;
    }
    return 0;
}
