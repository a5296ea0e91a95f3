/* bellhop-daemon: `bellhop daemon` starts it; people do not. Options and wiring. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <link.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <gnutls/gnutls.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/io.h"
#include "common/jsonx.h"
#include "common/str.h"
#include "daemon/access.h"
#include "daemon/agents.h"
#include "daemon/contexts.h"
#include "daemon/daemon.h"
#include "daemon/events.h"
#include "daemon/guests.h"
#include "daemon/leader.h"
#include "daemon/metrics.h"
#include "daemon/options.h"
#include "daemon/repeat.h"
#include "daemon/sandbox.h"
#include "daemon/service.h"
#include "daemon/webhooks.h"
#include "event/loop.h"
#include "event/pool.h"
#include "lib/box/audit.h"
#include "lib/box/gc.h"
#include "lib/util/daemon_lock.h"

#define EXIT_USAGE 2
#define STOP_MS 5000 /* for the requests that run */
#define TLS_MAX_BYTES (256 * 1024)
#define STOP_TICK_MS 20
#define LARGE_ALLOCATION_BYTES (128 * 1024)
#define MAX_CONNECTIONS 8192
#define MAX_FILES (2 * MAX_CONNECTIONS + 1024) /* a passed request has two sockets */
#define KEEPALIVE_MS 12000                     /* of silence in a stream of events */

struct app {
    struct daemon daemon;
    struct daemon_options options;
    int lock_fd; /* util/daemon_lock.h */
    int signal_fd;
    struct loop_watch *signal_watch;
    int64_t give_up_ms; /* 0: it is not stopping */
};

/* ---- TLS ---- */

/* PEM; NULL without TLS. The caller frees both, the key by free_key(). */
static int read_tls(const struct daemon_options *o, char **ret_cert, char **ret_key, struct err *e)
{
    char *cert = NULL;
    int r;

    if (!o->tls_cert)
        return 0;
    r = err_at(e, io_read_file(AT_FDCWD, o->tls_cert, TLS_MAX_BYTES, &cert, NULL, e), "tls-cert");
    if (r == 0)
        r = err_at(e, io_read_file(AT_FDCWD, o->tls_key, TLS_MAX_BYTES, ret_key, NULL, e),
                   "tls-key");
    if (r < 0)
        free(cert);
    else
        *ret_cert = cert;
    return r;
}

static void free_key(char *key)
{
    if (key)
        explicit_bzero(key, strlen(key));
    free(key);
}

/* ---- signals ---- */

/* Tells the service manager, if there is one (sd_notify(3)). */
static void notify_manager(const char *state)
{
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    size_t len = path ? strlen(path) : 0;
    _cleanup_close_ int fd = -1;

    if (!len || len >= sizeof(to.sun_path) || (path[0] != '/' && path[0] != '@'))
        return;
    memcpy(to.sun_path, path, len);
    if (path[0] == '@')
        to.sun_path[0] = '\0';
    fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd >= 0)
        (void)sendto(fd, state, strlen(state), MSG_NOSIGNAL, (struct sockaddr *)&to,
                     (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len));
}

static void on_stop_tick(struct loop *l, void *arg)
{
    struct app *a = arg;
    struct loop_timer *timer;

    if (server_is_idle(a->daemon.server) || clock_mono_ms() >= a->give_up_ms ||
        loop_timer_add(l, clock_mono_ms() + STOP_TICK_MS, on_stop_tick, a, &timer, NULL) < 0)
        loop_stop(l);
}

/* New files of the certificate and its key. Those that cannot be used change nothing. */
static void reload_tls(struct app *a)
{
    struct err e = {0};
    char *cert = NULL, *key = NULL;
    int r = read_tls(&a->options, &cert, &key, &e);

    if (r == 0)
        r = server_reload_tls(a->daemon.server, cert, key, &e);
    if (r < 0)
        (void)fprintf(stderr, "bellhop-daemon: the certificate stays as it was: %s\n", e.message);
    else
        (void)fprintf(stderr, "bellhop-daemon: new connections get the certificate of '%s'\n",
                      a->options.tls_cert);
    free(cert);
    free_key(key);
}

