#include "lib/util/hostcmd.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pwd.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/path.h"
#include "common/process.h"
#include "common/str.h"

#define STDERR_TAIL_BYTES 4096
#define TERM_GRACE_MS 500
#define TICK_MS 1000

const char *const hostcmd_proxy_names[] = {"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY",
                                           "NO_PROXY",   "http_proxy",  "https_proxy",
                                           "all_proxy",  "no_proxy",    NULL};

bool hostcmd_is_proxy_variable(const char *variable)
{
    for (size_t i = 0; hostcmd_proxy_names[i]; i++)
        if (str_has_prefix(variable, hostcmd_proxy_names[i]) &&
            variable[strlen(hostcmd_proxy_names[i])] == '=')
            return true;
    return false;
}

struct running {
    pid_t pid;
    int pidfd;
    int out; /* the reading ends of its pipes, or -1 */
    int err;
    char tail[STDERR_TAIL_BYTES + 1]; /* the end of its standard error */
    size_t tail_len;
    char line[HOSTCMD_LINE_BYTES]; /* the unfinished last line of its output */
    size_t line_len;
};

static int find_program(const char *name, const char *path, char **ret, struct err *e)
{
    if (strchr(name, '/')) {
        *ret = strdup(name);
        return *ret ? 0 : err_oom(e);
    }
    for (const char *p = path; p && *p;) {
        size_t len = strcspn(p, ":");
        _cleanup_free_ char *file = NULL;

        if (asprintf(&file, "%.*s/%s", (int)len, p, name) < 0)
            return err_oom(e);
        if (len && access(file, X_OK) == 0) {
            *ret = TAKE(file);
            return 0;
        }
        p += len + (p[len] == ':');
    }
    return err_set(e, ERR_NOT_FOUND, "there is no '%s' on this machine", name);
}

/* HOME from the user database: the library does not read the environment. */
static int push_home(char ***env, struct err *e)
{
    _cleanup_free_ char *line = NULL;
    struct passwd pw, *found = NULL;
    char text[4096];

    if (getpwuid_r(geteuid(), &pw, text, sizeof(text), &found) != 0 || !found)
        return strv_push(env, "HOME=/", e);
    if (asprintf(&line, "HOME=%s", found->pw_dir) < 0)
        return err_oom(e);
    return strv_push(env, line, e);
}

static int make_env(const struct hostcmd *cmd, char ***ret, struct err *e)
{
    _cleanup_strv_ char **env = NULL;
    _cleanup_free_ char *path = NULL;
    int r;

    if (asprintf(&path, "PATH=%s", cmd->path ? cmd->path : HOSTCMD_PATH) < 0)
        return err_oom(e);
    r = strv_push(&env, path, e);
    if (r == 0)
        r = strv_push(&env, "LC_ALL=C", e);
    if (r == 0)
        r = push_home(&env, e);
    for (size_t i = 0; r == 0 && cmd->env && cmd->env[i]; i++)
        r = strv_push(&env, cmd->env[i], e);
    if (r < 0)
        return r;
    *ret = TAKE(env);
    return 0;
}

static int make_pipe(int *ret_read, int *ret_write, struct err *e)
{
    int fds[2];

    if (pipe2(fds, O_CLOEXEC) < 0)
        return err_sys(e, errno, "pipe");
    *ret_read = fds[0];
    *ret_write = fds[1];
    return 0;
}

static int spawn_actions(posix_spawn_file_actions_t *fa, const struct hostcmd *cmd, int out,
                         int err)
{
    int r = posix_spawn_file_actions_addopen(fa, 0, "/dev/null", O_RDONLY, 0);

    if (r == 0)
        r = posix_spawn_file_actions_adddup2(fa, out, 1);
    if (r == 0)
        r = posix_spawn_file_actions_adddup2(fa, err, 2);
    if (r == 0 && cmd->cwd)
        r = posix_spawn_file_actions_addchdir_np(fa, cmd->cwd);
    return r;
}

/* Starts it in a process group of its own, with default signals, so that the whole group can be
 * killed. */
