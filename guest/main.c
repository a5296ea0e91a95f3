/* bellhopd: options and wiring, nothing else. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "archive/extract.h"
#include "common/cleanup.h"
#include "common/clock.h"
#include "common/io.h"
#include "common/jsonx.h"
#include "common/path.h"
#include "common/str.h"
#include "common/wire/wire.h"
#include "dialect/dialects.h"
#include "fs/inotify_feed.h"
#include "fs/root.h"
#include "options.h"
#include "proc/cgroup.h"
#include "event/loop.h"
#include "proc/registry.h"
#include "agent.h"
#include "api/queue.h"
#include "api/files/resume.h"
#include "api/proxy/forward.h"
#include "api/dialect.h"
#include "http/server.h"
#include "system/activity.h"
#include "system/auth.h"
#include "system/boot/machine.h"
#include "system/dialcmd.h"
#include "system/hold.h"
#include "system/info.h"
#include "system/init.h"
#include "system/log.h"
#include "system/ready.h"
#include "system/token.h"
#include "event/pool.h"
#include "version.h"

#define EXIT_USAGE 2
#define STOP_TICK_MS 20
#define STOP_GRACE_MS 5000 /* between TERM and KILL */
#define STOP_HARD_MS 1500  /* after that */

static void print_version(void)
{
    char libraries[256];

    (void)printf("bellhopd %s (%s), protocol %d\n%s\n", BELLHOP_VERSION, BELLHOP_COMMIT,
                 WIRE_PROTOCOL, info_libraries(server_library(), libraries, sizeof(libraries)));
}

/* ---- the token ---- */

static int read_token_file(const struct options *o, char *out, size_t *ret_len, struct err *e)
{
    struct stat st;
    bool is_removed;
    int r = token_read_file(o->token_file, out, ret_len, &st, e);

    if (r < 0 || !S_ISREG(st.st_mode))
        return r;
    /* In a box nobody needs it again, and a child could read it. */
    is_removed = (o->init || o->token_once) && unlink(o->token_file) == 0;
    if (o->token_once && !is_removed)
        return err_sys(e, errno, "--token-once: remove '%s'", o->token_file);
    if (!is_removed && !o->user && (st.st_uid == geteuid() || st.st_mode & S_IRGRP))
        log_info("commands run as %s of the token file '%s' and can read it: see --token-once",
                 st.st_mode & S_IRGRP ? "the group" : "the owner", o->token_file);
    return r;
}

static int get_token(const struct options *o, char *out, size_t *ret_len, struct err *e)
{
    _cleanup_close_ int null = -1;
    int r;

    if (o->token_file)
        return read_token_file(o, out, ret_len, e);
    r = token_read_fd(o->token_fd, "--token-fd", out, ret_len, e);
    null = o->token_fd <= STDERR_FILENO ? open("/dev/null", O_RDWR | O_CLOEXEC) : -1;
    /* A standard descriptor must not become one of the agent's own. */
    if (null < 0 || dup2(null, o->token_fd) < 0)
        fd_close(o->token_fd);
    return r;
}

/* ---- the agent ---- */

struct app {
    struct options o;
    struct agent agent;
    struct forward *forward; /* or NULL */
    struct holdsock *holdsock;
    struct powerbutton *powerbutton;
    struct fs_feeds *feeds;
    int signal_fd;
    struct loop_watch *signal_watch;
    bool is_stopping;
    bool was_killed;
    int64_t kill_ms, give_up_ms;
};

/* TERM, later KILL, to what we started; as pid 1, to everything in the box. */
static void signal_commands(struct app *a, int sig)
{
    struct proc **list = NULL;
    size_t n = 0;

    if (registry_list(a->agent.registry, &list, &n, NULL) < 0)
        n = 0;
    for (size_t i = 0; i < n; i++) {
        (void)proc_signal(list[i], sig, true, NULL);
        proc_unref(list[i]);
    }
    free(list);
    if (a->o.init)
        init_signal_all(sig);
}

static bool has_commands(struct app *a)
{
    struct registry_counts counts;

    registry_count(a->agent.registry, &counts);
    return counts.running || (a->o.init && init_is_pid_1() && init_has_others());
}

static void on_stop_tick(struct loop *l, void *arg)
{
    struct app *a = arg;
    int64_t now_ms = clock_mono_ms();
    struct loop_timer *timer;

    if ((server_is_idle(a->agent.server) && !has_commands(a)) || now_ms >= a->give_up_ms) {
        loop_stop(l);
        return;
    }
    if (now_ms >= a->kill_ms && !a->was_killed) {
        a->was_killed = true;
        signal_commands(a, SIGKILL);
    }
    if (loop_timer_add(l, now_ms + STOP_TICK_MS, on_stop_tick, a, &timer, NULL) < 0)
        loop_stop(l);
}

