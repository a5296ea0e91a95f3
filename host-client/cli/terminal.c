#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "cli/cli.h"
#include "common/cleanup.h"
#include "common/io.h"

/*
 * Signals arrive as bytes in a pipe. What reads it decides what they mean: for most commands the
 * library does (its cancel_fd), while a command runs in a box the thread below does. These are
 * static because a signal handler can reach nothing else.
 */
static int signal_pipe[2] = {-1, -1};
static int window_pipe[2] = {-1, -1}; /* of SIGWINCH */
static struct termios saved_termios;
static int raw_fd = -1;

static void on_signal(int sig)
{
    int saved = errno;
    char c = (char)sig;

    (void)!write(sig == SIGWINCH ? window_pipe[1] : signal_pipe[1], &c, 1);
    errno = saved;
}

static int catch_signal(int sig, struct err *e)
{
    struct sigaction sa = {.sa_handler = on_signal, .sa_flags = SA_RESTART};

    if (sigaction(sig, &sa, NULL) < 0)
        return err_sys(e, errno, "sigaction");
    return 0;
}

int cli_cancel_init(struct cli *c, struct err *e)
{
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
    int r = 0;

    if (pipe2(signal_pipe, O_CLOEXEC | O_NONBLOCK) < 0 ||
        pipe2(window_pipe, O_CLOEXEC | O_NONBLOCK) < 0)
        return err_sys(e, errno, "pipe2");
    for (size_t i = 0; r == 0 && i < N_ELEMENTS(signals); i++)
        r = catch_signal(signals[i], e);
    (void)signal(SIGPIPE, SIG_IGN);
    c->opts.cancel_fd = signal_pipe[0];
    return r;
}

/* ---- while a command runs in a box ---- */

struct cli_signals {
    pthread_t thread;
    struct bh_options opts; /* for the thread's own context: a context is for one thread */
    char *box;
    char *exec_id;
    bool is_pty;
    bool is_mine;
    int stop_fd; /* the thread ends when the write end is closed */
    int stop_write_fd;
    int next_fd; /* an epoll of stop_fd and the signals: cancels the thread's call, which may hang */
    int cancel_read_fd; /* becomes the command's cancel_fd */
    int cancel_write_fd;
};

/* Opens the box and the context at the first signal, since most commands get none. */
static void forward_signal(struct cli_signals *s, struct bh_ctx **ctx, struct bh_box **box, int sig)
{
    uint16_t cols, rows;

    if (!*ctx && bh_open(&s->opts, ctx, NULL) < 0)
        return;
    if (!*box && bh_get(*ctx, s->box, box, NULL) < 0)
        return;
    if (sig == SIGWINCH) {
        cli_window_size(&cols, &rows);
        (void)bh_resize(*box, s->exec_id, cols, rows, NULL);
        return;
    }
    (void)bh_signal(*box, s->exec_id,
                    sig == SIGINT    ? "SIGINT"
                    : sig == SIGTERM ? "SIGTERM"
                                     : "SIGHUP",
                    NULL);
}

/* Works like a second ^C, from any thread. */
static void cli_signals_cancel(struct cli_signals *s)
{
    (void)!write(s->cancel_write_fd, "", 1);
}

static void *signals_main(void *arg)
{
    struct cli_signals *s = arg;
    struct bh_ctx *ctx = NULL;
    struct bh_box *box = NULL;
    int interrupts = 0;

    for (;;) {
        struct pollfd fds[] = {{.fd = s->stop_fd, .events = POLLIN},
                               {.fd = signal_pipe[0], .events = POLLIN},
                               {.fd = window_pipe[0], .events = POLLIN}};
        char sig;

        if (poll(fds, N_ELEMENTS(fds), -1) < 0 && errno != EINTR)
            break;
        if (fds[0].revents)
            break;
        if (read(fds[1].revents ? signal_pipe[0] : window_pipe[0], &sig, 1) != 1)
            continue;
        /* The second ^C stops waiting for a command that ignores the first. */
        if (sig != SIGWINCH && (++interrupts > 1 || !s->is_mine))
            cli_signals_cancel(s);
        if (sig == SIGWINCH || s->is_mine)
            forward_signal(s, &ctx, &box, sig);
    }
    (void)bh_box_free(box);
    (void)bh_close(ctx);
    return NULL;
}