static void on_signal(struct loop *l, uint32_t events, void *arg)
{
    struct app *a = arg;
    struct signalfd_siginfo info;

    (void)events;
    if (read(a->signal_fd, &info, sizeof(info)) != sizeof(info))
        return;
    if (info.ssi_signo == SIGHUP) {
        if (!a->give_up_ms)
            reload_tls(a);
        return;
    }
    if (a->give_up_ms) { /* asked twice: hurry */
        loop_stop(l);
        return;
    }
    notify_manager("STOPPING=1\n");
    a->give_up_ms = clock_mono_ms() + STOP_MS;
    server_quiesce(a->daemon.server);
    hub_quiesce(a->daemon.hub);
    on_stop_tick(l, a);
}

static int watch_signals(struct app *a, struct err *e)
{
    sigset_t set;

    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGTERM);
    (void)sigaddset(&set, SIGINT);
    if (a->options.tls_cert)
        (void)sigaddset(&set, SIGHUP);
    else
        (void)signal(SIGHUP, SIG_IGN); /* there is nothing to reread; its terminal may close */
    (void)sigprocmask(SIG_BLOCK, &set, NULL);
    (void)signal(SIGPIPE, SIG_IGN);
    a->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (a->signal_fd < 0)
        return err_sys(e, errno, "signalfd");
    return loop_watch_add(a->daemon.loop, a->signal_fd, EPOLLIN, on_signal, a, &a->signal_watch, e);
}

/* ---- the start ---- */

/* The usual soft limit is 1,024. Boxes get the one from before. */
static void raise_file_limit(struct bh_options *lib)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur >= MAX_FILES)
        return;
    lib->box_max_files = (uint32_t)limit.rlim_cur;
    limit.rlim_cur = limit.rlim_max < MAX_FILES ? limit.rlim_max : MAX_FILES;
    (void)setrlimit(RLIMIT_NOFILE, &limit);
}

/*
 * Threads share two heaps, and what is large is given back at once: without a fixed threshold glibc takes even megabytes
 * of a heap, whose holes stay.
 */
static void bound_heap(void)
{
    (void)mallopt(M_ARENA_MAX, 2);
    (void)mallopt(M_MMAP_THRESHOLD, LARGE_ALLOCATION_BYTES);
}

/* Of segments that nothing writes to: dropped pages are read again from the file, which the kernel holds. */
static int drop_clean_pages(struct dl_phdr_info *object, size_t size, void *arg)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);

    (void)size;
    (void)arg;
    for (unsigned i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *h = &object->dlpi_phdr[i];
        uintptr_t from = (object->dlpi_addr + h->p_vaddr) & ~(page - 1);

        if (h->p_type == PT_LOAD && !(h->p_flags & PF_W))
            (void)madvise((void *)from, object->dlpi_addr + h->p_vaddr + h->p_memsz - from,
                          MADV_DONTNEED);
    }
    return 0;
}

/*
 * The start runs through code that an idle daemon never needs again: the dynamic linker's, the self-tests of the TLS
 * library, the schema of the store. Its pages are most of the resident memory.
 */
static void forget_start(void)
{
    (void)malloc_trim(0);
    (void)dl_iterate_phdr(drop_clean_pages, NULL);
}

/* The facts for the commands (daemon_lock.h), and for who started us. */
static json_t *facts_json(const struct app *a)
{
    const struct server *s = a->daemon.server;
    json_t *tcp = json_array();
    const char *address;

    for (size_t i = 0; (address = server_tcp_address(s, i)); i++)
        (void)json_array_append_new(tcp, json_string(address));
    return json_pack("{s:i, s:s, s:I, s:s, s:b, s:o, s:s, s:s*}", "pid", (int)getpid(), "version",
                     bh_version(), "started_ms", (json_int_t)a->daemon.started_ms, "socket",
                     a->options.socket, "tls", a->options.tls_cert != NULL, "tcp", tcp, "instance",
                     a->daemon.instance, "domain",
                     a->options.domains ? a->options.domains[0] : NULL);
}

static int listen_on_socket(struct app *a, struct err *e)
{
    int r = server_listen_unix(a->daemon.server, a->options.socket, e);

    if (r == 0 && chmod(a->options.socket, 0600) < 0)
        r = err_sys(e, errno, "'%s'", a->options.socket);
    if (r < 0)
        (void)snprintf(e->field, sizeof(e->field), "socket"); /* the name of its option here */
    return r;
}

/* ---- the sockets ---- */

#define LISTEN_FD_FIRST 3

