/*
 * agent_process: the guest agent as a process of this machine, in a session of its own and without
 * any isolation. For trying things out, for tests, and where nothing else works. It claims no
 * capability that needs isolation, so that an option which does is an error.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/io.h"
#include "common/jsonx.h"
#include "common/path.h"
#include "common/str.h"
#include "lib/provider/freezer.h"
#include "lib/provider/provider.h"
#include "lib/util/procfs.h"

#define MARK_BYTES 64
#define FREEZE_MS 10000
#define THAW_MS 5000

/* ---- what it can do ---- */

static int process_probe(struct bh_ctx *ctx, const char *runtime, struct provider_facts *ret,
                         struct err *e)
{
    (void)e;
    memset(ret, 0, sizeof(*ret));
    if (runtime && *runtime)
        (void)snprintf(ret->why, sizeof(ret->why), "it has no runtimes");
    else if (access(ctx->agent_path, X_OK) < 0)
        (void)snprintf(ret->why, sizeof(ret->why), "the guest agent '%.180s' is not there",
                       ctx->agent_path);
    else
        ret->usable = true;
    return 0;
}

static int process_check(struct bh_ctx *ctx, struct spec *s, struct err *e)
{
    (void)s;
    return access(ctx->agent_path, X_OK) < 0
               ? err_sys(e, errno, "the guest agent '%s'", ctx->agent_path)
               : 0;
}

/* ---- the disk ---- */

static char *box_file(const struct provider_box *b, const char *name)
{
    return path_join(b->dir, name);
}

static int process_prepare(struct provider_box *b, struct err *e)
{
    static const char *const dirs[] = {"run", "home", "workspace"};

    for (size_t i = 0; i < N_ELEMENTS(dirs); i++) {
        _cleanup_free_ char *path = box_file(b, dirs[i]);
        int r = path ? io_mkdir_p(path, 0700, e) : err_oom(e);

        if (r < 0)
            return r;
    }
    return 0;
}

/* ---- the record of the run ---- */

static int save_run(struct provider_box *b, const struct provider_run *run, struct err *e)
{
    _cleanup_free_ char *path = box_file(b, "run.json");
    char text[192];
    int n = snprintf(text, sizeof(text),
                     "{\"pid\":%d,\"pid_start\":%llu,\"listener\":{\"pid\":%d,\"start\":%llu}}\n",
                     (int)run->pid, (unsigned long long)run->pid_start, (int)run->listener,
                     (unsigned long long)run->listener_start);

    return path ? io_write_file(AT_FDCWD, path, text, (size_t)n, 0600, true, e) : err_oom(e);
}

static bool load_run(struct provider_box *b, struct provider_run *ret)
{
    _cleanup_free_ char *path = box_file(b, "run.json");
    _cleanup_free_ char *text = NULL;
    _cleanup_json_ json_t *obj = NULL;
    json_t *listener;
    size_t len = 0;

    if (!path || io_read_file(AT_FDCWD, path, 4096, &text, &len, NULL) < 0 ||
        jx_parse(text, len, &obj, NULL) < 0)
        return false;
    ret->pid = (pid_t)json_integer_value(json_object_get(obj, "pid"));
    ret->pid_start = (uint64_t)json_integer_value(json_object_get(obj, "pid_start"));
    listener = json_object_get(obj, "listener");
    ret->listener = (pid_t)json_integer_value(json_object_get(listener, "pid"));
    ret->listener_start = (uint64_t)json_integer_value(json_object_get(listener, "start"));
    if (!listener) { /* an earlier version wrote none */
        ret->listener = ret->pid;
        ret->listener_start = ret->pid_start;
    }
    return ret->pid > 1;
}

static int process_find(struct provider_box *b, struct provider_run *ret, struct err *e)
{
    struct provider_run run = {0};

    (void)e;
    if (!load_run(b, &run) || !procfs_is_alive(run.pid, run.pid_start))
        return 0;
    *ret = run;
    return 1;
}

/* ---- start ---- */

struct agent_launch {
    char *argv[16];
    char **env;
    char *log;
    char *workdir;
    char *token;
};

static void launch_done(struct agent_launch *l)
{
    (void)strv_free(l->env);
    free(l->log);
    free(l->workdir);
    free(l->token);
}

static void set_mark(const struct provider_box *b, char mark[MARK_BYTES])
{
    (void)snprintf(mark, MARK_BYTES, PROVIDER_MARK_ENV "=%s", b->id);
}

static const char *own_value(const char *name)
{
    size_t len = strlen(name);

    for (char **p = environ; *p; p++)
        if (strncmp(*p, name, len) == 0 && (*p)[len] == '=')
            return *p;
    return NULL;
}

/*
 * The agent gets only the variables that it reads, and our mark: a command of the same user can
 * read the agent's whole environment in /proc.
 */
