/* launch: from what was asked to a running child. Runs on a pool thread. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/io.h"
#include "common/path.h"
#include "common/str.h"
#include "proc/environ.h"
#include "proc/proc.h"
#include "proc/pty.h"

#include "common/banned.h"

#define SHELL_FIRST "/bin/bash"
#define SHELL_ELSE "/bin/sh"
/* A script up to this size is an argument of the shell, as with `sh -c`; a longer one is a file. */
#define SCRIPT_ARG_BYTES (64 * 1024)
/* The shell has its own descriptor of the file by then; what it starts shall not see ours. */
#define SCRIPT_PREFIX "exec 3<&-; "
#define TERM_DEFAULT "TERM=xterm-256color"

/* What one launch makes; what is left in it is dropped. */
struct launch {
    struct user user;
    bool is_switch; /* the command runs as another user than the agent */
    char **env, **argv;
    char *cwd;
    int script_fd;
    int child_fd[3]; /* stdin, stdout, stderr; a pty's are the same */
    int cgroup_fd[CGROUP_MAX_DIRS];
    size_t n_cgroup_fds;
    int own_fd[3]; /* the agent's ends; a pty's master is [1] */
};

static void launch_done(struct launch *la)
{
    user_done(&la->user);
    strv_free(la->env);
    strv_free(la->argv);
    free(la->cwd);
    fd_close(la->script_fd);
    for (size_t i = 0; i < la->n_cgroup_fds; i++)
        fd_close(la->cgroup_fd[i]);
    for (size_t i = 0; i < 3; i++) {
        if (i == 0 || la->child_fd[i] != la->child_fd[0])
            fd_close(la->child_fd[i]);
        fd_close(la->own_fd[i]);
    }
}

static int set_user(struct launch *la, const struct proc_spec *s, struct err *e)
{
    const char *who = s->user ? s->user : s->default_user;
    int r;

    if (!who)
        return user_find_uid(geteuid(), &la->user, e);
    r = user_find(who, &la->user, e);
    if (r < 0)
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
    size_t bytes = strlen(name) + strlen(value) + 2;

    setting = malloc(bytes);
    if (!setting)
        return err_oom(e);
    (void)snprintf(setting, bytes, "%s=%s", name, value);
    return strv_push(env, setting, e);
}

static int add_all(char ***env, char *const *settings, struct err *e)
{
    int r = 0;

    for (; r == 0 && settings && *settings; settings++)
        r = environ_set(env, *settings, e);
    return r;
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
        r = add_all(&la->env, common, e);
    return r == 0 ? add_all(&la->env, p->spec.env, e) : r;
}

static int make_cwd(struct launch *la, const struct proc_spec *s, struct err *e)
{
    const char *base = s->workdir ? s->workdir : la->user.home;

    la->cwd = s->cwd ? path_join(base, s->cwd) : strdup(base);
    return la->cwd ? 0 : err_oom(e);
}

/* A file without a name, sealed, for scripts longer than an argument can be. */
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