/* Readable at the next signal, or when the thread is to end. */
static int open_next_fd(int stop_fd)
{
    struct epoll_event on_input = {.events = EPOLLIN};
    int fd = epoll_create1(EPOLL_CLOEXEC);

    if (fd >= 0 && epoll_ctl(fd, EPOLL_CTL_ADD, signal_pipe[0], &on_input) == 0 &&
        epoll_ctl(fd, EPOLL_CTL_ADD, stop_fd, &on_input) == 0)
        return fd;
    fd_close(fd);
    return -1;
}

int cli_signals_start(struct cli *c, const char *box, const char *exec_id, bool is_pty,
                      bool is_mine, struct cli_signals **ret, struct bh_error *err)
{
    struct cli_signals *s = calloc(1, sizeof(*s));
    int stop[2] = {-1, -1}, cancel[2] = {-1, -1};
    sigset_t all, before;

    if (!s || !(s->box = strdup(box)) || !(s->exec_id = strdup(exec_id)) ||
        pipe2(stop, O_CLOEXEC) < 0 || pipe2(cancel, O_CLOEXEC) < 0 ||
        (s->next_fd = open_next_fd(stop[0])) < 0)
        return cli_fail(err, BH_RESOURCE_EXHAUSTED, "", "cannot watch for signals");
    s->is_pty = is_pty;
    s->is_mine = is_mine;
    s->stop_fd = stop[0];
    s->stop_write_fd = stop[1];
    s->cancel_read_fd = cancel[0];
    s->cancel_write_fd = cancel[1];
    s->opts = c->opts;
    s->opts.cancel_fd = s->next_fd;
    s->opts.progress = NULL;
    if (is_pty)
        (void)catch_signal(SIGWINCH, NULL);
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    if (pthread_create(&s->thread, NULL, signals_main, s) != 0)
        return cli_fail(err, BH_RESOURCE_EXHAUSTED, "", "cannot start a thread");
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    c->opts.cancel_fd = s->cancel_read_fd;
    *ret = s;
    return 0;
}

struct cli_signals *cli_signals_stop(struct cli_signals *s)
{
    if (!s)
        return NULL;
    fd_close(s->stop_write_fd);
    (void)pthread_join(s->thread, NULL);
    fd_close(s->stop_fd);
    fd_close(s->cancel_read_fd);
    fd_close(s->cancel_write_fd);
    fd_close(s->next_fd);
    free(s->box);
    free(s->exec_id);
    free(s);
    return NULL;
}

/* ---- the keys that detach ---- */

#define KEY_FIRST 0x10  /* ^P */
#define KEY_SECOND 0x11 /* ^Q */
#define KEYS_BYTES 512

struct cli_keys {
    pthread_t thread;
    struct cli_signals *signals;
    int fd;
    int stop_fds[2];
    bool has_first; /* ^P has come; the next byte decides */
    bool is_detached;
};

/* Copies the input without the two keys to out (of twice the length); sets is_detached if they
 * came. */
static size_t filter_keys(struct cli_keys *k, const char *data, size_t len, char *out)
{
    size_t n = 0;

    for (size_t i = 0; i < len; i++) {
        if (k->has_first && data[i] == KEY_SECOND) {
            k->is_detached = true;
            break;
        }
        if (k->has_first)
            out[n++] = KEY_FIRST;
        k->has_first = data[i] == KEY_FIRST;
        if (!k->has_first)
            out[n++] = data[i];
    }
    return n;
}

