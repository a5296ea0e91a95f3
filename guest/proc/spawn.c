#include "proc/spawn.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/close_range.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/path.h"
#include "common/str.h"
#include "proc/command_tree.h"

#define STACK_BYTES (32 * 1024)
#define FIRST_OWN_FD 10 /* descriptors below are the child's */
#define MAX_PATH_ENTRIES 128
#define KERNEL_MAX_STRING_PAGES 32 /* MAX_ARG_STRLEN */
#define FALLBACK_MAX_FD 4096       /* where close_range is missing */

/*
 * The child shares the agent's memory, but TSan's thread state does not survive that: with TSan it
 * gets a copy. Either way the agent's thread continues when the child has called exec or has ended.
 */
#if defined(__SANITIZE_THREAD__)
#define CLONE_SHARED CLONE_VFORK
#else
#define CLONE_SHARED (CLONE_VM | CLONE_VFORK)
#endif

enum stage {
    STAGE_NONE = 0,
    STAGE_SESSION,
    STAGE_CGROUP,
    STAGE_STDIO,
    STAGE_TTY,
    STAGE_LIMIT,
    STAGE_USER,
    STAGE_CWD,
    STAGE_EXEC,
};

struct failure {
    int stage;
    int sys;
    int index; /* of the limit */
};

/* In memory that the parent and the child share. */
struct spawn_room {
    _Alignas(16) char stack[STACK_BYTES];
    struct failure failure;
};

static const int mark_limits[] = COMMAND_TREE_MARK_LIMITS;

struct child {
    const struct spawn_args *a;
    char **candidates;  /* paths to try for argv[0], in order */
    char **script_argv; /* for a file without a known format: sh FILE ARG...; [1] is the file */
    char oom_text[16];
    size_t oom_len;
    struct failure *failure; /* in the room */
};

/* ---- in the child: system calls only, no allocation, no lock ---- */

#define IN_CHILD __attribute__((no_sanitize("address", "undefined", "thread"), noinline))

_Noreturn IN_CHILD static void child_fail(const struct child *c, enum stage stage, int index)
{
    *c->failure = (struct failure){.stage = (int)stage, .sys = errno, .index = index};
    _exit(127);
}

/* exec resets signals with a handler (the agent has none) but not ignored ones. */
IN_CHILD static void default_signals(const struct spawn_args *a)
{
    struct sigaction dfl = {.sa_handler = SIG_DFL};
    sigset_t none;

    for (int i = 1; i <= SPAWN_MAX_SIGNAL; i++)
        if (a->ignored_signals & SPAWN_SIGNAL_BIT(i))
            (void)sigaction(i, &dfl, NULL);
    (void)sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
}

/* Moves a descriptor above the numbers that the child's own descriptors get. */
IN_CHILD static int move_up(const struct child *c, int fd)
{
    int up = fd;

    if (fd >= 0 && fd < FIRST_OWN_FD) {
        up = fcntl(fd, F_DUPFD_CLOEXEC, FIRST_OWN_FD);
        if (up < 0)
            child_fail(c, STAGE_STDIO, 0);
    }
    return up;
}

IN_CHILD static void place_fd(const struct child *c, int from, int to)
{
    if (from >= 0 && dup2(from, to) < 0)
        child_fail(c, STAGE_STDIO, 0);
}

/* Makes exec close also descriptors that the agent inherited without knowing. */
IN_CHILD static void close_rest_on_exec(unsigned first)
{
    if (syscall(SYS_close_range, first, ~0u, CLOSE_RANGE_CLOEXEC) == 0)
        return;
    for (unsigned fd = first; fd < FALLBACK_MAX_FD; fd++)
        (void)fcntl((int)fd, F_SETFD, FD_CLOEXEC);
}

