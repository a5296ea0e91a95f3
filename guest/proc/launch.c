/*
 * launch: makes a running child out of a spec. Runs on a pool thread, which waits in spawn() until
 * the child has become the program. On a busy machine the program may have ended before this thread
 * is scheduled: the reaper, which finds it, then completes the start by launch_take_over().
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/io.h"
#include "common/path.h"
#include "common/process.h"
#include "common/str.h"
#include "proc/proc.h"

#define SHELL_FIRST "/bin/bash"
#define SHELL_ELSE "/bin/sh"
/* A script up to this size is an argument of `sh -c`; a longer one is a file. */
#define SCRIPT_ARG_BYTES (64 * 1024)
/* The shell has opened the file itself by then; its children must not inherit our descriptor. */
#define SCRIPT_PREFIX "exec 3<&-; "
/* Longer than the kernel's limit of 255, so that no line is truncated silently. */
#define SCRIPT_LINE_MAX_BYTES 4096
#define SCRIPT_RANDOM_BYTES 12 /* in a script file's name */
#define SLAVE_MODE 0620
#define TERM_DEFAULT "TERM=xterm-256color"

static const char *const script_dirs[] = {"/tmp", "/var/tmp", "/dev/shm"};

/* Resources of one launch; launch_done() frees those that were not handed over. */
struct launch {
    struct user user;
    bool is_switch; /* the command runs as another user than the agent */
    char **env, **argv;
    char *cwd;
    int script_fd;
    int child_fd[3]; /* stdin, stdout, stderr; a pty's are the same */
    int cgroup_fd[CGROUP_MAX_DIRS];
    size_t n_cgroup_fds;
    int null_fd;   /* borrowed: stdin, where child_fd[0] is -1 */
    int own_fd[3]; /* the agent's ends; a pty's master is [1] */
    struct spawn_room *room;
};

static void close_child_fds(struct launch *la)
{
    for (size_t i = 3; i-- > 0; la->child_fd[i] = -1)
        if (i == 0 || la->child_fd[i] != la->child_fd[0])
            fd_close(la->child_fd[i]);
}

static void launch_done(struct launch *la)
{
    user_done(&la->user);
    strv_free(la->env);
    strv_free(la->argv);
    free(la->cwd);
    fd_close(la->script_fd);
    for (size_t i = 0; i < la->n_cgroup_fds; i++)
        fd_close(la->cgroup_fd[i]);
    close_child_fds(la);
    for (size_t i = 0; i < 3; i++)
        fd_close(la->own_fd[i]);
    la->room = spawn_room_free(la->room);
}

static int set_user(struct launch *la, const struct proc *p, struct err *e)
{
    const char *who = p->spec.user ? p->spec.user : p->spec.default_user;
    int r = user_cache_find(&p->reg->users, who, geteuid(), &la->user, e);

    if (r < 0 || !who)
        return r;
    la->is_switch = geteuid() == 0;
    if (!la->is_switch && la->user.uid != geteuid())
        return err_field(e, ERR_DENIED, "user",
                         "the agent is not root and can't run commands as '%.64s'", who);
    return 0;
}

static int add_env(char ***env, const char *name, const char *value, struct err *e)
{
    _cleanup_free_ char *setting = NULL;

    return asprintf(&setting, "%s=%s", name, value) < 0 ? err_oom(e) : strv_push(env, setting, e);
}

static int make_env(struct launch *la, const struct proc *p, struct err *e)
{
    _cleanup_strv_ char **common = NULL;
    const char *const defaults[][2] = {
        {"PATH", p->reg->path},
        {"HOME", la->user.home},
        {"USER", la->user.name},
        {"LOGNAME", la->user.name},
    };
    int r = 0;

    for (size_t i = 0; r == 0 && i < N_ELEMENTS(defaults); i++)
        r = add_env(&la->env, defaults[i][0], defaults[i][1], e);
    if (r == 0 && p->spec.has_pty)
        r = strv_push(&la->env, TERM_DEFAULT, e);
    if (r == 0)
        r = environ_copy(p->reg, &common, e);
    if (r == 0)
        r = environ_set_all(&la->env, common, e);
    return r == 0 ? environ_set_all(&la->env, p->spec.env, e) : r;
}

