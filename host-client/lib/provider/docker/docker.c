/*
 * docker: a box is a container of an engine that speaks the Engine API: Docker or Podman. The engine keeps the disk,
 * the isolation is the engine's, and the guest agent is reached over the network or through the engine.
 */
#include "lib/provider/docker/docker.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/io.h"
#include "common/jsonx.h"
#include "common/path.h"
#include "common/str.h"
#include "lib/provider/store_mark.h"
#include "lib/util/socket.h"

#define TOKEN_BYTES 4096
#define SIGNAL_STATUS 128
#define SIGKILL_NUMBER 9
#define SIGNALS 65
#define START_TRIES 3
#define START_PAUSE_MS 100

/* ---- probe and check ---- */

static int docker_probe(struct bh_ctx *ctx, const char *runtime, struct provider_facts *ret,
                        struct err *e)
{
    _cleanup_engine_ struct engine *d = NULL;
    _cleanup_free_ char *url = NULL;
    struct docker_facts facts = {0};
    struct err why = {0};
    int r = engine_choose(ctx, &url, &why);

    *ret = (struct provider_facts){0};
    if (r == 0)
        r = engine_open(ctx, url, clock_mono_ms() + PROVIDER_MS, &d, &why);
    if (r == 0)
        r = docker_read_facts(d, &facts, &why);
    if (r == -ERR_CANCELED) {
        if (e)
            *e = why;
        return r;
    }
    ret->usable = r == 0 && (!*runtime || docker_has_runtime(&facts, runtime));
    if (r == 0)
        (void)snprintf(ret->found, sizeof(ret->found), "%s %.40s at %.160s%s",
                       facts.is_podman ? "Podman" : "Docker", facts.version, url,
                       facts.is_rootless ? ", rootless" : "");
    if (r < 0)
        (void)snprintf(ret->why, sizeof(ret->why), "%.250s", why.message);
    else if (!ret->usable)
        (void)snprintf(ret->why, sizeof(ret->why), "the engine has no runtime '%.64s'", runtime);
    else
        (void)snprintf(ret->runtime, sizeof(ret->runtime), "%.31s", facts.default_runtime);
    docker_facts_done(&facts);
    return 0;
}

/* "auto" is gVisor where the engine has it. */
static int choose_runtime(const struct docker_facts *f, struct spec *spec, struct err *e)
{
    const char *name = !*spec->runtime                  ? f->default_runtime
                       : !str_eq(spec->runtime, "auto") ? spec->runtime
                       : docker_has_runtime(f, "runsc") ? "runsc"
                                                        : f->default_runtime;
    char *copy;

    if (*spec->runtime && !str_eq(name, f->default_runtime) && !docker_has_runtime(f, name))
        return f->is_podman
                   ? err_field(e, ERR_PRECONDITION, "runtime",
                               "runtime: Podman runs every container by the runtime of its own "
                               "configuration, '%.64s', whatever a request says",
                               f->default_runtime)
                   : err_field(e, ERR_PRECONDITION, "runtime",
                               "runtime: the engine has no runtime '%.64s'; --runtime auto takes "
                               "what it has",
                               name);
    copy = strdup(name);
    if (!copy)
        return err_oom(e);
    free(spec->runtime);
    spec->runtime = copy;
    return 0;
}

static int check_limits(const struct docker_facts *f, const struct spec *spec, struct err *e)
{
    const struct {
        const char *field;
        bool is_asked, is_there;
    } limits[] = {
        {"memory", spec->memory_bytes > 0, f->limits_memory},
        {"cpus", spec->cpu_millis > 0, f->limits_cpu},
        {"pids", spec->asked & SPEC_ASKED_PIDS, f->limits_pids},
    };

    for (size_t i = 0; i < N_ELEMENTS(limits); i++)
        if (limits[i].is_asked && !limits[i].is_there)
            return err_field(e, ERR_PRECONDITION, limits[i].field,
                             "%s: the engine says that its machine cannot limit it",
                             limits[i].field);
    return 0;
}