IN_CHILD static void set_stdio(const struct child *c)
{
    const struct spawn_args *a = c->a;
    int in = move_up(c, a->stdin_fd);
    int out = move_up(c, a->stdout_fd);
    int err = move_up(c, a->stderr_fd);
    int script = move_up(c, a->script_fd);

    place_fd(c, in, 0);
    place_fd(c, out, 1);
    place_fd(c, err, 2);
    place_fd(c, script, SPAWN_SCRIPT_FD);
    close_rest_on_exec(script >= 0 ? SPAWN_SCRIPT_FD + 1 : 3);
    if (a->has_tty && ioctl(0, TIOCSCTTY, 0) < 0)
        child_fail(c, STAGE_TTY, 0);
}

IN_CHILD static void set_limits(const struct child *c)
{
    const struct spawn_args *a = c->a;

    struct rlimit nofile;

    /*
     * The agent's own limit is as high as possible; programs that close all descriptors would be
     * slow with it.
     */
    if (a->nofile && getrlimit(RLIMIT_NOFILE, &nofile) == 0 && a->nofile < nofile.rlim_cur) {
        nofile.rlim_cur = a->nofile;
        (void)setrlimit(RLIMIT_NOFILE, &nofile);
    }
    for (size_t i = 0; i < a->n_limits; i++) {
        struct rlimit lim = {a->limits[i].value, a->limits[i].value};

        if (syscall(SYS_prlimit64, 0, a->limits[i].resource, &lim, NULL) < 0)
            child_fail(c, STAGE_LIMIT, (int)i);
    }
    for (size_t i = 0; a->marker && i < N_ELEMENTS(mark_limits); i++) {
        struct rlimit mark = {a->marker, a->marker};

        /* One of the two may be refused. */
        (void)syscall(SYS_prlimit64, 0, mark_limits[i], &mark, NULL);
    }
}

/* Raw system calls: libc's functions would change all of the agent's threads. */
IN_CHILD static void set_user(const struct child *c)
{
    const struct user *u = c->a->user;

    if (!u)
        return;
    if (syscall(SYS_setgroups, u->n_groups, u->groups) < 0 ||
        syscall(SYS_setresgid, u->gid, u->gid, u->gid) < 0 ||
        syscall(SYS_setresuid, u->uid, u->uid, u->uid) < 0)
        child_fail(c, STAGE_USER, 0);
}

IN_CHILD static void set_oom_score(const struct child *c)
{
    int fd;

    if (c->oom_len == 0)
        return;
    fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    (void)!write(fd, c->oom_text, c->oom_len);
    (void)close(fd);
}

IN_CHILD static void exec_any(const struct child *c)
{
    int worst = ENOENT;

    for (size_t i = 0; c->candidates[i]; i++) {
        (void)execve(c->candidates[i], c->a->argv, c->a->envp);
        if (errno == ENOEXEC) {
            c->script_argv[1] = c->candidates[i];
            (void)execve("/bin/sh", c->script_argv, c->a->envp);
            errno = ENOEXEC;
        }
        if (errno != ENOENT && errno != ENOTDIR && errno != EACCES)
            return;
        if (errno == EACCES)
            worst = EACCES;
    }
    errno = worst;
}

IN_CHILD static int child_main(void *arg)
{
    const struct child *c = arg;
    const struct spawn_args *a = c->a;

    default_signals(a);
    if (setsid() < 0)
        child_fail(c, STAGE_SESSION, 0);
    for (size_t i = 0; i < a->n_cgroup_fds; i++)
        if (write(a->cgroup_fds[i], "0", 1) != 1)
            child_fail(c, STAGE_CGROUP, 0);
    set_oom_score(c);
    set_stdio(c);
    set_limits(c);
    set_user(c);
    if (a->umask >= 0)
        (void)umask((mode_t)a->umask);
    if (chdir(a->cwd) < 0 && (!a->cwd_or_root || chdir("/") < 0))
        child_fail(c, STAGE_CWD, 0);
    exec_any(c);
    child_fail(c, STAGE_EXEC, 0);
}

/* ---- before ---- */

uint64_t spawn_ignored_signals(void)
{
    uint64_t set = SPAWN_SIGNAL_BIT(SIGPIPE); /* the agent itself ignores it, now or later */

    for (int i = 1; i <= SPAWN_MAX_SIGNAL; i++) {
        struct sigaction sa;

        if (sigaction(i, NULL, &sa) == 0 && sa.sa_handler == SIG_IGN)
            set |= SPAWN_SIGNAL_BIT(i);
    }
    return set;
}

