#include "lib/provider/oci/keeper.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/io.h"
#include "common/process.h"
#include "common/str.h"
#include "lib/provider/oci/network.h"

#define READY_TIMEOUT_MS 15000
#define READY_POLL_MS 10 /* for a helper that does not report that it is ready */
#define HELPER_GRACE_MS 500
#define MAX_CONNECTIONS 128 /* one process for each connection */
#define RELAY_BYTES 65536

/* ---- which proxies ---- */

static bool is_proxy_variable(const char *entry, size_t name_len)
{
    static const char *const names[] = {"http_proxy", "https_proxy", "all_proxy", "ftp_proxy"};

    for (size_t i = 0; i < N_ELEMENTS(names); i++)
        if (strlen(names[i]) == name_len && strncasecmp(entry, names[i], name_len) == 0)
            return true;
    return false;
}

/* Parses "http://user:word@127.0.0.1:3128/"; true if the address is on the loopback. */
static bool parse_proxy(const char *url, struct oci_proxy *ret)
{
    const char *host = strstr(url, "://");
    const char *end, *at, *colon;
    struct sockaddr_in *in = (void *)&ret->addr;
    struct sockaddr_in6 *in6 = (void *)&ret->addr;
    uint64_t port = 80;
    char text[80];

    host = host ? host + 3 : url;
    end = host + strcspn(host, "/?#");
    at = memrchr(host, '@', (size_t)(end - host));
    host = at ? at + 1 : host;
    if ((size_t)(end - host) >= sizeof(text))
        return false;
    (void)snprintf(text, sizeof(text), "%.*s", (int)(end - host), host);
    colon = strrchr(text, ':');
    if (colon && !strchr(colon, ']')) {
        if (str_parse_u64(colon + 1, 1, 65535, &port, NULL) < 0)
            return false;
        text[colon - text] = '\0';
    }
    memset(&ret->addr, 0, sizeof(ret->addr));
    if (str_eq(text, "[::1]")) {
        in6->sin6_family = AF_INET6;
        in6->sin6_addr = in6addr_loopback;
        in6->sin6_port = htons((uint16_t)port);
        ret->addr_len = sizeof(*in6);
        return true;
    }
    in->sin_family = AF_INET;
    in->sin_port = htons((uint16_t)port);
    ret->addr_len = sizeof(*in);
    if (str_eq(text, "localhost"))
        in->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    else if (inet_pton(AF_INET, text, &in->sin_addr) != 1)
        return false;
    return (ntohl(in->sin_addr.s_addr) >> 24) == 127;
}

size_t oci_proxies_parse(char *const *env, struct oci_proxy out[OCI_MAX_PROXIES])
{
    size_t n = 0;

    for (; env && *env && n < OCI_MAX_PROXIES; env++) {
        const char *eq = strchr(*env, '=');
        bool known = false;

        if (!eq || !is_proxy_variable(*env, (size_t)(eq - *env)) || !parse_proxy(eq + 1, &out[n]))
            continue;
        for (size_t i = 0; i < n; i++)
            known |= memcmp(&out[i].addr, &out[n].addr, sizeof(out[n].addr)) == 0;
        n += !known;
    }
    return n;
}

/* ---- relaying: one process for one connection ---- */

/* Relays the available bytes; false at the end of this direction. */
static bool relay_once(int from, int to)
{
    static char data[RELAY_BYTES];
    ssize_t n = read(from, data, sizeof(data));

    if (n < 0 && errno == EINTR)
        return true;
    if (n <= 0 || io_write_all(to, data, (size_t)n, NULL) < 0) {
        (void)shutdown(to, SHUT_WR);
        return false;
    }
    return true;
}

/* A blocked write also holds back the other direction of this connection. Proxies cope with
 * that. */
static void relay_connection(int a, int b)
{
    struct pollfd fds[2] = {{.fd = a, .events = POLLIN}, {.fd = b, .events = POLLIN}};

    while (fds[0].fd >= 0 || fds[1].fd >= 0) {
        if (poll(fds, 2, -1) < 0 && errno != EINTR)
            return;
        if (fds[0].fd >= 0 && fds[0].revents && !relay_once(a, b))
            fds[0].fd = -1;
        if (fds[1].fd >= 0 && fds[1].revents && !relay_once(b, a))
            fds[1].fd = -1;
    }
}