/* Sockets that a service manager passed in (sd_listen_fds(3)); *ret_socket: one of them is a unix socket. */
static int take_passed_sockets(struct app *a, bool *ret_socket, struct err *e)
{
    const char *pid = getenv("LISTEN_PID"), *n = getenv("LISTEN_FDS");
    uint64_t n_fds = 0, for_pid = 0;
    int r = 0;

    if (!pid || !n || str_parse_u64(pid, 1, INT32_MAX, &for_pid, NULL) < 0 ||
        (pid_t)for_pid != getpid() || str_parse_u64(n, 0, SERVER_MAX_LISTENERS, &n_fds, NULL) < 0)
        return 0;
    for (uint64_t i = 0; r == 0 && i < n_fds; i++)
        r = server_listen_fd(a->daemon.server, LISTEN_FD_FIRST + (int)i, e);
    *ret_socket = server_unix_path(a->daemon.server, 0) != NULL;
    if (*ret_socket)
        a->options.socket = server_unix_path(a->daemon.server, 0);
    return r;
}

static void finish_tls(void *session, const char *data, size_t len)
{
    (void)gnutls_record_send(session, data, len);
    (void)gnutls_bye(session, GNUTLS_SHUT_WR);
}

static int start_server(struct app *a, struct err *e)
{
    bool has_socket = false;
    char *cert = NULL, *key = NULL;
    struct daemon *d = &a->daemon;
    struct server_options o = {.service = &daemon_service,
                               .owner = d,
                               .loop = d->loop,
                               .pool = d->pool,
                               .max_connections = MAX_CONNECTIONS,
                               .keepalive_ms = KEEPALIVE_MS};
    int r = read_tls(&a->options, &cert, &key, e);

    o.tls_cert = cert;
    o.tls_key = key;
    o.tls_finish = finish_tls;
    if (r == 0)
        r = server_new(&o, &d->server, e);
    if (r == 0)
        r = take_passed_sockets(a, &has_socket, e);
    if (r == 0 && !has_socket)
        r = listen_on_socket(a, e);
    for (char **at = a->options.listen; r == 0 && at && *at; at++)
        r = server_listen_tcp(d->server, *at, e);
    if (r == 0)
        r = server_start(d->server, e);
    free(cert); /* the server has its own form of both */
    free_key(key);
    return r;
}

/* No secret: whoever asks for the daemon's health is told. */
static int choose_instance(struct daemon *d, struct err *e)
{
    uint64_t n[2];

    if (getentropy(n, sizeof(n)) < 0)
        return err_sys(e, errno, "getentropy");
    (void)snprintf(d->instance, sizeof(d->instance), "%016" PRIx64 "%016" PRIx64, n[0], n[1]);
    return 0;
}

static void tell_take_over(void *arg, const char *line)
{
    (void)arg;
    (void)fprintf(stderr, "bellhop-daemon: %s\n", line);
}

/* Requests are served meanwhile: one for a box takes that box over by itself. */
static void take_over_boxes(void *arg)
{
    struct daemon *d = arg;
    struct bh_ctx *ctx = NULL;
    struct err e = {0};
    int r = contexts_take(d->contexts, "daemon", &ctx, &e);

    if (r == 0)
        r = gc_take_over(ctx, tell_take_over, NULL, &e);
    if (r < 0)
        (void)fprintf(stderr, "bellhop-daemon: not all boxes are taken over: %s\n", e.message);
    contexts_give(d->contexts, ctx);
}

static int start_daemon(struct app *a, struct err *e)
{
    struct daemon *d = &a->daemon;
    _cleanup_json_ json_t *facts = NULL;
    int r;

    d->started_ms = clock_real_ms();
    d->options = a->options.lib;
    d->options.actor = "daemon";
    d->options.daemon = "none"; /* it would find itself */
    d->domains = a->options.domains;
    d->options.debug = sandbox_debug;
    d->options.host_env = (const char *const *)environ;
    if ((r = choose_instance(d, e)) < 0 || (r = io_mkdir_p(d->options.state_dir, 0700, e)) < 0 ||
        (r = daemon_lock_take(d->options.state_dir, &a->lock_fd, e)) < 0 ||
        (r = loop_new(&d->loop, e)) < 0 || (r = watch_signals(a, e)) < 0 ||
        (r = pool_new(&d->pool, e)) < 0 || (r = contexts_new(&d->options, &d->contexts, e)) < 0 ||
        (r = access_new(d, &d->access, e)) < 0 || (r = metrics_new(&d->metrics, e)) < 0 ||
        (r = guests_new(d, &d->guests, e)) < 0 ||
        (r = audit_open(d->options.state_dir, &d->audit, e)) < 0 ||
        (r = agents_new(d, &d->agents, e)) < 0 ||
        (r = hub_new(d, a->options.follow_keep_ms, &d->hub, e)) < 0 ||
        (r = repeats_new(d->options.state_dir, &d->repeats, e)) < 0 || (r = start_server(a, e)) < 0)
        return r;
    r = webhooks_new(d, a->options.webhooks, a->options.webhook_secret_file, &d->webhooks, e);
    if (r < 0)
        return r;
    facts = facts_json(a);
    r = facts ? daemon_lock_write(a->lock_fd, facts, e) : err_oom(e);
    if (r == 0 && a->options.takes_over)
        r = pool_run(d->pool, take_over_boxes, d, e);
    return r;
}

