/* bellhopd: options and wiring, nothing else. */
#include <errno.h>
#include <fcntl.h>
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

#include "archive/recover.h"
#include "common/cleanup.h"
#include "common/clock.h"
#include "common/io.h"
#include "common/jsonx.h"
#include "common/path.h"
#include "common/str.h"
#include "common/wire/wire.h"
#include "fs/root.h"
#include "proc/loop.h"
#include "proc/registry.h"
#include "rpc/agent.h"
#include "rpc/queue.h"
#include "rpc/ready.h"
#include "server/server.h"
#include "system/activity.h"
#include "system/hold.h"
#include "system/holdcmd.h"
#include "system/holdsock.h"
#include "system/info.h"
#include "system/init.h"
#include "system/lease.h"
#include "system/log.h"
#include "system/pool.h"
#include "version.h"

#include "common/banned.h"

#define EXIT_USAGE 2
#define TOKEN_MAX_BYTES 4096
#define TOKEN_MIN_BYTES 8
#define MAX_FDS 65536
#define MAX_COMMANDS 100000
#define MIN_KEEP_MS 100
#define MAX_KEEP_MS (7 * 24 * 3600 * 1000)
#define MIN_SIZE_BYTES (64 * 1024)
#define MAX_SIZE_BYTES ((uint64_t)1 << 40)
#define STOP_TICK_MS 20
#define STOP_GRACE_MS 5000 /* between TERM and KILL */
#define STOP_HARD_MS 1500  /* after that */

/* ---- options ---- */

struct options {
    char **listen;
    char **unix_paths;
    const char *token_file;
    int token_fd;
    bool token_once;
    bool auth_open;
    const char *root;
    const char *user;
    const char *workdir;
    int ready_fd;
    bool init;
    bool read_only;
    char **required;
    unsigned max_connections;
    unsigned keepalive_ms;
    struct registry_options exec;
    const char *hold_socket;
};

enum option_kind {
    OPTION_FLAG,
    OPTION_STRING,
    OPTION_LIST,  /* may be given several times */
    OPTION_WORDS, /* comma-separated */
    OPTION_FD,
    OPTION_COUNT,
    OPTION_DURATION,
    OPTION_TIME,   /* a duration as int64_t */
    OPTION_SIZE,   /* bytes as size_t */
    OPTION_NUMBER, /* as size_t */
    OPTION_AUTH,
    OPTION_LOG,
};

struct option_row {
    const char *name;
    const char *value; /* as --help calls it; NULL: takes none */
    enum option_kind kind;
    size_t offset;
    const char *help;
};

#define AT(member) offsetof(struct options, member)

static const struct option_row rows[] = {
    {"listen", "ADDR:PORT", OPTION_LIST, AT(listen),
     "accept TCP connections here; port 0 picks a free one; may be given again"},
    {"unix", "PATH", OPTION_LIST, AT(unix_paths), "accept connections on this unix socket"},
    {"token-file", "FILE", OPTION_STRING, AT(token_file),
     "the secret that clients must send; a file nobody else can read (0600)"},
    {"token-fd", "N", OPTION_FD, AT(token_fd), "the same, read from an inherited descriptor"},
    {"token-once", NULL, OPTION_FLAG, AT(token_once),
     "remove the token file once it is read, before anything is served (--init does so too)"},
    {"auth", "open", OPTION_AUTH, AT(auth_open), "let everybody in who can reach a listener"},
    {"root", "DIR", OPTION_STRING, AT(root), "nothing outside can be reached by path (default /)"},
    {"user", "USER", OPTION_STRING, AT(user), "run commands and own files as this user"},
    {"workdir", "DIR", OPTION_STRING, AT(workdir),
     "where commands and relative paths start (default: the user's home)"},
    {"ready-fd", "N", OPTION_FD, AT(ready_fd),
     "write one line of JSON with the addresses there once the agent answers"},
    {"require", "LIST", OPTION_WORDS, AT(required),
     "tools without which /v1/ready says no (default fd,rg,git)"},
    {"read-only", NULL, OPTION_FLAG, AT(read_only), "refuse everything that changes something"},
    {"init", NULL, OPTION_FLAG, AT(init),
     "be the box's first process: mount, reap, end the box with a lease"},
    {"max-connections", "N", OPTION_COUNT, AT(max_connections), "at a time (default 1024)"},
    {"keepalive", "TIME", OPTION_DURATION, AT(keepalive_ms),
     "say something in a stream that was silent for so long (default 10s)"},
    {"max-commands", "N", OPTION_NUMBER, AT(exec.max_running), "running at a time (default 1024)"},
    {"keep-results", "TIME", OPTION_TIME, AT(exec.keep_ms),
     "how long the result of a command can be read after its end (default 10m)"},
    {"max-results", "N", OPTION_NUMBER, AT(exec.max_kept), "how many are kept (default 1000)"},
    {"output-memory", "SIZE", OPTION_SIZE, AT(exec.output_bytes),
     "for the output kept of all commands (default 64M)"},
    {"spill-disk", "SIZE", OPTION_SIZE, AT(exec.spill_bytes),
     "for the output that commands ask to be spilled to a file (default 1G)"},
    {"spill-dir", "DIR", OPTION_STRING, AT(exec.spill_dir),
     "where those files are; they have no names (default /var/tmp, or else /tmp)"},
    {"hold-socket", "PATH", OPTION_STRING, AT(hold_socket),
     "where `bellhopd hold` finds this agent (default: none; as pid 1 of a box one in /run)"},
    {"log", "LEVEL", OPTION_LOG, 0, "error, info (default) or debug, to standard error"},
};