static int check_string(const char *s, size_t max, const char *list, size_t i, struct err *e)
{
    char field[ERR_FIELD_BYTES];
    size_t len = strlen(s);

    if (len < max)
        return 0;
    (void)snprintf(field, sizeof(field), "%s[%zu]", list, i);
    return err_field(e, ERR_INVALID, field,
                     "%s is %zu bytes long; the kernel takes less than %zu in one string", field,
                     len, max);
}

static int check_env_string(const char *s, size_t max, struct err *e)
{
    char field[ERR_FIELD_BYTES];

    if (strlen(s) < max)
        return 0;
    (void)snprintf(field, sizeof(field), "env.%.*s", (int)strcspn(s, "="), s);
    return err_field(e, ERR_INVALID, field,
                     "%s is too long; the kernel takes less than %zu bytes in one string", field,
                     max);
}

static int check_strings(const struct spawn_args *a, struct err *e)
{
    size_t max = (size_t)sysconf(_SC_PAGESIZE) * KERNEL_MAX_STRING_PAGES;
    int r = 0;

    for (size_t i = 0; a->argv[i] && r == 0; i++)
        r = check_string(a->argv[i], max, "argv", i, e);
    for (size_t i = 0; a->envp[i] && r == 0; i++)
        r = check_env_string(a->envp[i], max, e);
    return r;
}

static const char *search_path(char *const *envp)
{
    for (; *envp; envp++)
        if (str_has_prefix(*envp, "PATH="))
            return *envp + strlen("PATH=");
    return "";
}

/* As execvp: a name with a slash is a path, an empty entry is the working directory. */
static int make_candidates(const struct spawn_args *a, char ***ret, struct err *e)
{
    _cleanup_strv_ char **list = NULL;
    _cleanup_free_ char *path = NULL;
    char *at, *entry;
    int r = 0;

    if (strchr(a->argv[0], '/')) {
        r = strv_push(&list, a->argv[0], e);
        *ret = TAKE(list);
        return r;
    }
    path = strdup(search_path(a->envp));
    if (!path)
        return err_oom(e);
    at = path;
    for (size_t n = 0; r == 0 && n < MAX_PATH_ENTRIES && (entry = strsep(&at, ":")); n++) {
        _cleanup_free_ char *full = path_join(*entry ? entry : ".", a->argv[0]);

        r = full ? strv_push(&list, full, e) : err_oom(e);
    }
    if (r == 0)
        *ret = TAKE(list);
    return r;
}

static int make_script_argv(const struct spawn_args *a, char ***ret, struct err *e)
{
    size_t n = strv_len(a->argv);
    char **v = calloc(n + 2, sizeof(char *));

    if (!v)
        return err_oom(e);
    v[0] = (char *)"sh";
    for (size_t i = 1; i <= n; i++)
        v[i + 1] = a->argv[i]; /* with the NULL */
    *ret = v;
    return 0;
}

/* ---- after ---- */

static int exec_error(const struct spawn_args *a, int sys, struct err *e)
{
    const char *name = a->argv[0];

    switch (sys) {
    case ENOENT:
    case ENOTDIR:
        return err_field(e, ERR_NOT_FOUND, "argv[0]", "program '%.200s' not found%s", name,
                         strchr(name, '/') ? ", or its interpreter" : " in PATH");
    case EACCES:
    case EPERM:
        return err_field(e, ERR_DENIED, "argv[0]", "program '%.200s' is not executable", name);
    case E2BIG:
        return err_field(e, ERR_INVALID, "argv",
                         "argv and env together are longer than the kernel takes");
    case ENOEXEC:
        return err_field(e, ERR_PRECONDITION, "argv[0]",
                         "program '%.200s' is of a format that this kernel does not run", name);
    default:
        return err_at(e, err_sys(e, sys, "running '%.200s'", name), "argv[0]");
    }
}