static int make_env(const struct provider_box *b, char ***ret, struct err *e)
{
    static const char *const kept[] = {"PATH", "HOME"};
    _cleanup_strv_ char **env = NULL;
    char mark[MARK_BYTES];
    int r = 0;

    for (size_t i = 0; r == 0 && i < N_ELEMENTS(kept); i++) {
        const char *setting = own_value(kept[i]);

        r = setting ? strv_push(&env, setting, e) : 0;
    }
    set_mark(b, mark);
    if (r == 0)
        r = strv_push(&env, mark, e);
    if (r == 0)
        *ret = TAKE(env);
    return r;
}

static int fill_launch(struct provider_box *b, struct agent_launch *l, struct err *e)
{
    int r;

    l->log = box_file(b, "agent.log");
    l->token = box_file(b, "token");
    l->workdir = provider_workdir(&provider_process, b->dir, b->spec);
    if (!l->log || !l->token || !l->workdir)
        return err_oom(e);
    r = make_env(b, &l->env, e);
    if (r < 0)
        return r;

    /* The socket's path is relative to the box's directory: a long absolute one would not fit. */
    char *argv[] = {b->ctx->agent_path,
                    (char *)"--unix",
                    (char *)"run/agent.sock",
                    (char *)"--token-file",
                    l->token,
                    (char *)"--workdir",
                    l->workdir,
                    NULL};

    memcpy(l->argv, argv, sizeof(argv));
    return 0;
}

/* Between fork and exec: async-signal-safe calls only. group_fd: of the box's control group; -1:
 * it has none. */
__attribute__((noreturn)) static void become_agent(const struct agent_launch *l, const char *dir,
                                                   int log_fd, int group_fd)
{
    struct sigaction dfl = {.sa_handler = SIG_DFL};
    sigset_t none;
    int null_fd = open("/dev/null", O_RDONLY);

    for (int sig = 1; sig < 65; sig++)
        (void)sigaction(sig, &dfl, NULL);
    (void)sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    (void)umask(022); /* not the monitor's umask */
    (void)setsid();
    if (group_fd >= 0)
        (void)!write(group_fd, "0", 1); /* moves the caller */
    if (null_fd < 0 || dup2(null_fd, 0) < 0 || dup2(log_fd, 1) < 0 || dup2(log_fd, 2) < 0 ||
        syscall(SYS_close_range, 3, ~0U, 0) < 0 || chdir(dir) < 0)
        _exit(126);
    (void)execve(l->argv[0], l->argv, l->env);
    _exit(127);
}