/* Without explicit limits, a box leaves the machine usable: as the provider oci does it. */
static void set_docker_defaults(const struct docker_facts *f, struct spec *spec)
{
    if (!spec->memory_bytes && f->limits_memory)
        spec->memory_bytes = f->memory_bytes / 5 * 4;
    if (!spec->cpu_millis && f->limits_cpu && f->n_cpus)
        spec->cpu_millis = f->n_cpus < 5 ? f->n_cpus * 800 : (f->n_cpus - 1) * 1000;
    if (!f->limits_pids)
        spec->pids = 0;
}

/* The root of a read-only box cannot be written, so its project is memory, which hides the image's directory. */
static int check_dest(const struct spec *spec, struct err *e)
{
    static const char *const needed[] = {"/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc"};
    static const char *const mounted[] = {"/proc", "/sys", "/dev", DOCKER_RUN_DIR, "/run/secrets"};

    for (size_t i = 0; i < N_ELEMENTS(mounted); i++) {
        size_t n = strlen(mounted[i]);

        if (strncmp(spec->dest, mounted[i], n) == 0 && strchr("/", spec->dest[n]))
            return err_field(e, ERR_INVALID, "dest",
                             "dest: '%.200s' is on no disk: the engine mounts '%s'", spec->dest,
                             mounted[i]);
    }
    for (size_t i = 0; spec->read_only && i < N_ELEMENTS(needed); i++)
        if (str_eq(spec->dest, needed[i]))
            return err_field(e, ERR_INVALID, "dest",
                             "dest: with read-only, '%s' would be memory in place of the image's",
                             needed[i]);
    return 0;
}

static int docker_check(struct bh_ctx *ctx, struct spec *spec, struct err *e)
{
    _cleanup_engine_ struct engine *d = NULL;
    char *url = NULL;
    struct docker_facts facts = {0};
    int r = check_dest(spec, e);

    if (r == 0 && !*spec->engine)
        r = engine_choose(ctx, &url, e);
    if (r < 0)
        return r;
    if (url) {
        free(spec->engine);
        spec->engine = url;
    }
    r = engine_open(ctx, spec->engine, clock_mono_ms() + PROVIDER_MS, &d, e);
    if (r == 0)
        r = docker_read_facts(d, &facts, e);
    if (r == 0)
        r = choose_runtime(&facts, spec, e);
    if (r == 0)
        r = check_limits(&facts, spec, e);
    if (r == 0) {
        set_docker_defaults(&facts, spec);
        docker_keep_facts(&facts, spec);
    }
    docker_facts_done(&facts);
    return r;
}

/* ---- prepare ---- */

static int make_container(struct provider_box *b, struct engine *d, struct err *e)
{
    const json_t *disk = b->source ? b->source->disk : NULL;
    const char *commit = json_string_value(json_object_get(disk, "image"));
    _cleanup_free_ char *image = NULL;
    char name[DOCKER_NAME_BYTES], id[DOCKER_ID_BYTES];
    int r = commit ? docker_check_image(d, commit, e) : docker_settle_image(b, d, &image, e);

    docker_container_name(b, name);
    if (r == 0)
        r = docker_create_container(b, d, name, commit ? commit : image, NULL, id, e);
    return r < 0 ? r : docker_record_container(b, id, e);
}

/* A container that never ran may be half-made: its maker may have died. */
static int docker_prepare(struct provider_box *b, struct err *e)
{
    _cleanup_engine_ struct engine *d = NULL;
    struct docker_container c = {0};
    int r = docker_open(b, &d, e);

    if (r == 0)
        r = docker_find_container(b, d, &c, e);
    if (r == 0 || (r == 1 && provider_state(&provider_docker, c.status) == BH_STATE_PROVISIONING))
        r = make_container(b, d, e);
    docker_container_done(&c);
    return r < 0 ? r : 0;
}