static void begin_stop(struct app *a, const char *why)
{
    if (a->is_stopping) {
        a->kill_ms = clock_mono_ms(); /* asked twice: hurry */
        a->give_up_ms = a->kill_ms + STOP_HARD_MS;
        return;
    }
    log_info("%s: stopping", why);
    a->is_stopping = true;
    a->kill_ms = clock_mono_ms() + STOP_GRACE_MS;
    a->give_up_ms = a->kill_ms + STOP_HARD_MS;
    server_quiesce(a->agent.server);
    forward_quiesce(a->forward);
    signal_commands(a, SIGTERM);
    on_stop_tick(a->agent.loop, a);
}

static void on_signal(struct loop *l, uint32_t events, void *arg)
{
    struct app *a = arg;
    struct signalfd_siginfo info;

    (void)l;
    (void)events;
    if (read(a->signal_fd, &info, sizeof(info)) == sizeof(info))
        begin_stop(a, info.ssi_signo == SIGINT ? "interrupted" : "asked to stop");
}

static void on_lease_end(void *arg)
{
    begin_stop(arg, "the box's time is over");
}

static void on_power_button(void *arg)
{
    begin_stop(arg, "the power button was pressed");
}

static int watch_signals(struct app *a, struct err *e)
{
    sigset_t set;

    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGTERM);
    (void)sigaddset(&set, SIGINT);
    (void)sigprocmask(SIG_BLOCK, &set, NULL);
    a->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (a->signal_fd < 0)
        return err_sys(e, errno, "signalfd");
    return loop_watch_add(a->agent.loop, a->signal_fd, EPOLLIN, on_signal, a, &a->signal_watch, e);
}

/* The directory for notes to the next agent; NULL: there is none. Owned by the caller. */
static char *state_dir(const char *name)
{
    const char *home = getenv("HOME");
    _cleanup_free_ char *dir = NULL;

    if (geteuid() == 0)
        return path_join("/var/lib/bellhop", name);
    if (!home || home[0] != '/')
        return NULL;
    dir = path_join(home, ".local/state/bellhop");
    return dir ? path_join(dir, name) : NULL;
}

/*
 * Rolls back the extractions that a killed agent left half done, before anything is served. The agent lists
 * such places; without a list, the next archive to the same place rolls back.
 */
static void recover_archives(void)
{
    _cleanup_free_ char *dir = state_dir("archives");
    struct err e = {0};
    unsigned n;

    if (!dir || archive_use_registry(dir, &e) < 0)
        return;
    n = archive_recover_all();
    if (n)
        log_info("archive: took back %u that were left half done", n);
}

/* Not fatal: a failure is only logged. */
static int start_holdsock(struct app *a, struct err *e)
{
    static const char *const places[] = {HOLDSOCK_PATH, HOLDSOCK_PATH_STRICT};
    struct agent *g = &a->agent;
    struct err why = {0};
    int r = 0;

    if (a->o.hold_socket) {
        r = holdsock_new(g->loop, g->holds, a->o.hold_socket, &a->holdsock, e);
        return r < 0 ? err_wrap(e, r, "--hold-socket") : 0;
    }
    if (!a->o.init || !init_is_pid_1())
        return 0;
    for (size_t i = 0; !a->holdsock && i < N_ELEMENTS(places); i++)
        r = holdsock_new(g->loop, g->holds, places[i], &a->holdsock, &why);
    if (r < 0)
        log_info("no socket for `bellhopd hold`: %s", why.message);
    return 0;
}

static int new_resumes(struct app *a, struct err *e)
{
    _cleanup_free_ char *dir = a->o.read_only ? NULL : state_dir("uploads");
    struct agent *g = &a->agent;
    struct resume_store *store = NULL;
    int r = resume_store_new(dir, g->root, g->default_user, &store, e);

    if (r == 0)
        r = resumes_new(g->pool, (int64_t)RESUME_AGE_S * 1000, store, &g->resumes, e);
    if (r < 0)
        resume_store_free(store);
    return r;
}

static int start_reports(struct agent *g, struct err *e)
{
    const struct ready_options o = {
        .registry = g->registry, .required = g->required, .default_user = g->default_user};
    int r = ready_new(&o, &g->ready, e);

    return r < 0 ? r : activity_new(g->registry, g->holds, &g->activity, e);
}

