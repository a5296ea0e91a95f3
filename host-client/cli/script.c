#include "cli/script.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/process.h"
#include "common/str.h"

#define ARGV_MAX 16
#define KILL_GRACE_MS 10000

extern char **environ;

struct running {
    struct cli *cli;
    struct script *script;
    pid_t pid;
    int out;   /* read end of its output */
    int pidfd; /* readable once it has ended */
    bool is_canceled;
};

static int script_start(struct running *run, struct bh_error *err)
{
    const char *argv[ARGV_MAX + 2] = {"sh"};
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attr;
    int ends[2];
    int r;

    for (size_t i = 0; i < ARGV_MAX && run->script->argv[i]; i++)
        argv[i + 1] = run->script->argv[i];
    if (pipe2(ends, O_CLOEXEC) < 0)
        return cli_fail(err, BH_INTERNAL, "", "a pipe: %m");
    (void)posix_spawn_file_actions_init(&actions);
    (void)posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    (void)posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
    (void)posix_spawn_file_actions_adddup2(&actions, ends[1], 2);
    (void)posix_spawnattr_init(&attr);
    (void)posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETPGROUP);
    r = posix_spawn(&run->pid, "/bin/sh", &actions, &attr, (char *const *)argv, environ);
    (void)posix_spawn_file_actions_destroy(&actions);
    (void)posix_spawnattr_destroy(&attr);
    (void)close(ends[1]);
    run->out = ends[0];
    (void)fcntl(run->out, F_SETFL, O_NONBLOCK);
    if (r != 0) {
        errno = r;
        return cli_fail(err, BH_INTERNAL, "", "/bin/sh could not be started: %m");
    }
    run->pidfd = pidfd_open(run->pid, 0);
    return 0;
}

static void keep_tail(struct script *s, const char *data, size_t len)
{
    size_t have = strlen(s->tail);

    if (len > SCRIPT_TAIL_BYTES) {
        data += len - SCRIPT_TAIL_BYTES;
        len = SCRIPT_TAIL_BYTES;
    }
    if (have + len > SCRIPT_TAIL_BYTES) {
        size_t drop = have + len - SCRIPT_TAIL_BYTES;

        memmove(s->tail, s->tail + drop, have - drop + 1);
        have -= drop;
    }
    memcpy(s->tail + have, data, len);
    s->tail[have + len] = '\0';
}

/* Shows the last line of the output as progress. */
static void show_last_line(const struct running *run)
{
    struct bh_progress p = {.phase = run->script->phase};
    char text[120];
    const char *at = run->script->tail + strlen(run->script->tail);
    const char *end;

    while (at > run->script->tail && (at[-1] == '\n' || at[-1] == '\r'))
        at--;
    end = at;
    while (at > run->script->tail && at[-1] != '\n' && at[-1] != '\r')
        at--;
    (void)snprintf(text, sizeof(text), "%.*s", (int)(end - at), at);
    p.text = text;
    cli_progress(run->cli, &p);
}

/* Reads all that is available. NULs become spaces, since the tail is a string. */
static void read_output(struct running *run)
{
    char data[4096];
    ssize_t n;

    while ((n = read(run->out, data, sizeof(data))) > 0) {
        for (ssize_t i = 0; i < n; i++)
            if (!data[i])
                data[i] = ' ';
        keep_tail(run->script, data, (size_t)n);
        show_last_line(run);
    }
    if (n == 0) { /* end of file */
        (void)close(run->out);
        run->out = -1;
    }
}

static void script_follow(struct running *run)
{
    int cancel_fd = run->script->must_finish ? -1 : run->cli->opts.cancel_fd;

    for (;;) {
        struct pollfd fds[] = {{run->pidfd, POLLIN, 0},
                               {run->out, POLLIN, 0},
                               {run->is_canceled ? -1 : cancel_fd, POLLIN, 0}};
        int n = poll(fds, N_ELEMENTS(fds), run->is_canceled ? KILL_GRACE_MS : -1);

        if (n < 0 && errno != EINTR)
            return;
        if (fds[1].revents)
            read_output(run);
        if (fds[0].revents)
            return;
        if (n == 0)
            (void)process_signal_child_group(run->pid, SIGKILL);
        if (fds[2].revents) {
            run->is_canceled = true;
            (void)process_signal_child_group(run->pid, SIGTERM);
        }
    }
}

int cli_script_run(struct cli *c, struct script *s, struct bh_error *err)
{
    struct running run = {.cli = c, .script = s, .out = -1, .pidfd = -1};
    int status = 0;
    int r;

    s->tail[0] = '\0';
    r = script_start(&run, err);
    if (r == 0) {
        script_follow(&run);
        while (waitpid(run.pid, &status, 0) < 0 && errno == EINTR)
            ;
        if (run.out >= 0)
            read_output(&run);
        s->status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
    if (run.out >= 0)
        (void)close(run.out);
    if (run.pidfd >= 0)
        (void)close(run.pidfd);
    cli_progress_clear(c);
    if (r == 0 && run.is_canceled)
        return cli_fail(err, BH_CANCELED, "", "canceled");
    return r;
}

const char *cli_script_last_line(struct script *s)
{
    size_t len = strlen(s->tail);
    char *line;

    while (len > 0 && (s->tail[len - 1] == '\n' || s->tail[len - 1] == ' '))
        s->tail[--len] = '\0';
    line = strrchr(s->tail, '\n');
    return line ? line + 1 : s->tail;
}