/* ---- find ---- */

/* 1, 0: it is in no run of ours, or an error. */
static int run_of_container(const struct provider_box *b, struct engine *d,
                            const struct docker_container *c, struct provider_run *ret,
                            struct err *e)
{
    int r = docker_is_own_run(b, c, e);

    *ret = (struct provider_run){0};
    if (r == 1)
        ret->is_paused = c->is_paused;
    if (r == 1 && engine_is_local(d)) {
        struct docker_process p = docker_own_process(c);

        ret->pid = p.pid;
        ret->pid_start = p.start;
    }
    return r;
}

static int docker_find(struct provider_box *b, struct provider_run *ret, struct err *e)
{
    _cleanup_engine_ struct engine *d = NULL;
    struct docker_container c = {0};
    int r;

    *ret = (struct provider_run){0};
    if (!*b->spec->engine) /* it was never prepared */
        return 0;
    r = docker_open_container(b, &d, &c, e);
    if (r == 1)
        r = run_of_container(b, d, &c, ret, e);
    docker_container_done(&c);
    return r;
}

/* ---- start ---- */

static int send_token(const struct provider_box *b, int fd, struct err *e)
{
    _cleanup_free_ char *path = path_join(b->dir, "token");
    _cleanup_free_ char *token = NULL;
    size_t len = 0;
    int r = path ? io_read_file(AT_FDCWD, path, TOKEN_BYTES, &token, &len, e) : err_oom(e);

    if (r < 0)
        return r;
    if (send(fd, token, len, MSG_NOSIGNAL) != (ssize_t)len || send(fd, "\n", 1, MSG_NOSIGNAL) != 1)
        r = err_set(e, ERR_UNAVAILABLE, "the container takes no token: %m");
    explicit_bzero(token, len);
    (void)shutdown(fd, SHUT_WR);
    return r;
}

/* Frozen processes do not see the signal; not every engine thaws them. */
static int stop_container(struct engine *d, const struct docker_container *c, int grace_ms,
                          struct err *e)
{
    if (c->is_paused)
        (void)engine_post(d, NULL, NULL, "/containers/%.72s/unpause", c->id);
    return engine_post(d, NULL, e, "/containers/%.72s/stop?t=%d", c->id, (grace_ms + 999) / 1000);
}

/*
 * Standard input is attached before the start: the agent reads its token there, and nothing else has it. A run that is
 * there already has no token: somebody else began it, or Podman prepared it for an attach that broke off, whose
 * container is "created" and has a process. Its standard input is closed.
 */
static int attach_and_start(struct provider_box *b, struct engine *d,
                            const struct docker_container *c, struct err *e)
{
    _cleanup_close_ int fd = -1;
    char path[160];
    int r = c->is_running || c->pid > 0 ? stop_container(d, c, 0, e) : 0;

    (void)snprintf(path, sizeof(path), "/containers/%.72s/attach?stream=1&stdin=1", c->id);
    if (r == 0)
        r = engine_hijack(d, path, NULL, &fd, e);
    if (r == 0)
        r = engine_post(d, NULL, e, "/containers/%.72s/start", c->id);
    return r < 0 ? r : send_token(b, fd, e);
}

static int start_once(struct provider_box *b, struct engine *d, bool is_last, struct err *e)
{
    struct docker_container c = {0}, now = {0};
    int r = docker_find_container(b, d, &c, e);

    if (r == 0)
        r = err_set(e, ERR_NOT_FOUND, "the engine has no container of the box any more");
    if (r == 1)
        r = attach_and_start(b, d, &c, e);
    if (r == 0)
        r = docker_find_container(b, d, &now, e);
    if (r == 1 && now.is_running)
        r = docker_record_reach(b, d, &now, e);
    else if (r >= 0)
        r = err_set(e, ERR_UNAVAILABLE, "the container ended at once");
    if (r == 0 && !is_last)
        r = docker_await_agent(b, d, e);
    docker_container_done(&c);
    docker_container_done(&now);
    return r;
}