/* Returns after the bytes typed before the two keys were written. */
static void pass_keys(struct cli_keys *k, struct bh_exec *exec)
{
    char data[KEYS_BYTES], out[2 * KEYS_BYTES];

    while (!k->is_detached) {
        struct pollfd fds[] = {{.fd = k->fd, .events = POLLIN},
                               {.fd = k->stop_fds[0], .events = POLLIN}};
        ssize_t n;

        if (poll(fds, 2, -1) < 0 && errno != EINTR)
            break;
        if (fds[1].revents)
            break;
        if (!fds[0].revents)
            continue;
        n = read(k->fd, data, sizeof(data));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        n = (ssize_t)filter_keys(k, data, (size_t)n, out);
        if (n > 0 && bh_exec_write(exec, out, (size_t)n, 0, NULL) < 0)
            break;
    }
}

/* Opens its own context: a context is for one thread. */
static void *keys_main(void *arg)
{
    struct cli_keys *k = arg;
    struct bh_options opts = k->signals->opts;
    struct bh_ctx *ctx = NULL;
    struct bh_box *box = NULL;
    struct bh_exec *exec = NULL;

    opts.cancel_fd = k->stop_fds[0];
    if (bh_open(&opts, &ctx, NULL) == 0 && bh_get(ctx, k->signals->box, &box, NULL) == 0 &&
        bh_exec_attach(box, k->signals->exec_id, &exec, NULL) == 0)
        pass_keys(k, exec);
    (void)bh_exec_free(exec);
    (void)bh_box_free(box);
    (void)bh_close(ctx);
    if (k->is_detached)
        cli_signals_cancel(k->signals);
    return NULL;
}

int cli_keys_start(int fd, struct cli_signals *s, struct cli_keys **ret, struct bh_error *err)
{
    struct cli_keys *k = calloc(1, sizeof(*k));
    sigset_t all, before;
    int failed;

    if (!k || pipe2(k->stop_fds, O_CLOEXEC) < 0)
        return cli_fail(err, BH_RESOURCE_EXHAUSTED, "", "cannot read the keyboard");
    k->fd = fd;
    k->signals = s;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    failed = pthread_create(&k->thread, NULL, keys_main, k);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed)
        return cli_fail(err, BH_RESOURCE_EXHAUSTED, "", "cannot start a thread");
    *ret = k;
    return 0;
}

struct cli_keys *cli_keys_stop(struct cli_keys *k, bool *ret_detached)
{
    if (!k)
        return NULL;
    fd_close(k->stop_fds[1]);
    (void)pthread_join(k->thread, NULL);
    fd_close(k->stop_fds[0]);
    *ret_detached = k->is_detached;
    free(k);
    return NULL;
}

/* ---- the terminal ---- */

int cli_raw_mode(int fd, struct bh_error *err)
{
    struct termios raw;

    if (tcgetattr(fd, &saved_termios) < 0)
        return cli_fail(err, BH_FAILED_PRECONDITION, "", "standard input is not a terminal");
    raw = saved_termios;
    cfmakeraw(&raw);
    if (tcsetattr(fd, TCSADRAIN, &raw) < 0)
        return cli_fail(err, BH_INTERNAL, "", "cannot set the terminal to raw mode");
    if (raw_fd < 0)
        (void)atexit(cli_raw_restore);
    raw_fd = fd;
    return 0;
}

void cli_raw_restore(void)
{
    if (raw_fd >= 0)
        (void)tcsetattr(raw_fd, TCSADRAIN, &saved_termios);
    raw_fd = -1;
}

void cli_window_size(uint16_t *cols, uint16_t *rows)
{
    struct winsize w = {0};

    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) < 0 || !w.ws_col || !w.ws_row) {
        w.ws_col = 80;
        w.ws_row = 24;
    }
    *cols = w.ws_col;
    *rows = w.ws_row;
}
