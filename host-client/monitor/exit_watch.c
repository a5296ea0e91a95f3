#include "monitor/exit_watch.h"

#include <errno.h>
#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "lib/box/box_provider.h"

void exit_watch_init(struct exit_watch *w)
{
    *w = (struct exit_watch){.fd = -1, .next_ms = INT64_MAX};
}

void exit_watch_done(struct exit_watch *w)
{
    fd_close(TAKE_FD(w->fd));
}

/* An engine that fails again and again is asked more and more seldom. */
static int pause_after_fault_ms(const struct exit_watch *w)
{
    int ms = EXIT_WATCH_ASK_MS;

    for (unsigned i = 1; i < w->n_faults && ms < EXIT_WATCH_FAULT_MS; i++)
        ms *= 2;
    return ms < EXIT_WATCH_FAULT_MS ? ms : EXIT_WATCH_FAULT_MS;
}

/* A descriptor that was readable tells no more: a new one is opened. */
static void ask_later(struct exit_watch *w)
{
    int64_t begun_ms = clock_mono_ms();

    fd_close(TAKE_FD(w->fd));
    if (w->box->provider->watch && !w->has_fault && box_provider_watch(w->box, &w->fd, NULL) < 0)
        w->fd = -1;
    w->is_slow = w->is_slow || clock_mono_ms() - begun_ms > EXIT_WATCH_ASK_MS;
    w->next_ms = clock_mono_ms() +
                 (w->fd >= 0 || w->is_slow ? EXIT_WATCH_SELDOM_MS : pause_after_fault_ms(w));
}

void exit_watch_ask_soon(struct exit_watch *w)
{
    int64_t soon_ms = clock_mono_ms() + EXIT_WATCH_ASK_MS;

    if (soon_ms < w->next_ms && !w->box->provider->has_own_children)
        w->next_ms = soon_ms;
}

int exit_watch_begin(struct exit_watch *w, struct bh_box *box, const struct provider_run *run,
                     struct err *e)
{
    w->box = box;
    w->run = *run;
    if (!box->provider->has_own_children) {
        ask_later(w);
        return 0;
    }
    w->fd = (int)syscall(SYS_pidfd_open, run->pid, 0);
    return w->fd < 0 ? err_sys(e, errno, "the box's first process %d", (int)run->pid) : 0;
}

/* The first failure of a series is an event of the box. */
static bool provider_says_ended(struct exit_watch *w)
{
    struct provider_run run = {0};
    struct err e = {0};
    int64_t begun_ms = clock_mono_ms();
    int r = box_provider_look(w->box, &run, &e);

    if (r < 0 && !w->has_fault)
        box_provider_note_fault(w->box, "find", e.message);
    w->has_fault = r < 0;
    w->is_slow = r < 0 && clock_mono_ms() - begun_ms > EXIT_WATCH_ASK_MS;
    if (r == 1)
        w->is_paused = run.is_paused;
    return r == 0;
}

bool exit_watch_has_ended(struct exit_watch *w, int wait_ms)
{
    struct pollfd p = {.fd = w->fd, .events = POLLIN};
    int64_t left = w->next_ms - clock_mono_ms();
    bool is_told;

    if (w->box->provider->has_own_children)
        return poll(&p, 1, wait_ms) > 0;
    if (left < 0)
        left = 0;
    is_told = poll(&p, 1, left < wait_ms ? (int)left : wait_ms) > 0;
    if (!is_told && clock_mono_ms() < w->next_ms)
        return false;
    if (provider_says_ended(w))
        return true;
    w->n_faults = w->has_fault ? w->n_faults + 1 : 0;
    if (is_told) { /* an engine that ends each watch at once would keep the monitor busy */
        fd_close(TAKE_FD(w->fd));
        w->next_ms = clock_mono_ms() + pause_after_fault_ms(w);
    } else if (w->fd >= 0 && !w->has_fault) { /* it will still tell: a new one costs more calls */
        w->next_ms = clock_mono_ms() + EXIT_WATCH_SELDOM_MS;
    } else {
        ask_later(w);
    }
    return false;
}

void exit_watch_reap(struct exit_watch *w)
{
    int status;
    pid_t pid;

    while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
        if (pid == w->run.pid && w->box->provider->exit == PROVIDER_EXIT_CHILD) {
            w->has_status = true;
            w->status = status;
        }
}

bool exit_watch_status(struct exit_watch *w, int *ret_status)
{
    exit_watch_reap(w);
    if (!w->has_status && w->box->provider->exit == PROVIDER_EXIT_ASKED)
        w->has_status =
            box_provider_exit_status(w->box, &w->run, &w->status, &w->is_oom, NULL) == 0;
    if (w->has_status)
        *ret_status = w->status;
    return w->has_status;
}