static void print_help(void)
{
    (void)printf(
        "Usage: bellhopd (--listen ADDR:PORT | --unix PATH)... \\\n"
        "                (--token-file FILE | --token-fd N | --auth=open) [OPTION...]\n"
        "       bellhopd hold [--for TIME] [--reason TEXT] [-- COMMAND...]\n\n"
        "Serves commands, files, search and archives of this machine on one port, for the\n"
        "programs that use it as a sandbox.\n\n");
    for (size_t i = 0; i < N_ELEMENTS(rows); i++) {
        char left[64];

        (void)snprintf(left, sizeof(left), "--%s%s%s", rows[i].name, rows[i].value ? " " : "",
                       rows[i].value ? rows[i].value : "");
        (void)printf("  %-24s %s\n", left, rows[i].help);
    }
    (void)printf("  %-24s %s\n  %-24s %s\n", "--version", "print versions", "--help", "print this");
    (void)printf(
        "\nTry it:\n"
        "  bellhopd --listen 127.0.0.1:7070 --auth=open &\n"
        "  curl -H 'Content-Type: application/json' -d '{\"argv\":[\"uname\",\"-a\"]}' \\\n"
        "       http://127.0.0.1:7070/bellhop.v1.Exec/Run\n"
        "  curl http://127.0.0.1:7070/v1/files//etc/hostname\n");
}

static void print_version(void)
{
    char libraries[256];

    (void)printf("bellhopd %s (%s), protocol %d\n%s\n", BELLHOP_VERSION, BELLHOP_COMMIT,
                 WIRE_PROTOCOL, info_libraries(server_library(), libraries, sizeof(libraries)));
}

static int set_words(char ***list, const char *text, struct err *e)
{
    _cleanup_free_ char *copy = strdup(text);
    char *rest = copy, *word;

    if (!copy)
        return err_oom(e);
    *list = strv_free(*list);
    while ((word = strsep(&rest, ",")))
        if (*word && strv_push(list, word, e) < 0)
            return -ERR_EXHAUSTED;
    if (!*list) /* an empty list is not the default one */
        *list = calloc(1, sizeof(char *));
    return *list ? 0 : err_oom(e);
}

static int set_log(const char *value, struct err *e)
{
    static const char *const names[] = {"error", "info", "debug"};

    for (size_t i = 0; i < N_ELEMENTS(names); i++)
        if (str_eq(value, names[i])) {
            log_set_level((enum log_level)i);
            return 0;
        }
    return err_set(e, ERR_INVALID, "must be error, info or debug");
}

static int set_number(const char *value, uint64_t min, uint64_t max, void *at, struct err *e)
{
    uint64_t n;
    int r = str_parse_u64(value, min, max, &n, e);

    if (r == 0)
        *(unsigned *)at = (unsigned)n;
    return r;
}

static int set_option(struct options *o, const struct option_row *row, const char *value,
                      struct err *e)
{
    void *at = (char *)o + row->offset;
    uint64_t bytes;
    int64_t ms;
    int r;

