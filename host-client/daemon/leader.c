#include "daemon/leader.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/io.h"
#include "common/str.h"
#include "lib/provider/kubernetes/kube_lease.h"
#include "lib/util/context.h"
#include "lib/util/daemon_lock.h"

#define EXIT_LOST 1
#define STOP_MS 15000 /* more than the daemon takes for its requests and threads */
#define LOOK_MS 5000  /* at the daemon's health */
#define LOOK_WAIT_MS 1000
#define SILENT_MS 60000 /* of a daemon that is ended then */
#define ARGV_MAX 256
#define SELF "/proc/self/exe"

struct leader {
    const struct daemon_options *options;
    char **argv;
    struct bh_ctx ctx; /* for the cluster alone */
    struct kube_lease *lease;
    int end_fd;  /* SIGTERM, SIGINT: they end calls of the cluster, too */
    int side_fd; /* SIGCHLD, SIGHUP */
    sigset_t before;
    pid_t daemon; /* 0: it does not run */
    bool has_led;
    int status;          /* the exit status of the daemon */
    int64_t answered_ms; /* of the daemon, or its start */
    int64_t look_ms;
    int64_t stop_ms;                      /* 0: nobody has asked for the end */
    bool has_failed;                      /* the last step of the Lease */
    char holder[KUBE_LEASE_HOLDER_BYTES]; /* the last one told */
};

/* ---- the daemon ---- */

/* Its words are those of this program but for the Lease's. */
static void make_argv(char **from, const char *out[ARGV_MAX])
{
    static const char take_over[] = "--take-over";
    size_t n = 0;

    for (; *from && n < ARGV_MAX - 2; from++) {
        if (str_eq(*from, "--lease") && from[1])
            from++;
        else
            out[n++] = *from;
    }
    out[n++] = take_over;
    out[n] = NULL;
}

static int fork_daemon(struct leader *l, struct err *e)
{
    const char *argv[ARGV_MAX];
    char path[PATH_MAX];
    ssize_t n = readlink(SELF, path, sizeof(path) - 1);

    if (n < 0)
        return err_sys(e, errno, "read the link '" SELF "'");
    path[n] = '\0';
    make_argv(l->argv, argv);
    l->daemon = fork();
    if (l->daemon < 0) {
        l->daemon = 0;
        return err_sys(e, errno, "fork");
    }
    if (l->daemon == 0) {
        (void)sigprocmask(SIG_SETMASK, &l->before, NULL);
        (void)execv(path, (char *const *)argv);
        _exit(127);
    }
    l->has_led = true;
    l->answered_ms = clock_mono_ms();
    l->look_ms = l->answered_ms + LOOK_MS;
    if (l->options->ready_fd >= 0)
        fd_close(l->options->ready_fd); /* the daemon says it */
    return 0;
}

/* Also what had this process for a parent because its own has ended: monitors of boxes. */
static void reap_children(struct leader *l)
{
    int status;
    pid_t pid;

    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
        if (pid != l->daemon)
            continue;
        l->daemon = 0;
        l->status = WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_LOST;
        (void)fprintf(stderr, "bellhop-daemon: the daemon has ended, %s %d\n",
                      WIFEXITED(status) ? "exit status" : "signal",
                      WIFEXITED(status) ? l->status : WTERMSIG(status));
    }
}

/* One that hangs would keep the Lease for ever. False: it is to be ended. */
static bool is_daemon_well(struct leader *l)
{
    int64_t now = clock_mono_ms();

    if (!l->daemon || l->stop_ms || now < l->look_ms)
        return true;
    l->look_ms = now + LOOK_MS;
    if (daemon_answers(l->options->socket, LOOK_WAIT_MS))
        l->answered_ms = clock_mono_ms();
    if (clock_mono_ms() - l->answered_ms < SILENT_MS)
        return true;
    (void)fprintf(stderr, "bellhop-daemon: the daemon has not answered for %d s\n",
                  SILENT_MS / 1000);
    l->status = EXIT_LOST;
    return false;
}

/*
 * Everything in the container but this process, for good: in its process namespace a signal to all reaches also a process
 * that was being made. Monitors are killed, not asked: a monitor that is asked ends its box.
 */
static void end_everything(struct leader *l)
{
    do {
        (void)kill(-1, SIGKILL);
    } while (waitpid(-1, NULL, 0) > 0 || errno == EINTR);
    l->daemon = 0;
}

/* ---- the Lease ---- */

static void tell_step(struct leader *l, enum kube_lease_state state, const struct err *why)
{
    const char *holder = kube_lease_seen_holder(l->lease);

    if (why->code && why->code != ERR_CANCELED && !l->has_failed)
        (void)fprintf(stderr, "bellhop-daemon: the Lease '%s': %s\n", l->options->lease,
                      why->message);
    if (l->has_failed && !why->code)
        (void)fprintf(stderr, "bellhop-daemon: the Lease '%s': the cluster answers again\n",
                      l->options->lease);
    l->has_failed = why->code != 0;
    if (state == KUBE_LEASE_LOST)
        (void)fprintf(stderr, "bellhop-daemon: the Lease '%s' is lost\n", l->options->lease);
    if (state == KUBE_LEASE_LOST || str_eq(holder, l->holder))
        return;
    (void)snprintf(l->holder, sizeof(l->holder), "%s", holder);
    if (state == KUBE_LEASE_HELD)
        (void)fprintf(stderr, "bellhop-daemon: leader: '%s' holds the Lease '%s'\n", holder,
                      l->options->lease);
    else if (*holder)
        (void)fprintf(stderr, "bellhop-daemon: standby: '%s' holds the Lease '%s'\n", holder,
                      l->options->lease);
}