static int spawn_program(const struct hostcmd *cmd, const char *file, char **env, int out, int err,
                         pid_t *ret, struct err *e)
{
    posix_spawn_file_actions_t fa;
    posix_spawnattr_t attr;
    sigset_t none, all;
    int r;

    if (posix_spawn_file_actions_init(&fa) != 0)
        return err_oom(e);
    if (posix_spawnattr_init(&attr) != 0) {
        (void)posix_spawn_file_actions_destroy(&fa);
        return err_oom(e);
    }
    (void)sigemptyset(&none);
    (void)sigfillset(&all);
    (void)posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF |
                                              POSIX_SPAWN_SETSIGMASK);
    (void)posix_spawnattr_setsigmask(&attr, &none);
    (void)posix_spawnattr_setsigdefault(&attr, &all);
    r = spawn_actions(&fa, cmd, out, err);
    if (r == 0)
        r = posix_spawn(ret, file, &fa, &attr, (char *const *)cmd->argv, env);
    (void)posix_spawnattr_destroy(&attr);
    (void)posix_spawn_file_actions_destroy(&fa);
    if (r != 0)
        return err_sys(e, r, "start '%s'", file);
    return 0;
}

static void keep_tail(struct running *run, const char *data, size_t len)
{
    if (len > STDERR_TAIL_BYTES) {
        data += len - STDERR_TAIL_BYTES;
        len = STDERR_TAIL_BYTES;
    }
    if (run->tail_len + len > STDERR_TAIL_BYTES) {
        size_t drop = run->tail_len + len - STDERR_TAIL_BYTES;

        memmove(run->tail, run->tail + drop, run->tail_len - drop);
        run->tail_len -= drop;
    }
    memcpy(run->tail + run->tail_len, data, len);
    run->tail_len += len;
}

static void give_line(struct running *run, const struct hostcmd *cmd)
{
    run->line[run->line_len] = '\0';
    run->line_len = 0;
    cmd->line(cmd->line_arg, run->line);
}

static void give_lines(struct running *run, const struct hostcmd *cmd, const char *data, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        if (data[i] != '\n')
            run->line[run->line_len++] = data[i];
        if (data[i] == '\n' || run->line_len == sizeof(run->line) - 1)
            give_line(run, cmd);
    }
}

/* Reads once from a ready pipe; closes it at its end. */
static int drain_pipe(struct running *run, int *fd, const struct hostcmd *cmd, struct err *e)
{
    char chunk[8192];
    ssize_t n = read(*fd, chunk, sizeof(chunk));

    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return 0;
    if (n <= 0) {
        fd_close(TAKE_FD(*fd));
        return 0;
    }
    if (fd == &run->err)
        keep_tail(run, chunk, (size_t)n);
    else if (cmd->line)
        give_lines(run, cmd, chunk, (size_t)n);
    else if (cmd->out)
        return buf_add(cmd->out, chunk, (size_t)n, e);
    return 0;
}

/* The time until the deadline or the next tick. */
static int wait_ms(const struct hostcmd *cmd, bool exited)
{
    int left = exited ? 0 : clock_until_ms(cmd->deadline_mono_ms);

    return cmd->tick && (left < 0 || left > TICK_MS) ? TICK_MS : left;
}

/* Runs until the program has exited and closed its pipes, but does not wait for a descendant
 * that keeps a pipe open. */
static int watch_program(struct running *run, const struct hostcmd *cmd, struct err *e)
{
    bool exited = false;
    int r;

    while (!exited || run->out >= 0 || run->err >= 0) {
        struct pollfd p[] = {
            {.fd = exited ? -1 : run->pidfd, .events = POLLIN},
            {.fd = run->out, .events = POLLIN},
            {.fd = run->err, .events = POLLIN},
            {.fd = cmd->cancel_fd > 0 ? cmd->cancel_fd : -1, .events = POLLIN},
        };
        int n = poll(p, N_ELEMENTS(p), wait_ms(cmd, exited));

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_sys(e, errno, "poll");
        if (n == 0 && exited)
            return 0;
        if (n == 0 && cmd->tick && clock_until_ms(cmd->deadline_mono_ms) != 0) {
            cmd->tick(cmd->line_arg);
            continue;
        }
        if (n == 0)
            return err_set(e, ERR_DEADLINE, "'%s' did not end in time", cmd->argv[0]);
        if (p[3].revents)
            return err_set(e, ERR_CANCELED, "canceled");
        r = p[1].revents ? drain_pipe(run, &run->out, cmd, e) : 0;
        if (r == 0 && p[2].revents)
            r = drain_pipe(run, &run->err, cmd, e);
        if (r < 0)
            return r;
        exited = exited || p[0].revents;
    }
    return 0;
}