static int stage_error(const struct spawn_args *a, const struct failure *f, struct err *e)
{
    const char *field;

    switch ((enum stage)f->stage) {
    case STAGE_CWD:
        return err_at(e, err_sys(e, f->sys, "working directory '%.200s'", a->cwd), "cwd");
    case STAGE_EXEC:
        return exec_error(a, f->sys, e);
    case STAGE_USER:
        return err_at(e, err_sys(e, f->sys, "becoming user '%.64s'", a->user->name), "user");
    case STAGE_LIMIT:
        field = a->limits[f->index].field;
        return err_at(e, err_sys(e, f->sys, "setting '%s'", field), field);
    case STAGE_CGROUP:
        return err_at(e, err_sys(e, f->sys, "entering the cgroup"), "limits");
    case STAGE_TTY:
        return err_at(e, err_sys(e, f->sys, "taking the terminal"), "pty");
    case STAGE_SESSION:
    case STAGE_STDIO:
    case STAGE_NONE:
        break;
    }
    return err_sys(e, f->sys, "starting a process (step %d)", f->stage);
}

struct spawn_room *spawn_room_new(void)
{
    struct spawn_room *r;

#if defined(__SANITIZE_THREAD__)
    r = mmap(NULL, sizeof(*r), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (r == MAP_FAILED)
        return NULL;
#else
    /*
     * malloc reuses the block: mapping a stack for each child would cost more than the rest of the
     * start.
     */
    r = malloc(sizeof(*r));
    if (!r)
        return NULL;
#endif
    r->failure = (struct failure){.stage = STAGE_NONE};
    return r;
}

struct spawn_room *spawn_room_free(struct spawn_room *r)
{
#if defined(__SANITIZE_THREAD__)
    if (r)
        (void)munmap(r, sizeof(*r));
#else
    free(r);
#endif
    return NULL;
}

bool spawn_room_has_failed(const struct spawn_room *r)
{
    return r->failure.stage != STAGE_NONE;
}

static int clone_child(struct child *c, struct spawn_room *room, _Atomic pid_t *ret_pid,
                       struct err *e)
{
    int flags = CLONE_SHARED | CLONE_PARENT_SETTID | SIGCHLD;
    sigset_t all, old;
    int pid, sys;

    /* No signal handler of the agent may run in the child, which shares the agent's memory. */
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &old);
    pid = clone(child_main, room->stack + STACK_BYTES, flags, c, (pid_t *)ret_pid);
    sys = errno;
    (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (pid < 0) {
        *ret_pid = 0;
        return err_sys(e, sys, "starting a process");
    }
    return 0;
}

/* The child ended without becoming the program; the reaper leaves it to this function. */
static int reap_failed(const struct child *c, _Atomic pid_t *ret_pid, struct err *e)
{
    while (waitpid(*ret_pid, NULL, 0) < 0 && errno == EINTR)
        ;
    *ret_pid = 0;
    return stage_error(c->a, c->failure, e);
}

int spawn(const struct spawn_args *a, struct spawn_room *room, _Atomic pid_t *ret_pid,
          struct err *e)
{
    _cleanup_strv_ char **candidates = NULL;
    _cleanup_free_ char **script_argv = NULL;
    struct child c = {.a = a, .failure = &room->failure};
    int r;

    assert(sizeof(_Atomic pid_t) == sizeof(pid_t));
    *ret_pid = 0;
    r = check_strings(a, e);
    if (r == 0)
        r = make_candidates(a, &candidates, e);
    if (r == 0)
        r = make_script_argv(a, &script_argv, e);
    if (r < 0)
        return r;
    c.candidates = candidates;
    c.script_argv = script_argv;
    if (a->oom_score_adj >= 0)
        c.oom_len = (size_t)snprintf(c.oom_text, sizeof(c.oom_text), "%d", a->oom_score_adj);
    r = clone_child(&c, room, ret_pid, e);
    if (r == 0 && spawn_room_has_failed(room))
        r = reap_failed(&c, ret_pid, e);
    return r;
}