static int make_cwd(struct launch *la, const struct proc_spec *s, struct err *e)
{
    const char *base = s->workdir ? s->workdir : la->user.home;

    la->cwd = s->cwd ? path_join(base, s->cwd) : strdup(base);
    return la->cwd ? 0 : err_oom(e);
}

/* A sealed file without a name, for scripts longer than an argument can be. */
static int make_script_file(const struct proc_spec *s, int *ret_fd, struct err *e)
{
    _cleanup_close_ int fd = memfd_create("script", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    int r;

    if (fd < 0)
        return err_at(e, err_sys(e, errno, "making a file for the script"), "shell");
    r = io_write_all(fd, SCRIPT_PREFIX, strlen(SCRIPT_PREFIX), e);
    if (r == 0)
        r = io_write_all(fd, s->script, s->script_len, e);
    if (r < 0)
        return err_at(e, r, "shell");
    (void)fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL);
    *ret_fd = TAKE_FD(fd);
    return 0;
}

/* ---- a script with an interpreter ---- */

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

static int add_word(const char *from, size_t len, char ***argv, struct err *e)
{
    _cleanup_free_ char *word = strndup(from, len);

    return word ? strv_push(argv, word, e) : err_oom(e);
}

/*
 * A script whose first line is "#!INTERPRETER [ARGUMENT]" runs as the kernel would run such a file:
 * INTERPRETER [ARGUMENT] FILE. Appends the interpreter, and the argument as one word, to *argv. 1:
 * done; 0: the script names no interpreter and is for the shell. Trailing blanks are not part of the
 * argument.
 */
static int add_interpreter(const char *text, size_t len, char ***argv, struct err *e)
{
    const char *at = text + 2, *end, *word;
    int r;

    if (len < 2 || text[0] != '#' || text[1] != '!')
        return 0;
    end = memchr(text, '\n', len);
    end = end ? end : text + len;
    while (end > at && is_blank(end[-1]))
        end--;
    while (at < end && is_blank(*at))
        at++;
    if (at == end)
        return 0;
    if (end - text > SCRIPT_LINE_MAX_BYTES || memchr(at, '\0', (size_t)(end - at)))
        return err_field(e, ERR_INVALID, "shell",
                         "the script's first line has a zero byte, or more than %d bytes",
                         SCRIPT_LINE_MAX_BYTES);
    for (word = at; at < end && !is_blank(*at); at++)
        ;
    r = add_word(word, (size_t)(at - word), argv, e);
    while (at < end && is_blank(*at))
        at++;
    if (r == 0 && at < end)
        r = add_word(at, (size_t)(end - at), argv, e);
    return r < 0 ? r : 1;
}

static int create_script_file(char **ret_path, int *ret_fd, struct err *e)
{
    char random[SCRIPT_RANDOM_BYTES * 2 + 1];
    int r = io_random_hex(SCRIPT_RANDOM_BYTES, random, e);
    int sys = 0;

    if (r < 0)
        return r;
    for (size_t i = 0; i < N_ELEMENTS(script_dirs); i++) {
        _cleanup_free_ char *path = NULL;
        int fd;

        if (asprintf(&path, "%s/bellhop-script-%s", script_dirs[i], random) < 0)
            return err_oom(e);
        fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0700);
        if (fd < 0) {
            sys = sys ? sys : errno; /* of the first directory, which should have worked */
            continue;
        }
        *ret_path = TAKE(path);
        *ret_fd = fd;
        return 0;
    }
    return err_at(e, err_sys(e, sys, "making a file for the script in '%s'", script_dirs[0]),
                  "shell");
}

/*
 * The file has a name, because some interpreters (Node.js) refuse a file without one; it belongs to
 * the command's user and is removed when the command has ended.
 */
static int write_script(const struct proc_spec *s, const struct user *u, char **ret_path,
                        struct err *e)
{
    _cleanup_free_ char *path = NULL;
    _cleanup_close_ int fd = -1;
    int r = create_script_file(&path, &fd, e);

    if (r < 0)
        return r;
    r = io_write_all(fd, s->script, s->script_len, e);
    if (r == 0 && (fchmod(fd, 0700) < 0 || (u->uid != geteuid() && fchown(fd, u->uid, u->gid) < 0)))
        r = err_sys(e, errno, "giving '%s' to its user", path);
    if (r < 0) {
        (void)unlink(path);
        return err_at(e, r, "shell");
    }
    *ret_path = TAKE(path);
    return 0;
}