static void end_group(struct running *run, const struct hostcmd *cmd)
{
    struct pollfd p = {.fd = run->pidfd, .events = POLLIN};

    (void)process_signal_child_group(run->pid, SIGTERM);
    (void)poll(&p, 1, cmd->grace_ms > 0 ? cmd->grace_ms : TERM_GRACE_MS);
    (void)process_signal_child_group(run->pid, SIGKILL);
}

/* The last line that is not empty. */
static const char *last_line(struct running *run)
{
    char *p;

    while (run->tail_len && strchr("\r\n ", run->tail[run->tail_len - 1]))
        run->tail_len--;
    run->tail[run->tail_len] = '\0';
    p = strrchr(run->tail, '\n');
    return p ? p + 1 : run->tail;
}

static int program_result(struct running *run, const struct hostcmd *cmd, int status,
                          int *ret_status, struct err *e)
{
    const char *said = last_line(run);

    if (cmd->said)
        (void)snprintf(cmd->said, HOSTCMD_SAID_BYTES, "%s", said);
    if (ret_status)
        *ret_status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return 0;
    if (WIFEXITED(status))
        return err_set(e, ERR_PRECONDITION, "'%s' ended with status %d%s%s", cmd->argv[0],
                       WEXITSTATUS(status), *said ? ": " : "", said);
    return err_set(e, ERR_PRECONDITION, "'%s' was ended by signal %d", cmd->argv[0],
                   WTERMSIG(status));
}

static int run_to_end(struct running *run, const struct hostcmd *cmd, int *ret_status,
                      struct err *e)
{
    int status = 0;
    int r;

    run->pidfd = (int)syscall(SYS_pidfd_open, run->pid, 0);
    r = run->pidfd < 0 ? err_sys(e, errno, "pidfd_open") : watch_program(run, cmd, e);
    if (r < 0)
        end_group(run, cmd);
    while (waitpid(run->pid, &status, 0) < 0 && errno == EINTR)
        ;
    fd_close(run->pidfd);
    return r < 0 ? r : program_result(run, cmd, status, ret_status, e);
}

static void report_program(const struct hostcmd *cmd, int64_t begun_ms, int r)
{
    char words[512] = "";
    size_t n = 0;

    for (const char *const *a = cmd->argv; *a && n < sizeof(words); a++) {
        char word[256];

        n += (size_t)snprintf(words + n, sizeof(words) - n, "%s%s", n ? " " : "",
                              debug_url(*a, word, sizeof(word)));
    }
    debug_line(cmd->debug, "host", "%s: %s %lld ms", words, r < 0 ? err_wire_name(r) : "ok",
               (long long)(clock_mono_ms() - begun_ms));
}

int hostcmd_run(const struct hostcmd *cmd, int *ret_status, struct err *e)
{
    int64_t begun_ms = clock_mono_ms();
    _cleanup_free_ struct running *run = calloc(1, sizeof(*run));
    _cleanup_close_ int out_w = -1, err_w = -1;
    _cleanup_free_ char *file = NULL;
    _cleanup_strv_ char **env = NULL;
    int r;

    if (!run)
        return err_oom(e);
    run->out = run->err = -1;
    r = find_program(cmd->argv[0], cmd->path ? cmd->path : HOSTCMD_PATH, &file, e);
    if (r == 0)
        r = make_env(cmd, &env, e);
    if (r == 0)
        r = make_pipe(&run->err, &err_w, e);
    if (r == 0 && cmd->out_fd < 0)
        r = make_pipe(&run->out, &out_w, e);
    if (r == 0)
        r = spawn_program(cmd, file, env, cmd->out_fd >= 0 ? cmd->out_fd : out_w, err_w, &run->pid,
                          e);
    fd_close(TAKE_FD(out_w));
    fd_close(TAKE_FD(err_w));
    if (r == 0)
        r = run_to_end(run, cmd, ret_status, e);
    fd_close(run->out);
    fd_close(run->err);
    report_program(cmd, begun_ms, r);
    return r;
}