/*
 * Engines fail to start a container now and then for reasons that are gone a moment later: dockerd 20.10 on a root that
 * was not mounted yet ("no such file"), Podman 4.3 in a network namespace that was not ("setns"), or with a runtime that
 * ended early, which it calls a conflict ("can't get final child's PID"). Both lose the token if an attach before this
 * one broke off. Further tries tell these from the others; the caller waits for the agent after the last one.
 */
static int start_container(struct provider_box *b, struct engine *d, struct err *e)
{
    struct err why = {0};
    int r = 0;

    for (int i = 1; i <= START_TRIES; i++) {
        r = start_once(b, d, i == START_TRIES, &why);
        if ((r != -ERR_INVALID && r != -ERR_UNAVAILABLE && r != -ERR_EXISTS) ||
            (i < START_TRIES && socket_wait_canceled(b->ctx->cancel_fd, START_PAUSE_MS)))
            break;
    }
    if (r < 0 && e)
        *e = why;
    return r;
}

/* For the error of a start, and for the record of the box. */
static void save_logs(const struct provider_box *b, struct engine *d, const char *id)
{
    _cleanup_free_ char *path = path_join(b->dir, "agent.log");
    _cleanup_free_ char *text = NULL;
    size_t len = 0;

    if (path && engine_logs(d, id, &text, &len, NULL) == 0)
        (void)io_write_file(AT_FDCWD, path, text, len, 0600, false, NULL);
}

static int docker_start(struct provider_box *b, struct provider_run *ret, struct err *e)
{
    _cleanup_engine_ struct engine *d = NULL;
    struct docker_container c = {0}, now = {0};
    int r = docker_open_container(b, &d, &c, e);

    if (r == 0)
        r = err_set(e, ERR_NOT_FOUND, "the engine has no container of the box any more");
    else if (r == 1)
        r = docker_is_own_run(b, &c, e);
    if (r == 0)
        r = start_container(b, d, e);
    if (r < 0 && c.doc)
        save_logs(b, d, c.id);
    if (r >= 0)
        r = docker_find_container(b, d, &now, e);
    if (r == 1)
        r = run_of_container(b, d, &now, ret, e);
    docker_container_done(&c);
    docker_container_done(&now);
    return r == 0 ? err_set(e, ERR_UNAVAILABLE, "the container ended at once") : r < 0 ? r : 0;
}

/* ---- pause ---- */

/* The container, which runs; else an error. */
static int find_running(struct provider_box *b, struct engine **ret_engine,
                        struct docker_container *ret, struct err *e)
{
    int r = docker_open_container(b, ret_engine, ret, e);

    if (r == 1)
        r = docker_is_own_run(b, ret, e);
    if (r == 1)
        return 0;
    docker_container_done(ret);
    return r < 0 ? r : err_set(e, ERR_PRECONDITION, "the box is not running");
}

static int docker_check_pause(struct provider_box *b, enum provider_pause level, struct err *e)
{
    _cleanup_engine_ struct engine *d = NULL;
    struct docker_container c = {0};
    int r = find_running(b, &d, &c, e);

    (void)level;
    if (r == 0)
        r = docker_check_freezer(d, &c, "level", e);
    docker_container_done(&c);
    return r;
}

/* An error counts only if the container is not as it should be. */
static int set_paused(struct provider_box *b, bool paused, struct err *e)
{
    _cleanup_engine_ struct engine *d = NULL;
    struct docker_container c = {0}, now = {0};
    int r = find_running(b, &d, &c, e);

    if (r == 0 && c.is_paused != paused) {
        r = engine_post(d, NULL, e, "/containers/%.72s/%s", c.id, paused ? "pause" : "unpause");
        if (r < 0 && docker_find_container(b, d, &now, NULL) == 1 && now.is_running &&
            now.is_paused == paused)
            r = 0;
    }
    docker_container_done(&c);
    docker_container_done(&now);
    return r;
}