    switch (row->kind) {
    case OPTION_FLAG:
        *(bool *)at = true;
        return 0;
    case OPTION_STRING:
        *(const char **)at = value;
        return 0;
    case OPTION_LIST:
        return strv_push(at, value, e);
    case OPTION_WORDS:
        return set_words(at, value, e);
    case OPTION_FD:
        return set_number(value, 0, MAX_FDS, at, e);
    case OPTION_COUNT:
        return set_number(value, 1, MAX_FDS / 2, at, e);
    case OPTION_TIME:
        r = str_parse_duration(value, &ms, e);
        if (r == 0 && (ms < MIN_KEEP_MS || ms > MAX_KEEP_MS))
            return err_set(e, ERR_INVALID, "must be from 100ms to 7d");
        if (r == 0)
            *(int64_t *)at = ms;
        return r;
    case OPTION_SIZE:
        r = str_parse_size(value, &bytes, e);
        if (r == 0 && (bytes < MIN_SIZE_BYTES || bytes > MAX_SIZE_BYTES))
            return err_set(e, ERR_INVALID, "must be from 64K to 1024G");
        if (r == 0)
            *(size_t *)at = (size_t)bytes;
        return r;
    case OPTION_NUMBER:
        r = str_parse_u64(value, 1, MAX_COMMANDS, &bytes, e);
        if (r == 0)
            *(size_t *)at = (size_t)bytes;
        return r;
    case OPTION_AUTH:
        *(bool *)at = true;
        return str_eq(value, "open") ? 0 : err_set(e, ERR_INVALID, "can only be 'open'");
    case OPTION_LOG:
        return set_log(value, e);
    case OPTION_DURATION:
        r = str_parse_duration(value, &ms, e);
        if (r == 0 && (ms < 100 || ms > 3600000))
            return err_set(e, ERR_INVALID, "must be from 100ms to 1h");
        if (r == 0)
            *(unsigned *)at = (unsigned)ms;
        return r;
    }
    return err_set(e, ERR_INTERNAL, "an option of no kind");
}

static const struct option_row *find_option(const char *arg, const char **ret_value)
{
    size_t len = strcspn(arg, "=");

    for (size_t i = 0; i < N_ELEMENTS(rows); i++)
        if (strlen(rows[i].name) == len && strncmp(rows[i].name, arg, len) == 0) {
            *ret_value = arg[len] ? arg + len + 1 : NULL;
            return &rows[i];
        }
    return NULL;
}

static int parse_options(int argc, char **argv, struct options *o, struct err *e)
{
    for (int i = 1; i < argc; i++) {
        const char *value = NULL;
        const struct option_row *row =
            str_has_prefix(argv[i], "--") ? find_option(argv[i] + 2, &value) : NULL;
        int r;

        if (!row)
            return err_set(e, ERR_INVALID, "unknown option '%.80s'", argv[i]);
        if (!row->value && value)
            return err_set(e, ERR_INVALID, "option '--%s' takes no value", row->name);
        if (row->value && !value && !argv[i + 1])
            return err_set(e, ERR_INVALID, "option '--%s' needs a value: %s", row->name,
                           row->value);
        if (row->value && !value)
            value = argv[++i];
        r = set_option(o, row, value, e);
        if (r < 0)
            return err_wrap(e, r, "option '--%s'", row->name);
    }
    return 0;
}

static int check_options(const struct options *o, struct err *e)
{
    int n_auth = (o->token_file != NULL) + (o->token_fd >= 0) + o->auth_open;

    if (!o->listen && !o->unix_paths)
        return err_set(e, ERR_INVALID,
                       "nowhere to listen: give --listen ADDR:PORT or --unix PATH (see --help)");
    if (n_auth == 0)
        return err_set(e, ERR_INVALID,
                       "no token: give --token-file FILE, --token-fd N, or --auth=open to let "
                       "everybody in");
    if (o->token_once && !o->token_file)
        return err_set(e, ERR_INVALID, "--token-once goes with --token-file");
    if (n_auth > 1)
        return err_set(e, ERR_INVALID,
                       "--token-file, --token-fd and --auth=open exclude each other");
    if (o->workdir && o->workdir[0] != '/')
        return err_set(e, ERR_INVALID, "--workdir must be an absolute path");
    return 0;
}

