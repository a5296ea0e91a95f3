#include "lib/provider/oci/runtime_exec.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/io.h"
#include "common/process.h"

/* Inputs are small (nft rules): the pipe's buffer takes them whole. */
#define INPUT_MAX_BYTES 65536

struct pipes {
    int input[2];  /* standard input, if there is any */
    int output[2]; /* captured output */
    int error[2];  /* struct err of a failed setup; exec closes it */
};

static void pipes_done(struct pipes *p)
{
    for (int i = 0; i < 2; i++) {
        fd_close(p->input[i]);
        fd_close(p->output[i]);
        fd_close(p->error[i]);
    }
}

static void close_end(int *fd)
{
    fd_close(*fd);
    *fd = -1;
}

static int pipes_open(struct pipes *p, const char *input, struct err *e)
{
    if (pipe2(p->error, O_CLOEXEC) < 0 || pipe2(p->output, O_CLOEXEC) < 0 ||
        pipe2(p->input, O_CLOEXEC) < 0)
        return err_sys(e, errno, "pipe");
    if (!input)
        return 0;
    if (strlen(input) > INPUT_MAX_BYTES)
        return err_set(e, ERR_INTERNAL, "the input of a helper is too long");
    (void)fcntl(p->input[1], F_SETPIPE_SZ, INPUT_MAX_BYTES);
    return io_write_all(p->input[1], input, strlen(input), e);
}

/* Sets the limits that a box inherits: descriptors up to the hard limit, no core files. Raising
 * the soft limit needs no privilege; a limit in the bundle would need CAP_SYS_RESOURCE in the
 * box's user namespace. */
static void child_limits(void)
{
    struct rlimit nofile;
    const struct rlimit core = {0, 0};

    if (getrlimit(RLIMIT_NOFILE, &nofile) == 0) {
        nofile.rlim_cur = nofile.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &nofile);
    }
    (void)setrlimit(RLIMIT_CORE, &core);
}

static void child_signals(void)
{
    sigset_t none;

    sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    for (int sig = 1; sig < NSIG; sig++)
        (void)signal(sig, SIG_DFL);
}

static void child_fail(const struct pipes *p, const struct err *e)
{
    (void)!write(p->error[1], e, sizeof(*e));
    _exit(127);
}

/* A helper that outlives its caller would redo what the next command has just undone. */
static void end_with(pid_t caller)
{
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != caller)
        _exit(127);
}

static void run_child(const struct oci_cmd *c, const struct pipes *p, pid_t caller)
{
    static char path_env[] = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    static char lang_env[] = "LANG=C.UTF-8";
    static char *const env[] = {path_env, lang_env, NULL};
    int out = c->stdio_fd >= 0 ? c->stdio_fd : p->output[1];
    int in = c->input ? p->input[0] : open("/dev/null", O_RDONLY | O_CLOEXEC);
    struct err e = {0};

    end_with(caller);
    child_signals();
    child_limits();
    (void)setsid();
    (void)umask(022);
    if (c->setup && c->setup(c->setup_arg, &e) < 0)
        child_fail(p, &e);
    if (dup2(in, 0) < 0 || dup2(out, 1) < 0 || dup2(out, 2) < 0) {
        (void)err_sys(&e, errno, "dup2");
        child_fail(p, &e);
    }
    (void)execve(c->argv[0], (char *const *)c->argv, env);
    (void)err_sys(&e, errno, "run '%s'", c->argv[0]);
    child_fail(p, &e);
}

/* Reads the pipe; true: all writers are gone. */
static bool drain_pipe(int fd, struct oci_output *ret)
{
    char scrap[4096] = "";

    for (;;) {
        size_t room = sizeof(ret->text) - 1 - ret->len;
        ssize_t n = read(fd, room ? ret->text + ret->len : scrap, room ? room : sizeof(scrap));

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n == 0;
        if (room)
            ret->len += (size_t)n;
    }
}

/* Waits for the child's end, but not for output of its own children. */
static int wait_child(const struct oci_cmd *c, int pidfd, int out, struct oci_output *ret,
                      struct err *e)
{
    int64_t deadline = clock_mono_ms() + c->timeout_ms;