static int docker_pause(struct provider_box *b, enum provider_pause level, struct err *e)
{
    (void)level;
    return set_paused(b, true, e);
}

static int docker_resume(struct provider_box *b, struct err *e)
{
    return set_paused(b, false, e);
}

/* ---- stop and destroy ---- */

/* "No such container" is an end only if the engine has none by its name either. */
static int check_ended(struct provider_box *b, struct engine *d, bool is_removed, struct err *e)
{
    struct docker_container c = {0};
    int r = docker_find_container(b, d, &c, e);

    if (r == 1 && (is_removed || c.is_running))
        r = err_set(e, ERR_UNAVAILABLE, "the engine says that the container has ended, and has it");
    docker_container_done(&c);
    return r < 0 ? r : 0;
}

static int docker_stop(struct provider_box *b, int grace_ms, struct err *e)
{
    _cleanup_engine_ struct engine *d = NULL;
    struct docker_container c = {0};
    int r;

    if (!*b->spec->engine)
        return 0;
    r = docker_open_container(b, &d, &c, e);
    if (r == 1) {
        /* Without a token the agent waits for one, and does not see the signal. */
        if (docker_is_own_run(b, &c, NULL) == 0)
            grace_ms = 0;
        r = c.is_running ? stop_container(d, &c, grace_ms, e) : 0;
        if (c.is_running && (r == 0 || r == -ERR_NOT_FOUND))
            r = check_ended(b, d, false, e);
        save_logs(b, d, c.id);
    }
    docker_container_done(&c);
    return r;
}

static int docker_destroy(struct provider_box *b, struct err *e)
{
    _cleanup_engine_ struct engine *d = NULL;
    struct docker_container c = {0};
    int r;

    if (!*b->spec->engine)
        return 0;
    r = docker_open_container(b, &d, &c, e);
    if (r == 1)
        r = docker_remove_container(d, c.id, e);
    if (r == 0 && c.doc)
        r = check_ended(b, d, true, e);
    if (r == 0)
        r = docker_drop_restored(b, d, e);
    docker_container_done(&c);
    if (r == 0)
        docker_retry_forget(b->ctx, b->spec->engine);
    return r;
}

static int docker_has_disk(struct provider_box *b, struct err *e)
{
    _cleanup_engine_ struct engine *d = NULL;
    struct docker_container c = {0};
    int r = docker_open_container(b, &d, &c, e);

    if (r == 1 && docker_is_being_removed(&c))
        r = 0;
    docker_container_done(&c);
    return r;
}

/* ---- the end of a run ---- */

/* One that died before the engine told of it is noticed by a second look: the descriptor is readable at once. */
static int docker_watch(struct provider_box *b, int *ret_fd, struct err *e)
{
    _cleanup_engine_ struct engine *d = NULL;
    struct docker_container c = {0}, now = {0};
    int r = find_running(b, &d, &c, e), still;

    if (r == 0)
        r = engine_watch(d, c.id, ret_fd, e);
    if (r == 0) {
        still = docker_find_container(b, d, &now, NULL);
        if (still == 0 || (still == 1 && docker_is_own_run(b, &now, NULL) == 0))
            (void)shutdown(*ret_fd, SHUT_RDWR);
    }
    docker_container_done(&c);
    docker_container_done(&now);
    return r;
}