static int start_agent(struct app *a, struct err *e)
{
    struct agent *g = &a->agent;
    int r;

    g->started_mono_ms = clock_mono_ms();
    g->default_user = a->o.user;
    g->workdir = a->o.workdir;
    g->required = a->o.required;
    g->is_read_only = a->o.read_only;
    g->allows_pages = a->o.cors;
    g->http_library = server_library();
    if ((r = loop_new(&g->loop, e)) < 0 || (r = watch_signals(a, e)) < 0 ||
        (r = pool_new(&g->pool, e)) < 0 ||
        (r = registry_new(g->loop, g->pool, &a->o.exec, &g->registry, e)) < 0 ||
        (r = fs_root_new(a->o.root, &g->root, e)) < 0 ||
        (r = fs_feeds_new(g->loop, &a->feeds, e)) < 0 || (r = holds_new(&g->holds, e)) < 0 ||
        (r = start_reports(g, e)) < 0 || (r = dialects_start(g, dialects, e)) < 0 ||
        (r = new_resumes(a, e)) < 0 || (r = start_holdsock(a, e)) < 0)
        return r;
    fs_root_set_feeds(g->root, a->feeds);
    g->generation = 1;
    if (!a->o.read_only)
        recover_archives();
    queue_use_pool(g->pool);
    if (!a->o.init)
        return 0;
    r = lease_new(g->loop, on_lease_end, a, &g->lease, e);
    return r < 0 || !init_is_pid_1()
               ? r
               : powerbutton_new(g->loop, on_power_button, a, &a->powerbutton, e);
}

static int start_server(struct app *a, struct err *e)
{
    const struct server_options so = {
        .service = &agent_service,
        .owner = &a->agent,
        .loop = a->agent.loop,
        .pool = a->agent.pool,
        .max_connections = a->o.max_connections,
        .keepalive_ms = (unsigned)a->o.keepalive_ms,
        .allow_hosts = a->o.allow_hosts,
    };
    int r;

    r = server_new(&so, &a->agent.server, e);
    for (char **p = a->o.listen; p && *p && r == 0; p++)
        r = server_listen_tcp(a->agent.server, *p, e);
    for (char **p = a->o.unix_paths; p && *p && r == 0; p++)
        r = server_listen_unix(a->agent.server, *p, e);
    if (r == 0 && a->o.forward_localhost)
        r = forward_new(&a->agent, a->o.forward_localhost, &a->forward, e);
    if (r == 0)
        r = server_start(a->agent.server, e);
    return r == 0 && a->forward ? forward_start(a->forward, e) : r;
}

static json_t *new_list(const struct server *s, const char *(*get)(const struct server *, size_t))
{
    json_t *list = json_array();

    for (size_t i = 0; list && get(s, i); i++)
        (void)json_array_append_new(list, json_string(get(s, i)));
    return list;
}

static int say_ready(const struct app *a, struct err *e)
{
    _cleanup_json_ json_t *v =
        json_pack("{s:o, s:o, s:i, s:i, s:s}", "tcp", new_list(a->agent.server, server_tcp_address),
                  "unix", new_list(a->agent.server, server_unix_path), "pid", (int)getpid(),
                  "protocol", WIRE_PROTOCOL, "version", BELLHOP_VERSION);
    _cleanup_free_ char *line = NULL;
    size_t len;
    int r;

    if (!v)
        return err_oom(e);
    r = jx_dump(v, &line, &len, e);
    if (r < 0)
        return r;
    line[len] = '\n'; /* in the place of the NUL */
    log_info("version %s answers: %.*s", BELLHOP_VERSION, (int)len, line);
    if (a->o.ready_fd < 0)
        return 0;
    r = io_write_all(a->o.ready_fd, line, len + 1, e);
    fd_close(a->o.ready_fd);
    return r < 0 ? err_wrap(e, r, "--ready-fd %d", a->o.ready_fd) : 0;
}

/* A box whose template is not as it should be is still there to be looked at. */
static void take_variables(struct app *a)
{
    struct err e = {0};

    if (a->o.env_file && environ_load_file(a->agent.registry, a->o.env_file, &e) < 0)
        log_error("%s", e.message);
}

static void start_template(struct app *a)
{
    struct err e = {0};

    if (a->o.start_file &&
        registry_start_file(a->agent.registry, a->o.start_file, a->o.user, a->o.workdir, &e) < 0)
        log_error("%s", e.message);
}

/* *ret_before: what commands get, as if the agent had not. */
static void raise_fd_limit(rlim_t *ret_before)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
        return;
    *ret_before = limit.rlim_cur;
    limit.rlim_cur = limit.rlim_max < MAX_FDS ? limit.rlim_max : MAX_FDS;
    (void)setrlimit(RLIMIT_NOFILE, &limit);
}

static void keep_inherited_fd(int fd)
{
    if (fd >= 0)
        (void)fcntl(fd, F_SETFD, FD_CLOEXEC);
}

/* Most containers have no groups that they may write to: nothing is missing there. */
static void keep_apart(void)
{
    struct err e = {0};

    if (cgroup_split_set_up(&e) < 0)
        log_write(LOG_LEVEL_DEBUG, "commands are not kept apart from the agent: %s", e.message);
}