static int launch_agent(struct provider_box *b, const struct agent_launch *l,
                        struct provider_run *ret, struct err *e)
{
    _cleanup_free_ char *sock = box_file(b, "run/agent.sock");
    _cleanup_close_ int log = open(l->log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    _cleanup_close_ int group = -1;
    char name[FREEZER_NAME_BYTES];
    struct provider_run run = {0};

    if (log < 0)
        return err_sys(e, errno, "open '%s'", l->log);
    if (sock)
        (void)unlink(sock);
    freezer_name(b->ctx->state_dir, b->id, name);
    (void)freezer_make(name, &group, NULL); /* without it, the box cannot be paused */
    run.pid = fork();
    if (run.pid < 0)
        return err_sys(e, errno, "fork");
    if (run.pid == 0)
        become_agent(l, b->dir, log, group);
    run.pid_start = procfs_start_time(run.pid);
    run.listener = run.pid;
    run.listener_start = run.pid_start;
    *ret = run;
    return save_run(b, &run, e);
}

static int process_start(struct provider_box *b, struct provider_run *ret, struct err *e)
{
    struct agent_launch l = {0};
    int r = process_find(b, ret, e);

    if (r != 0)
        return r < 0 ? r : 0;
    r = fill_launch(b, &l, e);
    if (r == 0)
        r = io_mkdir_p(l.workdir, 0755, e);
    if (r == 0)
        r = launch_agent(b, &l, ret, e);
    launch_done(&l);
    return r;
}

/* ---- pause ---- */

static int process_check_pause(struct provider_box *b, enum provider_pause level, struct err *e)
{
    char name[FREEZER_NAME_BYTES];
    struct provider_run run = {0};

    (void)level;
    freezer_name(b->ctx->state_dir, b->id, name);
    if (process_find(b, &run, e) != 1)
        return err_set(e, ERR_PRECONDITION, "the box is not running");
    return freezer_check(name, run.pid, e);
}

static int process_pause(struct provider_box *b, enum provider_pause level, struct err *e)
{
    char name[FREEZER_NAME_BYTES];

    (void)level;
    freezer_name(b->ctx->state_dir, b->id, name);
    return freezer_freeze(name, FREEZE_MS, e);
}

static int process_resume(struct provider_box *b, struct err *e)
{
    char name[FREEZER_NAME_BYTES];

    freezer_name(b->ctx->state_dir, b->id, name);
    return freezer_thaw(name, THAW_MS, e);
}

/* ---- end ---- */

static int process_stop(struct provider_box *b, int grace_ms, struct err *e)
{
    _cleanup_free_ char *run_path = box_file(b, "run.json");
    _cleanup_free_ char *sock = box_file(b, "run/agent.sock");
    char mark[MARK_BYTES], name[FREEZER_NAME_BYTES];
    struct provider_run run = {0};
    struct procfs_group group = {.mark = mark};
    int r;

    if (!run_path || !sock)
        return err_oom(e);
    set_mark(b, mark);
    if (process_find(b, &run, e) == 1) {
        group.root = run.pid;
        group.root_start = run.pid_start;
    }
    freezer_name(b->ctx->state_dir, b->id, name);
    (void)freezer_thaw(name, THAW_MS, NULL); /* frozen processes do not die */
    r = procfs_end(&group, grace_ms, e);
    if (r < 0)
        return r;
    freezer_remove(name);
    (void)unlink(run_path);
    (void)unlink(sock);
    return 0;
}

static int process_destroy(struct provider_box *b, struct err *e)
{
    return process_stop(b, 0, e); /* the disk is the box's directory, and the caller removes it */
}

static int process_inspect(struct provider_box *b, json_t **ret, struct err *e)
{
    struct provider_run run = {0};
    int alive = process_find(b, &run, e);
    json_t *obj;

    if (alive < 0)
        return alive;
    obj = json_pack("{s:{s:b, s:b, s:b, s:b, s:b, s:b}, s:{}, s:{s:s}, s:[s], s:I}", "isolation",
                    "user_namespace", 0, "pid_namespace", 0, "mount_namespace", 0, "seccomp", 0,
                    "capabilities_dropped", 0, "no_new_privileges", 0, "limits", "network", "mode",
                    "host", "missing", "isolation", "pid", (json_int_t)run.pid);
    if (!obj)
        return err_oom(e);
    *ret = obj;
    return 0;
}

/* Ends agents of boxes that are gone: found by the run.json of directories under boxes/. */
static int process_sweep(struct bh_ctx *ctx,
                         bool (*is_kept)(void *arg, const char *id, bool has_disk), void *arg,
                         void (*report)(void *arg, const char *line), void *report_arg,
                         struct err *e)
{
    _cleanup_free_ char *boxes = path_join(ctx->state_dir, "boxes");
    _cleanup_closedir_ DIR *dir = boxes ? opendir(boxes) : NULL;
    const struct dirent *d;

    while (dir && (d = readdir(dir))) {
        _cleanup_free_ char *path = ctx_is_box_id(d->d_name) ? path_join(boxes, d->d_name) : NULL;
        struct provider_box b = {.ctx = ctx, .id = d->d_name, .name = d->d_name, .dir = path};
        struct provider_run run = {0};
        char line[256];

        if (!path || is_kept(arg, d->d_name, true) || process_find(&b, &run, e) != 1)
            continue;
        if (process_stop(&b, 0, e) < 0)
            continue;
        (void)snprintf(line, sizeof(line), "ended the processes of a box that is gone: %.32s",
                       d->d_name);
        report(report_arg, line);
    }
    return 0;
}

/* The third field of /proc/PID/stat, of every kernel that we may run on. */
static const struct provider_state process_states[] = {
    {"R", BH_STATE_RUNNING}, /* running */
    {"S", BH_STATE_RUNNING}, /* sleeping */
    {"D", BH_STATE_RUNNING}, /* waiting for a disk */
    {"I", BH_STATE_RUNNING}, /* idle */
    {"W", BH_STATE_RUNNING}, /* waking, paging */
    {"K", BH_STATE_RUNNING}, /* wakekill */
    {"P", BH_STATE_RUNNING}, /* parked */
    {"t", BH_STATE_RUNNING}, /* stopped by a debugger */
    {"T", BH_STATE_PAUSED},  /* stopped by a signal */
    {"Z", BH_STATE_STOPPED}, /* a zombie */
    {"X", BH_STATE_STOPPED}, /* dead */
    {"x", BH_STATE_STOPPED}, {0},
};

const struct provider provider_process = {
    .name = "process",
    .states = process_states,
    .summary = "a process of this machine, with no isolation at all",
    .shares_machine = true,
    .has_own_children = true,
    .networks = PROVIDER_NETWORK_HOST,
    .pauses = PROVIDER_PAUSE_FREEZE,
    .exit = PROVIDER_EXIT_CHILD,
    .layers = PROVIDER_LAYERS_SHARED,
    .probe = process_probe,
    .check = process_check,
    .prepare = process_prepare,
    .start = process_start,
    .stop = process_stop,
    .destroy = process_destroy,
    .find = process_find,
    .check_pause = process_check_pause,
    .pause = process_pause,
    .resume = process_resume,
    .inspect = process_inspect,
    .sweep = process_sweep,
};