/* The engine has a shell's number for a signal. It tells of any process of the box that had no memory, and not which. */
static int docker_exit_status(struct provider_box *b, const struct provider_run *run,
                              int *ret_status, bool *ret_is_oom, struct err *e)
{
    _cleanup_engine_ struct engine *d = NULL;
    struct docker_container c = {0};
    int r = docker_open_container(b, &d, &c, e);

    (void)run;
    if (r == 1 && (c.is_running || docker_is_being_removed(&c)))
        r = 0;
    if (r == 1)
        save_logs(b, d, c.id);
    if (r == 1) {
        *ret_is_oom = c.is_oom && c.exit_code == SIGNAL_STATUS + SIGKILL_NUMBER;
        *ret_status = c.exit_code > SIGNAL_STATUS && c.exit_code < SIGNAL_STATUS + SIGNALS
                          ? c.exit_code - SIGNAL_STATUS
                          : (c.exit_code & 0xff) << 8;
    }
    docker_container_done(&c);
    return r == 0 ? err_set(e, ERR_NOT_FOUND, "the container has no exit status") : r < 0 ? r : 0;
}

/* A run that we did not start has no token, and its agent answers nobody. */
static void docker_end_reason(struct provider_box *b, char *out, size_t size)
{
    _cleanup_engine_ struct engine *d = NULL;
    struct docker_container c = {0};

    *out = '\0';
    if (docker_open_container(b, &d, &c, NULL) != 1)
        return;
    if (c.is_running && docker_is_own_run(b, &c, NULL) == 0)
        (void)snprintf(out, size, "somebody else started its container again");
    else if (!c.is_running && c.exit_code == 0) /* the agent ends so when it is told to */
        (void)snprintf(out, size, "its container was told to stop, as by 'docker stop'");
    docker_container_done(&c);
}

/* "State.Status" of a container (Docker Engine API; Podman's words are those and two more). */
static const struct provider_state docker_states[] = {
    {"created", BH_STATE_PROVISIONING},
    {"configured", BH_STATE_PROVISIONING},
    {"initialized", BH_STATE_PROVISIONING},
    {"running", BH_STATE_RUNNING},
    {"paused", BH_STATE_PAUSED},
    {"restarting", BH_STATE_PROVISIONING},
    {"stopping", BH_STATE_STOPPING},
    {"exited", BH_STATE_STOPPED},
    {"stopped", BH_STATE_STOPPED},
    {"removing", BH_STATE_DESTROYING},
    {"dead", BH_STATE_ERROR},
    {0},
};

const struct provider provider_docker = {
    .name = "docker",
    .states = docker_states,
    .summary = "a container of Docker or Podman, by the Engine API; the isolation is the engine's",
    .isolates = true,
    .has_runtimes = true,
    .has_read_only = true,
    .has_privileges = true,
    .has_snapshots = true,
    .networks = PROVIDER_NETWORK_USER | PROVIDER_NETWORK_NONE | PROVIDER_NETWORK_HOST,
    .limits = PROVIDER_LIMIT_CPUS | PROVIDER_LIMIT_MEMORY | PROVIDER_LIMIT_PIDS,
    .pauses = PROVIDER_PAUSE_FREEZE,
    .exit = PROVIDER_EXIT_ASKED,
    .image = PROVIDER_IMAGE_OCI,
    .layers = PROVIDER_LAYERS_NONE,
    .probe = docker_probe,
    .check = docker_check,
    .prepare = docker_prepare,
    .start = docker_start,
    .stop = docker_stop,
    .destroy = docker_destroy,
    .has_disk = docker_has_disk,
    .find = docker_find,
    .check_pause = docker_check_pause,
    .pause = docker_pause,
    .resume = docker_resume,
    .check_capture = docker_check_capture,
    .capture = docker_capture,
    .restore = docker_restore,
    .has_restored = docker_has_restored,
    .drop_capture = docker_drop_capture,
    .forget = docker_forget,
    .verify = docker_verify,
    .dial = docker_dial,
    .watch = docker_watch,
    .exit_status = docker_exit_status,
    .end_reason = docker_end_reason,
    .inspect = docker_inspect,
    .sweep = docker_sweep,
    .forget_rest = docker_forget_rest,
};