static int run_agent(struct app *a, struct err *e)
{
    char token[TOKEN_MAX_BYTES] = "";
    size_t token_len = 0;
    int r;

    if (!a->o.auth_open && (r = get_token(&a->o, token, &token_len, e)) < 0)
        return r;
    keep_apart();
    r = auth_new(a->o.auth_open ? NULL : token, token_len, &a->agent.auth, e);
    explicit_bzero(token, sizeof(token));
    if (r == 0)
        r = start_agent(a, e);
    if (r == 0) {
        take_variables(a); /* before the first command can come */
        r = start_server(a, e);
    }
    if (r == 0)
        r = say_ready(a, e);
    if (r == 0)
        start_template(a);
    return r < 0 ? r : loop_run(a->agent.loop, e);
}

/*
 * The state that clients have left (a watch, say) is freed by the loop and the pool in turns. False: a thread
 * is still at work.
 */
static bool settle_threads(struct agent *g)
{
    int64_t deadline = clock_mono_ms() + STOP_HARD_MS;
    unsigned busy, waiting;

    for (;;) {
        pool_counts(g->pool, &busy, &waiting);
        if (!loop_run_posted(g->loop) && !busy && !waiting)
            return true;
        if (clock_mono_ms() >= deadline)
            return false;
        (void)poll(NULL, 0, busy || waiting ? 1 : 0);
    }
}

/* False: a thread hangs (in a frozen file system, say, or for want of processor): all stays as it is. */
static bool tear_down(struct app *a)
{
    struct agent *g = &a->agent;

    forward_quiesce(a->forward);
    if (g->server && !server_stop(g->server, STOP_HARD_MS))
        return false;
    if (g->pool && !settle_threads(g))
        return false;
    dialects_stop(g); /* with what they watch */
    if (g->pool && !settle_threads(g))
        return false;
    g->pool = pool_free(g->pool, STOP_HARD_MS);
    if (g->pool)
        return false;
    a->forward = forward_free(a->forward);
    g->server = server_free(g->server);
    g->resumes = resumes_free(g->resumes);
    g->lease = lease_free(g->lease);
    a->powerbutton = powerbutton_free(a->powerbutton);
    a->holdsock = holdsock_free(a->holdsock);
    g->holds = holds_free(g->holds);
    g->activity = activity_free(g->activity);
    g->ready = ready_free(g->ready);
    g->auth = auth_free(g->auth);
    loop_watch_del(a->signal_watch);
    g->registry = registry_free(g->registry);
    cgroup_split_undo();
    g->loop = loop_free(g->loop);
    a->feeds = fs_feeds_free(a->feeds);
    g->root = fs_root_free(g->root);
    fd_close(a->signal_fd);
    options_done(&a->o);
    return true;
}

int main(int argc, char **argv)
{
    struct app a = {
        .o = {.token_fd = -1,
              .ready_fd = -1,
              .root = "/",
              .max_connections = SERVER_MAX_CONNECTIONS,
              .keepalive_ms = SERVER_KEEPALIVE_MS},
        .signal_fd = -1,
    };
    struct err e = {0};
    bool is_free;
    int r;

    if (machine_is_starting() && machine_start(&argc, &argv, &e) < 0) {
        log_error("%s", e.message);
        machine_power_off();
        return 1;
    }
    if (argc > 1 && str_eq(argv[1], "hold"))
        return holdcmd_main(argc - 2, argv + 2);
    if (argc > 1 && str_eq(argv[1], "dial"))
        return dialcmd_main(argc - 2, argv + 2);
    for (int i = 1; i < argc; i++) {
        if (str_eq(argv[i], "--help"))
            return (void)options_print_help(), 0;
        if (str_eq(argv[i], "--version"))
            return (void)print_version(), 0;
    }
    /* A command of the same user must not read the token out of our memory. */
    (void)prctl(PR_SET_DUMPABLE, 0);
    (void)signal(SIGPIPE, SIG_IGN);
    raise_fd_limit(&a.o.exec.nofile);
    r = options_parse(argc, argv, &a.o, &e);
    if (r == 0)
        r = options_check(&a.o, &e);
    if (r < 0) {
        log_error("%s", e.message);
        options_done(&a.o);
        machine_power_off();
        return EXIT_USAGE;
    }
    keep_inherited_fd(a.o.token_fd);
    keep_inherited_fd(a.o.ready_fd);
    r = run_agent(&a, &e);
    if (r < 0)
        log_error("%s", e.message);
    is_free = tear_down(&a);
    machine_power_off();
    if (!is_free)
        _exit(r < 0 ? 1 : 0); /* at once: exit() would take down what that thread stands on */
    return r < 0 ? 1 : 0;
}