/* One line of JSON for who started us: the addresses, or the error. */
static void tell_ready(const struct app *a, int r, const struct err *error)
{
    _cleanup_json_ json_t *v =
        r < 0 ? json_pack("{s:o}", "error", jx_new_error(error)) : facts_json(a);
    _cleanup_free_ char *text = NULL;
    size_t len = 0;
    int fd = a->options.ready_fd;

    if (fd < 0 || !v || jx_dump(v, &text, &len, NULL) < 0)
        return;
    text[len] = '\n'; /* in the place of the NUL */
    (void)io_write_all(fd, text, len + 1, NULL);
    fd_close(fd);
}

static void say_addresses(const struct app *a)
{
    const char *address;

    (void)fprintf(stderr, "bellhop-daemon: listens on %s\n", a->options.socket);
    for (size_t i = 0; (address = server_tcp_address(a->daemon.server, i)); i++)
        (void)fprintf(stderr,
                      "bellhop-daemon: listens on %s; the status page is %s://%s/, and asks for a "
                      "token: bellhop token create --name ME\n",
                      address, a->options.tls_cert ? "https" : "http", address);
}

/* A worker may still be at a long step of a box: then nothing that it uses is freed. */
static void free_daemon(struct app *a)
{
    struct daemon *d = &a->daemon;
    bool is_still = !d->server || server_stop(d->server, STOP_MS);

    if (!is_still || (d->pool && pool_free(d->pool, STOP_MS)))
        return;
    d->webhooks = webhooks_free(d->webhooks);
    (void)server_free(d->server);
    (void)hub_free(d->hub);
    (void)repeats_free(d->repeats);
    (void)agents_free(d->agents);
    (void)access_free(d->access);
    (void)audit_close(d->audit);
    (void)guests_free(d->guests);
    (void)metrics_free(d->metrics);
    (void)contexts_free(d->contexts);
    if (a->signal_watch)
        a->signal_watch = loop_watch_del(a->signal_watch);
    fd_close(a->signal_fd);
    (void)loop_free(d->loop);
}

/* A value of an option that is wrong is one whether it is parsed or first used; so is the name of a missing file. */
static int exit_status(int r, const struct err *e)
{
    if (r == -ERR_INVALID || r == -ERR_RANGE || (r == -ERR_NOT_FOUND && e->field[0]))
        return EXIT_USAGE;
    return r < 0;
}

int main(int argc, char **argv)
{
    struct app a = {.signal_fd = -1, .lock_fd = -1};
    struct err e = {0};
    int r = daemon_options_parse(argc, argv, &a.options, &e);
    bool is_parsed = r == 0;

    (void)umask(077);
    bound_heap();
    if (r == 0 && a.options.lease) {
        r = leader_run(&a.options, argv, &e);
        if (r < 0)
            (void)fprintf(stderr, "bellhop-daemon: %s\n", e.message);
        if (r < 0)
            tell_ready(&a, r, &e);
        daemon_options_done(&a.options);
        return r < 0 ? exit_status(r, &e) : r;
    }
    raise_file_limit(&a.options.lib);
    if (r == 0)
        r = start_daemon(&a, &e);
    if (r == 0)
        forget_start();
    tell_ready(&a, r, &e);
    if (r == 0)
        notify_manager("READY=1\n");
    if (r == 0 && a.options.says_address)
        say_addresses(&a);
    if (r == 0)
        r = loop_run(a.daemon.loop, &e);
    if (r < 0)
        (void)fprintf(stderr, "bellhop-daemon: %s\n", e.message);
    if (is_parsed)
        free_daemon(&a);
    fd_close(a.lock_fd);
    daemon_options_done(&a.options);
    return is_parsed ? exit_status(r, &e) : EXIT_USAGE;
}