static void connection_child(int client, const struct oci_proxy *p)
{
    int fd = socket(p->addr.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (fd >= 0 && connect(fd, (const struct sockaddr *)&p->addr, p->addr_len) == 0)
        relay_connection(client, fd);
    _exit(0);
}

/* ---- the keeper's own process ---- */

struct keeper {
    const struct oci_keeper *spec;
    int status; /* to the caller: struct report */
    int box;    /* pidfd */
    int helper; /* pidfd */
    pid_t helper_pid;
    int exit_fd; /* closing it ends the helper */
    int listeners[OCI_MAX_PROXIES];
    unsigned n_connections;
};

struct report {
    struct err err; /* code 0: the network is up */
    pid_t helper;
};

static void reap_connections(struct keeper *k)
{
    pid_t pid;

    while ((pid = waitpid(-1, NULL, WNOHANG)) > 0) {
        if (pid == k->helper_pid)
            k->helper_pid = 0; /* it was killed, and its pid may be reused soon */
        else if (k->n_connections)
            k->n_connections--;
    }
}

static void accept_one(struct keeper *k, size_t i)
{
    int client = accept4(k->listeners[i], NULL, NULL, SOCK_CLOEXEC);
    pid_t pid;

    if (client < 0)
        return;
    pid = fork();
    if (pid == 0)
        connection_child(client, &k->spec->proxies[i]);
    k->n_connections += pid > 0;
    fd_close(client);
}

/* Runs until the box has ended. At the limit, new connections wait in the backlog. */
static void keeper_loop(struct keeper *k)
{
    for (;;) {
        struct pollfd fds[1 + OCI_MAX_PROXIES] = {{.fd = k->box, .events = POLLIN}};
        bool full = k->n_connections >= MAX_CONNECTIONS;

        for (size_t i = 0; i < k->spec->n_proxies; i++)
            fds[1 + i] = (struct pollfd){.fd = full ? -1 : k->listeners[i], .events = POLLIN};
        /* the timeout is for reaping connections that have ended */
        if (poll(fds, 1 + k->spec->n_proxies, k->n_connections ? 200 : -1) < 0 && errno != EINTR)
            return;
        if (fds[0].revents)
            return;
        reap_connections(k);
        for (size_t i = 0; i < k->spec->n_proxies; i++)
            if (fds[1 + i].revents)
                accept_one(k, i);
    }
}

static void end_helper(struct keeper *k)
{
    struct pollfd pfd = {.fd = k->helper, .events = POLLIN};

    reap_connections(k);
    fd_close(k->exit_fd);
    if (k->helper_pid <= 0)
        return;
    (void)process_signal_child(k->helper_pid, SIGTERM);
    if (poll(&pfd, 1, HELPER_GRACE_MS) == 0)
        (void)process_signal_child(k->helper_pid, SIGKILL);
    (void)waitpid(k->helper_pid, NULL, 0);
}

static void give_fd(int fd, int number)
{
    if (fd < 0 || dup2(fd, number) < 0)
        _exit(127);
}

/* The helper's descriptors have the numbers that its command line names. */
static void helper_child(const struct keeper *k, int ready, int exit_fd)
{
    static char path_env[] = "PATH=/usr/sbin:/usr/bin:/sbin:/bin";
    static char *const env[] = {path_env, NULL};
    int log = open(k->spec->log_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    int ready_copy = fcntl(ready, F_DUPFD_CLOEXEC, 64);
    int exit_copy = fcntl(exit_fd, F_DUPFD_CLOEXEC, 64);
    int netns_copy = -1;
    char path[48];
    int netns;

    (void)snprintf(path, sizeof(path), "/proc/%d/ns/net", (int)k->spec->box.pid);
    netns = open(path, O_RDONLY | O_CLOEXEC);
    netns_copy = fcntl(netns, F_DUPFD_CLOEXEC, 64);
    (void)signal(SIGPIPE, SIG_DFL);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (log >= 0) {
        (void)dup2(log, 1);
        (void)dup2(log, 2);
    }
    give_fd(ready_copy, OCI_READY_FD);
    give_fd(exit_copy, OCI_EXIT_FD);
    give_fd(netns_copy, OCI_NETNS_FD);
    (void)execve(k->spec->argv[0], (char *const *)k->spec->argv, env);
    _exit(127);
}

static void log_tail(const struct keeper *k, char *out, size_t out_bytes)
{
    _cleanup_free_ char *text = NULL;
    size_t len;

    out[0] = '\0';
    if (io_read_file(AT_FDCWD, k->spec->log_path, 65536, &text, &len, NULL) < 0)
        return;
    while (len && text[len - 1] == '\n')
        text[--len] = '\0';
    (void)snprintf(out, out_bytes, "%s", strrchr(text, '\n') ? strrchr(text, '\n') + 1 : text);
}

/* Do the box's routes have the destination 0.0.0.0? */
static bool has_default_route(pid_t pid)
{
    _cleanup_free_ char *text = NULL;
    char path[48];

    (void)snprintf(path, sizeof(path), "/proc/%d/net/route", (int)pid);
    return io_read_file(AT_FDCWD, path, 65536, &text, NULL, NULL) == 0 &&
           strstr(text, "\t00000000\t") != NULL;
}

/* Waits for the first byte on the ready pipe, or the route, or the end of the helper. */
static bool is_ready(const struct keeper *k, int ready)
{
    int64_t deadline = clock_mono_ms() + READY_TIMEOUT_MS;
    struct pollfd fds[2] = {{.fd = k->spec->says_ready ? ready : -1, .events = POLLIN},
                            {.fd = k->helper, .events = POLLIN}};
    char c;

    do {
        int wait_ms = k->spec->says_ready ? READY_TIMEOUT_MS : READY_POLL_MS;
        int n = poll(fds, 2, wait_ms);

        if (n > 0 && fds[0].revents)
            return read(ready, &c, 1) == 1;
        if (n > 0)
            return false;
        if (!k->spec->says_ready && has_default_route(k->spec->box.pid))
            return true;
    } while (clock_mono_ms() < deadline);
    return false;
}

static int wait_ready(const struct keeper *k, int ready, struct err *e)
{
    char why[200];

    if (is_ready(k, ready))
        return 0;
    log_tail(k, why, sizeof(why));
    return err_set(e, ERR_UNAVAILABLE, "'%s' did not bring up the network: %s", k->spec->argv[0],
                   why);
}

static int start_helper(struct keeper *k, struct err *e)
{
    int ready[2], exits[2], r;

    if (pipe2(ready, O_CLOEXEC) < 0 || pipe2(exits, O_CLOEXEC) < 0)
        return err_sys(e, errno, "pipe");
    k->helper_pid = fork();
    if (k->helper_pid < 0)
        return err_sys(e, errno, "fork");
    if (k->helper_pid == 0)
        helper_child(k, ready[1], exits[0]);
    k->exit_fd = exits[1];
    fd_close(exits[0]);
    fd_close(ready[1]);
    k->helper = (int)syscall(SYS_pidfd_open, k->helper_pid, 0);
    if (k->helper < 0)
        return err_sys(e, errno, "pidfd_open");
    r = wait_ready(k, ready[0], e);
    fd_close(ready[0]);
    return r;
}

static int keeper_init(struct keeper *k, struct err *e)
{
    int r = 0;

    k->box = (int)syscall(SYS_pidfd_open, k->spec->box.pid, 0);
    if (k->box < 0 || !oci_proc_is_alive(&k->spec->box))
        return err_set(e, ERR_UNAVAILABLE, "the box ended before it had a network");
    for (size_t i = 0; r == 0 && i < k->spec->n_proxies; i++)
        r = oci_netns_listen(k->spec->box.pid, (const struct sockaddr *)&k->spec->proxies[i].addr,
                             k->spec->proxies[i].addr_len, &k->listeners[i], e);
    return r < 0 ? r : start_helper(k, e);
}

/* Drops everything inherited from the forking process: descriptors, signals, name. */
static void become_keeper(int *status)
{
    int copy = fcntl(*status, F_DUPFD_CLOEXEC, 64);
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    sigset_t none;

    for (int fd = 0; fd < 3; fd++)
        (void)dup2(null, fd);
    *status = dup3(copy, 5, O_CLOEXEC);
    (void)close_range(3, 4, 0);
    (void)close_range(6, ~0u, 0);
    sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    for (int sig = 1; sig < NSIG; sig++)
        (void)signal(sig, SIG_DFL);
    (void)signal(SIGPIPE, SIG_IGN);
    (void)setsid();
    (void)!chdir("/");
    (void)prctl(PR_SET_NAME, "bellhop-keeper");
}

static void keeper_main(const struct oci_keeper *spec, int status)
{
    struct keeper k = {.spec = spec, .box = -1, .helper = -1, .exit_fd = -1};
    struct report rep = {0};

    become_keeper(&status);
    (void)keeper_init(&k, &rep.err);
    rep.helper = k.helper_pid;
    (void)!write(status, &rep, sizeof(rep));
    fd_close(status);
    if (rep.err.code == 0)
        keeper_loop(&k);
    end_helper(&k);
    _exit(rep.err.code ? 1 : 0);
}

int oci_keeper_start(const struct oci_keeper *k, struct oci_proc *ret_keeper,
                     struct oci_proc *ret_helper, struct err *e)
{
    struct report rep;
    int status[2], r;
    size_t n = 0;
    pid_t pid;

    if (pipe2(status, O_CLOEXEC) < 0)
        return err_sys(e, errno, "pipe");
    pid = fork();
    if (pid == 0)
        keeper_main(k, status[1]);
    fd_close(status[1]);
    r = pid < 0 ? err_sys(e, errno, "fork") : io_read_full(status[0], &rep, sizeof(rep), &n, e);
    fd_close(status[0]);
    if (r < 0)
        return r;
    if (n < sizeof(rep))
        return err_set(e, ERR_INTERNAL, "the network's keeper died");
    if (rep.err.code) {
        (void)waitpid(pid, NULL, 0);
        if (e)
            *e = rep.err;
        return -rep.err.code;
    }
    r = oci_proc_identify(pid, ret_keeper, e);
    return r < 0 ? r : oci_proc_identify(rep.helper, ret_helper, e);
}