static int make_argv(struct launch *la, struct proc *p, struct err *e)
{
    const struct proc_spec *s = &p->spec;
    const char *shell;
    char file[32];
    int r;

    if (!s->script) {
        la->argv = strv_dup(s->argv);
        return la->argv ? 0 : err_oom(e);
    }
    r = add_interpreter(s->script, s->script_len, &la->argv, e);
    if (r > 0) {
        r = write_script(s, &la->user, &p->script_path, e);
        return r < 0 ? r : strv_push(&la->argv, p->script_path, e);
    }
    if (r < 0)
        return r;
    shell = access(SHELL_FIRST, X_OK) == 0 ? SHELL_FIRST : SHELL_ELSE;
    r = strv_push(&la->argv, shell, e);
    if (r < 0)
        return r;
    if (s->script_len <= SCRIPT_ARG_BYTES && !memchr(s->script, '\0', s->script_len)) {
        r = strv_push(&la->argv, "-c", e);
        return r < 0 ? r : strv_push(&la->argv, s->script, e);
    }
    r = make_script_file(s, &la->script_fd, e);
    if (r < 0)
        return r;
    (void)snprintf(file, sizeof(file), "/proc/self/fd/%d", SPAWN_SCRIPT_FD);
    return strv_push(&la->argv, file, e);
}

/* ---- stdin and output ---- */

int pty_resize(int master, unsigned cols, unsigned rows, struct err *e)
{
    struct winsize size = {.ws_col = (unsigned short)cols, .ws_row = (unsigned short)rows};

    if (cols == 0 || rows == 0 || cols > PTY_MAX_SIDE || rows > PTY_MAX_SIDE)
        return err_field(e, ERR_INVALID, cols == 0 || cols > PTY_MAX_SIDE ? "cols" : "rows",
                         "a terminal has 1 to %d columns and rows", PTY_MAX_SIDE);
    if (ioctl(master, TIOCSWINSZ, &size) < 0)
        return err_sys(e, errno, "setting the terminal's size");
    return 0;
}

/* TIOCGPTPEER works whatever is mounted at /dev/pts; older kernels need the path. */
static int open_slave(int master)
{
    char path[64];
    unsigned n;
    int fd = ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);

    if (fd >= 0 || ioctl(master, TIOCGPTN, &n) < 0)
        return fd;
    (void)snprintf(path, sizeof(path), "/dev/pts/%u", n);
    return open(path, O_RDWR | O_NOCTTY | O_CLOEXEC);
}

static int set_raw(int slave, struct err *e)
{
    struct termios t;

    if (tcgetattr(slave, &t) < 0)
        return err_sys(e, errno, "setting the terminal's mode");
    cfmakeraw(&t);
    if (tcsetattr(slave, TCSANOW, &t) < 0)
        return err_sys(e, errno, "setting the terminal's mode");
    return 0;
}

static int make_pty(struct launch *la, const struct proc_spec *s, struct err *e)
{
    int unlock = 0, r;

    la->own_fd[1] = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
    if (la->own_fd[1] < 0)
        return err_at(e, err_sys(e, errno, "opening a terminal"), "pty");
    if (ioctl(la->own_fd[1], TIOCSPTLCK, &unlock) < 0)
        return err_at(e, err_sys(e, errno, "unlocking a terminal"), "pty");
    la->child_fd[0] = la->child_fd[1] = la->child_fd[2] = open_slave(la->own_fd[1]);
    if (la->child_fd[0] < 0)
        return err_at(e, err_sys(e, errno, "opening a terminal"), "pty");
    r = pty_resize(la->own_fd[1], s->cols, s->rows, e);
    if (r == 0 && s->pty_raw)
        r = set_raw(la->child_fd[0], e);
    if (r == 0 && la->is_switch) {
        /* lets the user open it by name; without the capability it stays as it is */
        (void)!fchown(la->child_fd[0], la->user.uid, (gid_t)-1);
        (void)fchmod(la->child_fd[0], SLAVE_MODE);
    }
    return r;
}