static int make_argv(struct launch *la, const struct proc_spec *s, struct err *e)
{
    const char *shell;
    char file[32];
    int r;

    if (!s->script) {
        la->argv = strv_dup(s->argv);
        return la->argv ? 0 : err_oom(e);
    }
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

/* own_end: 0 when the agent reads, 1 when it writes. Only the agent's end does not block. */
static int make_pipe(int own_end, int *ret_own, int *ret_child, struct err *e)
{
    int fds[2];

    if (pipe2(fds, O_CLOEXEC) < 0)
        return err_sys(e, errno, "making a pipe");
    *ret_own = fds[own_end];
    *ret_child = fds[!own_end];
    return io_set_nonblock(*ret_own, true, e);
}

static int make_stdin(struct launch *la, const struct proc_spec *s, struct err *e)
{
    int r;

    if (s->stdin_open || s->stdin_len > 0)
        return make_pipe(1, &la->own_fd[0], &la->child_fd[0], e);
    la->child_fd[0] = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (la->child_fd[0] >= 0)
        return 0;
    /* A box without /dev: a pipe that nobody writes to is as empty. */
    r = make_pipe(1, &la->own_fd[0], &la->child_fd[0], e);
    fd_close(la->own_fd[0]);
    la->own_fd[0] = -1;
    return r;
}

static int make_stdio(struct launch *la, const struct proc_spec *s, struct err *e)
{
    const struct pty_options pty = {
        .cols = s->cols,
        .rows = s->rows,
        .is_raw = s->pty_raw,
        .owner = la->is_switch ? la->user.uid : (uid_t)-1,
    };
    int r;

    if (s->has_pty) {
        r = pty_open(&pty, &la->own_fd[1], &la->child_fd[0], e);
        if (r == 0)
            la->child_fd[1] = la->child_fd[2] = la->child_fd[0];
        return r;
    }
    r = make_stdin(la, s, e);
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

    if (!cgroup_has_limits(limits))
        return 0;
    r = cgroup_new(limits, &p->cgroup, e);
    return r < 0 ? r : cgroup_open(p->cgroup, la->cgroup_fd, &la->n_cgroup_fds, e);
}

static int prepare(struct launch *la, struct proc *p, struct err *e)
{
    const struct proc_spec *s = &p->spec;
    int r;

    r = set_user(la, s, e);
    if (r == 0)
        r = make_env(la, p, e);
    if (r == 0)
        r = make_cwd(la, s, e);
    if (r == 0)
        r = make_argv(la, s, e);
    if (r == 0)
        r = make_stdio(la, s, e);
    if (r == 0)
        r = make_cgroup(la, p, e);
    return r;
}

static int start(struct launch *la, struct proc *p, struct err *e)
{
    const struct proc_spec *s = &p->spec;
    struct spawn_args a = {
        .argv = la->argv,
        .envp = la->env,
        .cwd = la->cwd,
        .cwd_or_root = !s->cwd && !s->workdir,
        .stdin_fd = la->child_fd[0],
        .stdout_fd = la->child_fd[1],
        .stderr_fd = la->child_fd[2],
        .script_fd = la->script_fd,
        .has_tty = s->has_pty,
        .user = la->is_switch ? &la->user : NULL,
        .ignored_signals = p->reg->ignored_signals,
        .umask = s->umask,
        .n_limits = s->n_limits,
        .nofile = p->reg->o.nofile,
        .marker = tree_mark(p->reg->instance, p->serial),
        .oom_score_adj = p->reg->oom_score_adj,
        .n_cgroup_fds = la->n_cgroup_fds,
    };

    memcpy(a.limits, s->limits, sizeof(a.limits));
    memcpy(a.cgroup_fds, la->cgroup_fd, sizeof(a.cgroup_fds));
    p->oom_kills_before = oom_count(&p->reg->oom);
    p->started_mono_ms = clock_mono_ms();
    return spawn(&a, &p->pid, e);
}

static void queue_stdin(struct proc *p)
{
    struct proc_spec *s = &p->spec;
    uint64_t end;

    if (s->stdin_len > 0)
        (void)proc_write(p, 0, s->stdin_data, s->stdin_len, &end, NULL);
    free(TAKE(s->stdin_data));
    if (!s->stdin_open && !s->has_pty)
        (void)proc_close_stdin(p, NULL);
}

static void on_started(struct loop *l, void *arg)
{
    struct proc *p = arg;

    (void)l;
    proc_adopt(p);
    proc_unref(p);
}

static void succeed(struct launch *la, struct proc *p)
{
    struct registry *reg = p->reg;

    (void)pthread_mutex_lock(&reg->lock);
    reg->totals.started_total++;
    (void)pthread_mutex_unlock(&reg->lock);
    (void)pthread_mutex_lock(&p->lock);
    p->stdin_fd = TAKE_FD(la->own_fd[0]);
    p->out_fd[PROC_STDOUT] = TAKE_FD(la->own_fd[1]);
    p->out_fd[PROC_STDERR] = TAKE_FD(la->own_fd[2]);
    p->info.is_eof[PROC_STDERR] = p->spec.has_pty;
    p->info.is_stdin_open = p->stdin_fd >= 0 || p->spec.has_pty;
    p->info.pid = p->pid;
    p->info.started_ms = clock_real_ms();
    p->info.state = PROC_RUNNING;
    (void)pthread_mutex_unlock(&p->lock);
    proc_wake(p);
    queue_stdin(p);
    /* Without memory for this the reaper adopts it when it ends. */
    if (loop_post(reg->loop, on_started, proc_ref(p), NULL) < 0)
        proc_unref(p);
}

static void give_up(struct proc *p, const struct err *e)
{
    (void)pthread_mutex_lock(&p->lock);
    p->info.error = *e;
    p->info.state = PROC_FAILED;
    (void)pthread_mutex_unlock(&p->lock);
    proc_wake_all(p);
    registry_failed(p);
}

void launch_run(void *arg)
{
    _cleanup_(launch_done) struct launch la = {
        .script_fd = -1, .child_fd = {-1, -1, -1}, .own_fd = {-1, -1, -1}};
    struct proc *p = arg;
    struct err e = {0};
    int r;

    r = prepare(&la, p, &e);
    if (r == 0)
        r = start(&la, p, &e);
    if (r < 0)
        give_up(p, &e);
    else
        succeed(&la, p);
    proc_unref(p);
}