static enum kube_lease_state step_lease(struct leader *l)
{
    struct err why;
    enum kube_lease_state state = kube_lease_step(l->lease, &why);

    tell_step(l, state, &why);
    return state;
}

/* ---- the loop ---- */

static void on_end_signal(struct leader *l)
{
    struct signalfd_siginfo info;

    if (read(l->end_fd, &info, sizeof(info)) != sizeof(info))
        return;
    if (!l->stop_ms && l->daemon)
        (void)kill(l->daemon, SIGTERM);
    l->stop_ms = clock_mono_ms() + (l->stop_ms ? 0 : STOP_MS); /* asked twice: hurry */
}

static void on_side_signal(struct leader *l)
{
    struct signalfd_siginfo info;

    while (read(l->side_fd, &info, sizeof(info)) == sizeof(info))
        if (info.ssi_signo == SIGHUP && l->daemon)
            (void)kill(l->daemon, SIGHUP);
}

static void wait_for_more(struct leader *l)
{
    struct pollfd fds[] = {{.fd = l->end_fd, .events = POLLIN},
                           {.fd = l->side_fd, .events = POLLIN}};
    int64_t until = kube_lease_next_ms(l->lease);

    if (l->stop_ms && l->stop_ms < until)
        until = l->stop_ms;
    if (l->daemon && !l->stop_ms && l->look_ms < until)
        until = l->look_ms;
    if (poll(fds, N_ELEMENTS(fds), clock_until_ms(until)) < 0)
        return;
    if (fds[0].revents)
        on_end_signal(l);
    if (fds[1].revents)
        on_side_signal(l);
}

/* Until it is over. The daemon may run still. */
static void lead_or_wait(struct leader *l)
{
    struct err e = {0};

    for (;;) {
        enum kube_lease_state state;

        reap_children(l);
        if (!l->daemon && (l->has_led || l->stop_ms))
            return;
        if (l->stop_ms && clock_mono_ms() >= l->stop_ms)
            return;
        state = step_lease(l);
        if (state == KUBE_LEASE_LOST) {
            l->status = EXIT_LOST;
            return;
        }
        if (state == KUBE_LEASE_HELD && !l->daemon && fork_daemon(l, &e) < 0) {
            (void)fprintf(stderr, "bellhop-daemon: %s\n", e.message);
            l->status = EXIT_LOST;
            return;
        }
        if (!is_daemon_well(l))
            return;
        wait_for_more(l);
    }
}

/* ---- its life ---- */

static int open_signals(struct leader *l, struct err *e)
{
    sigset_t end, side, all;

    (void)sigemptyset(&end);
    (void)sigaddset(&end, SIGTERM);
    (void)sigaddset(&end, SIGINT);
    (void)sigemptyset(&side);
    (void)sigaddset(&side, SIGCHLD);
    (void)sigaddset(&side, SIGHUP);
    (void)sigorset(&all, &end, &side);
    (void)sigprocmask(SIG_BLOCK, &all, &l->before);
    (void)signal(SIGPIPE, SIG_IGN);
    l->end_fd = signalfd(-1, &end, SFD_CLOEXEC | SFD_NONBLOCK);
    l->side_fd = signalfd(-1, &side, SFD_CLOEXEC | SFD_NONBLOCK);
    return l->end_fd < 0 || l->side_fd < 0 ? err_sys(e, errno, "signalfd") : 0;
}

/* The pod's name, and a number: a container that is started once more is another candidate. */
static int choose_holder(char out[KUBE_LEASE_HOLDER_BYTES], struct err *e)
{
    char host[HOST_NAME_MAX + 1] = "", random[17];
    int r = io_random_hex(8, random, e);

    if (r < 0)
        return r;
    if (gethostname(host, sizeof(host) - 1) < 0)
        return err_sys(e, errno, "gethostname");
    (void)snprintf(out, KUBE_LEASE_HOLDER_BYTES, "%.100s_%s", host, random);
    return 0;
}

static int open_lease(struct leader *l, struct err *e)
{
    const struct bh_options *lib = &l->options->lib;
    _cleanup_free_ char *engine = NULL;
    char holder[KUBE_LEASE_HOLDER_BYTES];
    int r;

    l->ctx = (struct bh_ctx){.kubeconfig = (char *)lib->kubeconfig,
                             .kube_context = (char *)lib->kube_context,
                             .kube_namespace = (char *)lib->kube_namespace,
                             .cancel_fd = l->end_fd};
    r = kube_choose(&l->ctx, &engine, e);
    if (r == 0)
        r = choose_holder(holder, e);
    if (r == 0)
        r = kube_lease_new(&l->ctx, engine, l->options->lease, holder, &l->lease, e);
    return r;
}

/* By then nothing of this container writes to the store. */
static void give_lease_up(struct leader *l)
{
    struct err e = {0};

    l->ctx.cancel_fd = -1;
    if (kube_lease_release(l->lease, &e) < 0)
        (void)fprintf(stderr, "bellhop-daemon: the Lease '%s' is not given up: %s\n",
                      l->options->lease, e.message);
}

int leader_run(const struct daemon_options *o, char **argv, struct err *e)
{
    struct leader l = {.options = o, .argv = argv, .end_fd = -1, .side_fd = -1};
    int r;

    if (getpid() != 1)
        return err_field(e, ERR_PRECONDITION, "lease",
                         "lease: the daemon must be the first process of a container, with which "
                         "all that it has started ends");
    r = open_signals(&l, e);
    if (r == 0)
        r = open_lease(&l, e);
    if (r == 0) {
        lead_or_wait(&l);
        end_everything(&l);
        give_lease_up(&l);
        r = l.status;
    }
    (void)kube_lease_free(l.lease);
    fd_close(l.end_fd);
    fd_close(l.side_fd);
    return r;
}