/* ---- the token ---- */

static int read_token(int fd, const char *name, char out[TOKEN_MAX_BYTES], size_t *ret_len,
                      struct err *e)
{
    size_t len = 0;
    int r;

    r = io_read_full(fd, out, TOKEN_MAX_BYTES, &len, e);
    if (r < 0)
        return err_wrap(e, r, "the token in %s", name);
    while (len && (out[len - 1] == '\n' || out[len - 1] == '\r' || out[len - 1] == ' '))
        len--;
    if (len < TOKEN_MIN_BYTES || len == TOKEN_MAX_BYTES)
        return err_set(e, ERR_INVALID, "the token in %s must have from %d to %d characters", name,
                       TOKEN_MIN_BYTES, TOKEN_MAX_BYTES - 1);
    for (size_t i = 0; i < len; i++)
        if (out[i] <= ' ' || out[i] > '~')
            return err_set(e, ERR_INVALID, "the token in %s has characters a header can't carry",
                           name);
    *ret_len = len;
    return 0;
}

static int read_token_file(const struct options *o, char *out, size_t *ret_len, struct err *e)
{
    _cleanup_close_ int fd = open(o->token_file, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    char name[256];
    struct stat st;
    int r;

    if (fd < 0 || fstat(fd, &st) < 0)
        return err_sys(e, errno, "the token file '%s'", o->token_file);
    if (S_ISREG(st.st_mode) && st.st_mode & 077)
        return err_set(e, ERR_DENIED,
                       "others can read the token file '%s': its mode must be 0600 or 0400",
                       o->token_file);
    (void)snprintf(name, sizeof(name), "'%s'", o->token_file);
    r = read_token(fd, name, out, ret_len, e);
    if (r < 0 || !S_ISREG(st.st_mode))
        return r;
    /* In a box nobody needs it again, and a child could read it. */
    if ((o->init || o->token_once) && unlink(o->token_file) < 0 && o->token_once)
        return err_sys(e, errno, "--token-once: remove '%s'", o->token_file);
    if (!o->init && !o->token_once && !o->user && st.st_uid == geteuid())
        log_info(
            "commands run as the owner of the token file '%s' and can read it: see --token-once",
            o->token_file);
    return r;
}

static int get_token(const struct options *o, char *out, size_t *ret_len, struct err *e)
{
    int r;

    if (o->token_file)
        return read_token_file(o, out, ret_len, e);
    r = read_token(o->token_fd, "--token-fd", out, ret_len, e);
    fd_close(o->token_fd);
    return r;
}

/* ---- the agent ---- */

struct app {
    struct options o;
    struct agent agent;
    struct server *server;
    struct holdsock *holdsock;
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
    if (a->o.init && (sig == SIGKILL || init_is_pid_1()))
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

    if ((server_is_idle(a->server) && !has_commands(a)) || now_ms >= a->give_up_ms) {
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
    server_quiesce(a->server);
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

/*
 * What an agent that was killed in the middle of putting an archive in place left half done is taken
 * back before anything is served. The list of such places is the agent's own; where it can't have
 * one, the next archive to the same place takes it back.
 */
static void recover_archives(void)
{
    static const char for_root[] = "/var/lib/bellhop/archives";
    const char *home = getenv("HOME");
    _cleanup_free_ char *dir = NULL;
    struct err e = {0};
    unsigned n;

    if (geteuid() == 0)
        dir = strdup(for_root);
    else if (home && home[0] == '/')
        dir = path_join(home, ".local/state/bellhop/archives");
    if (!dir || recover_use_registry(dir, &e) < 0)
        return;
    n = recover_all();
    if (n)
        log_info("archive: took back %u that were left half done", n);
}

/* A box without it works: what it lacks is said in the log. */
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

static unsigned drop_idle(void *server)
{
    return server_drop_idle(server);
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
    g->http_library = server_library();
    if ((r = loop_new(&g->loop, e)) < 0 || (r = watch_signals(a, e)) < 0 ||
        (r = pool_new(&g->pool, e)) < 0 ||
        (r = registry_new(g->loop, g->pool, &a->o.exec, &g->registry, e)) < 0 ||
        (r = fs_root_new(a->o.root, &g->root, e)) < 0 || (r = holds_new(&g->holds, e)) < 0 ||
        (r = activity_new(&g->activity, e)) < 0 || (r = ready_cache_new(&g->ready, e)) < 0 ||
        (r = start_holdsock(a, e)) < 0)
        return r;
    g->generation = 1;
    if (!a->o.read_only)
        recover_archives();
    queue_use_pool(g->pool);
    return a->o.init ? lease_new(g->loop, on_lease_end, a, &g->lease, e) : 0;
}

static int start_server(struct app *a, const char *token, size_t token_len, struct err *e)
{
    struct server_options so = {
        .agent = &a->agent,
        .token = token,
        .token_len = token_len,
        .read_only = a->o.read_only,
        .max_connections = a->o.max_connections,
        .keepalive_ms = a->o.keepalive_ms,
    };
    int r;

    r = server_new(&so, &a->server, e);
    a->agent.server = a->server;
    a->agent.drop_idle = drop_idle;
    for (char **p = a->o.listen; p && *p && r == 0; p++)
        r = server_listen_tcp(a->server, *p, e);
    for (char **p = a->o.unix_paths; p && *p && r == 0; p++)
        r = server_listen_unix(a->server, *p, e);
    return r < 0 ? r : server_start(a->server, e);
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
        json_pack("{s:o, s:o, s:i, s:i, s:s}", "tcp", new_list(a->server, server_tcp_address),
                  "unix", new_list(a->server, server_unix_path), "pid", (int)getpid(), "protocol",
                  WIRE_PROTOCOL, "version", BELLHOP_VERSION);
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

static int run(struct app *a, struct err *e)
{
    char token[TOKEN_MAX_BYTES] = "";
    size_t token_len = 0;
    int r;

    if (a->o.init && (r = init_set_up(e)) < 0)
        return r;
    if (!a->o.auth_open && (r = get_token(&a->o, token, &token_len, e)) < 0)
        return r;
    r = start_agent(a, e);
    if (r == 0)
        r = start_server(a, a->o.auth_open ? NULL : token, token_len, e);
    explicit_bzero(token, sizeof(token));
    if (r == 0)
        r = say_ready(a, e);
    return r < 0 ? r : loop_run(a->agent.loop, e);
}

static void tear_down(struct app *a)
{
    struct agent *g = &a->agent;

    if (a->server)
        server_stop(a->server, STOP_HARD_MS);
    g->pool = pool_free(g->pool, STOP_HARD_MS);
    if (g->pool)
        return; /* a thread hangs, in a frozen file system, say: the exit ends it */
    a->server = server_free(a->server);
    g->lease = lease_free(g->lease);
    a->holdsock = holdsock_free(a->holdsock);
    g->holds = holds_free(g->holds);
    g->activity = activity_free(g->activity);
    g->ready = ready_cache_free(g->ready);
    if (a->signal_watch)
        loop_watch_del(a->signal_watch);
    g->registry = registry_free(g->registry);
    g->loop = loop_free(g->loop);
    g->root = fs_root_free(g->root);
    fd_close(a->signal_fd);
    strv_free(a->o.listen);
    strv_free(a->o.unix_paths);
    strv_free(a->o.required);
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
    int r;

    if (argc > 1 && str_eq(argv[1], "hold"))
        return holdcmd_main(argc - 2, argv + 2);
    for (int i = 1; i < argc; i++) {
        if (str_eq(argv[i], "--help"))
            return (void)print_help(), 0;
        if (str_eq(argv[i], "--version"))
            return (void)print_version(), 0;
    }
    /* A command of the same user must not read the token out of our memory. */
    (void)prctl(PR_SET_DUMPABLE, 0);
    (void)signal(SIGPIPE, SIG_IGN);
    raise_fd_limit(&a.o.exec.nofile);
    r = set_words(&a.o.required, "fd,rg,git", &e);
    if (r == 0)
        r = parse_options(argc, argv, &a.o, &e);
    if (r == 0)
        r = check_options(&a.o, &e);
    if (r < 0) {
        log_error("%s", e.message);
        return EXIT_USAGE;
    }
    keep_inherited_fd(a.o.token_fd);
    keep_inherited_fd(a.o.ready_fd);
    r = run(&a, &e);
    if (r < 0)
        log_error("%s", e.message);
    tear_down(&a);
    if (a.o.init)
        init_power_off();
    return r < 0 ? 1 : 0;
}