    for (;;) {
        struct pollfd fds[] = {{.fd = pidfd, .events = POLLIN},
                               {.fd = out, .events = POLLIN},
                               {.fd = c->cancel_fd > 0 ? c->cancel_fd : -1, .events = POLLIN}};
        int n = poll(fds, N_ELEMENTS(fds), clock_until_ms(deadline));

        if (n < 0 && errno != EINTR)
            return err_sys(e, errno, "poll");
        if (n <= 0 && clock_mono_ms() >= deadline)
            return err_set(e, ERR_DEADLINE, "'%s' did not end within %lld ms", c->argv[0],
                           (long long)c->timeout_ms);
        if (n <= 0)
            continue;
        if (fds[1].revents && drain_pipe(out, ret))
            out = -1;
        if (fds[0].revents)
            break;
        if (fds[2].revents)
            return err_set(e, ERR_CANCELED, "canceled while '%s' ran", c->argv[0]);
    }
    if (out >= 0)
        (void)drain_pipe(out, ret);
    return 0;
}

static int reap_runtime(pid_t pid, struct oci_output *ret, struct err *e)
{
    int status;

    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return err_sys(e, errno, "waitpid");
    ret->status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return 0;
}

static int run_parent(const struct oci_cmd *c, pid_t pid, const struct pipes *p,
                      struct oci_output *ret, struct err *e)
{
    _cleanup_close_ int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    struct err setup = {0};
    size_t n = 0;
    int r, waited;

    if (pidfd < 0)
        r = err_sys(e, errno, "pidfd_open");
    else
        r = io_set_nonblock(p->output[0], true, e);
    if (r == 0)
        r = wait_child(c, pidfd, p->output[0], ret, e);
    if (r < 0)
        (void)process_signal_child(pid, SIGKILL);
    waited = reap_runtime(pid, ret, r < 0 ? NULL : e);
    ret->text[ret->len] = '\0';
    if (r < 0)
        return r;
    if (io_set_nonblock(p->error[0], true, NULL) == 0 &&
        io_read_full(p->error[0], &setup, sizeof(setup), &n, NULL) == 0 && n == sizeof(setup)) {
        if (e)
            *e = setup;
        return -setup.code;
    }
    return waited;
}

int oci_exec(const struct oci_cmd *c, struct oci_output *ret, struct err *e)
{
    struct pipes p = {{-1, -1}, {-1, -1}, {-1, -1}};
    pid_t caller = getpid();
    pid_t pid;
    int r;

    ret->len = 0;
    ret->text[0] = '\0';
    ret->status = -1;
    r = pipes_open(&p, c->input, e);
    if (r < 0) {
        pipes_done(&p);
        return r;
    }
    pid = fork();
    if (pid == 0)
        run_child(c, &p, caller);
    close_end(&p.input[0]);
    close_end(&p.input[1]);
    close_end(&p.output[1]);
    close_end(&p.error[1]);
    r = pid < 0 ? err_sys(e, errno, "fork") : run_parent(c, pid, &p, ret, e);
    pipes_done(&p);
    return r;
}

void oci_one_line(const char *text, char *out, size_t out_bytes)
{
    size_t n = 0, len = strlen(text);

    while (len && (text[len - 1] == '\n' || text[len - 1] == ' '))
        len--;
    for (size_t i = 0; i < len && n + 3 < out_bytes; i++) {
        if (text[i] == '\n')
            out[n++] = ';';
        out[n++] = text[i] >= ' ' && text[i] < 127 ? text[i] : ' ';
    }
    out[n] = '\0';
}

int oci_exec_ok(const struct oci_cmd *c, struct oci_output *ret, struct err *e)
{
    char line[300];
    int r;

    r = oci_exec(c, ret, e);
    if (r < 0)
        return r;
    if (ret->status == 0)
        return 0;
    oci_one_line(ret->text, line, sizeof(line));
    return err_set(e, ERR_INTERNAL, "'%s %s' ended with status %d: %s", c->argv[0],
                   c->argv[1] ? c->argv[1] : "", ret->status, line);
}

char *oci_find_program(const char *name)
{
    static const char *const dirs[] = {"/usr/local/sbin", "/usr/local/bin", "/usr/sbin",
                                       "/usr/bin",        "/sbin",          "/bin"};

    if (name[0] == '/')
        return access(name, X_OK) == 0 ? strdup(name) : NULL;
    for (size_t i = 0; i < N_ELEMENTS(dirs); i++) {
        char *path;

        if (asprintf(&path, "%s/%s", dirs[i], name) < 0)
            return NULL;
        if (access(path, X_OK) == 0)
            return path;
        free(path);
    }
    return NULL;
}