/* own_end: 0 if the agent reads, 1 if it writes. Only the agent's end is non-blocking. */
static int make_pipe(int own_end, int *ret_own, int *ret_child, struct err *e)
{
    int fds[2];

    if (pipe2(fds, O_CLOEXEC) < 0)
        return err_sys(e, errno, "making a pipe");
    *ret_own = fds[own_end];
    *ret_child = fds[!own_end];
    if (fcntl(*ret_own, F_SETFL, O_NONBLOCK) < 0) /* a new pipe has no other flags */
        return err_sys(e, errno, "making a pipe");
    return 0;
}

static int make_stdin(struct launch *la, const struct proc *p, struct err *e)
{
    int r;

    if (p->spec.stdin_open || p->spec.stdin_len > 0)
        return make_pipe(1, &la->own_fd[0], &la->child_fd[0], e);
    la->null_fd = p->reg->null_fd;
    if (la->null_fd >= 0)
        return 0;
    /* The box has no /dev/null: a pipe without a writer is as empty. */
    r = make_pipe(1, &la->own_fd[0], &la->child_fd[0], e);
    fd_close(la->own_fd[0]);
    la->own_fd[0] = -1;
    return r;
}

static int make_stdio(struct launch *la, const struct proc *p, struct err *e)
{
    int r;

    if (p->spec.has_pty)
        return make_pty(la, &p->spec, e);
    r = make_stdin(la, p, e);
    if (r == 0)
        r = make_pipe(0, &la->own_fd[1], &la->child_fd[1], e);
    if (r == 0)
        r = make_pipe(0, &la->own_fd[2], &la->child_fd[2], e);
    return r;
}

static int make_cgroup(struct launch *la, struct proc *p, struct err *e)
{
    const struct cgroup_limits *limits = &p->spec.cgroup;
    int r;

    if (!cgroup_is_wanted(limits))
        return 0;
    r = cgroup_new(limits, &p->cgroup, e);
    return r < 0 ? r : cgroup_open(p->cgroup, la->cgroup_fd, &la->n_cgroup_fds, e);
}

static int launch_prepare(struct launch *la, struct proc *p, struct err *e)
{
    const struct proc_spec *s = &p->spec;
    int r;

    r = set_user(la, p, e);
    if (r == 0)
        r = make_env(la, p, e);
    if (r == 0)
        r = make_cwd(la, s, e);
    if (r == 0)
        r = make_argv(la, p, e);
    if (r == 0)
        r = make_stdio(la, p, e);
    if (r == 0)
        r = make_cgroup(la, p, e);
    if (r < 0)
        return r;
    la->room = spawn_room_new();
    return la->room ? 0 : err_oom(e);
}

static int launch_spawn(struct launch *la, struct proc *p, struct err *e)
{
    const struct proc_spec *s = &p->spec;
    struct spawn_args a = {
        .argv = la->argv,
        .envp = la->env,
        .cwd = la->cwd,
        .cwd_or_root = !s->cwd && !s->workdir,
        .stdin_fd = la->child_fd[0] >= 0 ? la->child_fd[0] : la->null_fd,
        .stdout_fd = la->child_fd[1],
        .stderr_fd = la->child_fd[2],
        .script_fd = la->script_fd,
        .has_tty = s->has_pty,
        .user = la->is_switch ? &la->user : NULL,
        .ignored_signals = p->reg->ignored_signals,
        .umask = s->umask,
        .n_limits = s->n_limits,
        .nofile = p->reg->o.nofile,
        .marker = command_tree_mark(p->reg->instance, p->serial),
        .oom_score_adj = p->reg->oom_score_adj,
        .n_cgroup_fds = la->n_cgroup_fds,
    };
    int r;

    memcpy(a.limits, s->limits, sizeof(a.limits));
    memcpy(a.cgroup_fds, la->cgroup_fd, sizeof(a.cgroup_fds));
    p->oom_kills_before = oom_count(&p->reg->oom);
    p->started_mono_ms = clock_mono_ms();
    WITH_LOCK (&p->lock)
        p->launch = la; /* from here on the reaper may take over */
    r = spawn(&a, la->room, &p->child_pid, e);
    /* A script has no argv: the interpreter that it names is at fault. */
    if (r < 0 && e && s->script && str_has_prefix(e->field, "argv"))
        (void)snprintf(e->field, sizeof(e->field), "shell");
    return r;
}

/*
 * A terminal passes on what was typed at a line feed and at ^D; only ^D on an empty line is the end
 * of file. A raw terminal has no end of file.
 */
static void queue_terminal_eof(struct proc *p, bool is_within_a_line)
{
    if (p->spec.pty_raw)
        return;
    if (is_within_a_line)
        (void)proc_close_stdin(p, NULL);
    (void)proc_close_stdin(p, NULL);
}

/* The end of file behind stdin_data, which is queued, unless stdin stays open. /dev/null needs none. */
static void close_first_stdin(struct proc *p)
{
    struct proc_spec *s = &p->spec;
    bool is_within_a_line;

    if (s->stdin_len == 0)
        return;
    is_within_a_line = s->stdin_data[s->stdin_len - 1] != '\n';
    free(TAKE(s->stdin_data));
    if (s->stdin_open)
        return;
    if (s->has_pty)
        queue_terminal_eof(p, is_within_a_line);
    else
        (void)proc_close_stdin(p, NULL);
}

static void on_started(struct loop *l, void *arg)
{
    struct proc *p = arg;

    (void)l;
    proc_adopt(p);
    proc_unref(p);
}

/* Out of memory: the reaper adopts the command when it ends. */
static void post_started(struct proc *p)
{
    const struct proc_spec *s = &p->spec;

    /* Most commands without readers end before the loop needs to watch them. */
    if (s->has_pty || s->stdin_open || s->stdin_len > 0 || output_has_readers(p))
        proc_post(p, on_started);
    else
        proc_post_lazily(p, on_started);
}

/* With the lock, once: the command runs; the launch hands its descriptors over. */
static void launch_settle(struct proc *p)
{
    struct launch *la = TAKE(p->launch);
    struct process_stat s;

    close_child_fds(la);
    p->stdin_fd = TAKE_FD(la->own_fd[0]);
    p->out_fd[PROC_STDOUT] = TAKE_FD(la->own_fd[1]);
    p->out_fd[PROC_STDERR] = TAKE_FD(la->own_fd[2]);
    p->info.is_eof[PROC_STDERR] = p->spec.has_pty;
    p->info.is_stdin_open = p->stdin_fd >= 0 || p->spec.has_pty;
    p->stdin_close_asked = !p->info.is_stdin_open;
    p->info.pid = p->child_pid;
    p->start = process_read(p->info.pid, &s) ? s.start : 0;
    p->info.started_ms = clock_real_ms();
    p->info.state = PROC_RUNNING;
}

static void announce_start(struct proc *p)
{
    struct registry *reg = p->reg;

    WITH_LOCK (&reg->lock)
        reg->totals.started_total++;
    proc_wake(p);
}

/* stdin_data is queued in the same step that lets others write: what they write comes behind it. Out of memory:
 * the command gets no stdin at all, rather than one without its beginning. */
static void launch_succeed(struct proc *p)
{
    WITH_LOCK (&p->lock) {
        if (!p->launch)
            return;
        launch_settle(p);
        if (p->spec.stdin_len > 0 &&
            input_queue_first(p, p->spec.stdin_data, p->spec.stdin_len, NULL) < 0)
            p->stdin_broken = p->stdin_close_asked = true;
    }
    announce_start(p);
    close_first_stdin(p);
    proc_spec_used(&p->spec);
    post_started(p);
}

bool launch_take_over(struct proc *p)
{
    WITH_LOCK (&p->lock) {
        if (!p->launch || spawn_room_has_failed(p->launch->room))
            return false;
        launch_settle(p);
    }
    proc_spec_used(&p->spec);
    announce_start(p);
    return true;
}

static void launch_fail(struct proc *p, const struct err *e)
{
    WITH_LOCK (&p->lock) {
        p->launch = NULL;
        p->info.error = *e;
        p->info.state = PROC_FAILED;
    }
    proc_wake_all(p);
    registry_failed(p);
}

void launch_run(void *arg)
{
    _cleanup_(launch_done) struct launch la = {
        .script_fd = -1, .child_fd = {-1, -1, -1}, .null_fd = -1, .own_fd = {-1, -1, -1}};
    struct proc *p = arg;
    struct err e = {0};
    int r;

    r = launch_prepare(&la, p, &e);
    if (r == 0)
        r = launch_spawn(&la, p, &e);
    if (r < 0)
        launch_fail(p, &e);
    else
        launch_succeed(p);
    proc_unref(p);
}
