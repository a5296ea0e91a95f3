#include "lib/provider/oci/oci.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/io.h"
#include "common/str.h"
#include "lib/util/beneath.h"
#include "lib/provider/oci/host_image.h"
#include "lib/provider/freezer.h"
#include "lib/provider/oci/cgroup.h"
#include "lib/provider/oci/mounts.h"
#include "lib/provider/oci/inspect.h"
#include "lib/provider/oci/launch.h"
#include "lib/provider/oci/network.h"
#include "lib/provider/oci/rootfs.h"
#include "lib/provider/oci/record.h"
#include "lib/provider/oci/runtime.h"
#include "lib/provider/oci/layers.h"

#define CGROUP_TIMEOUT_MS 10000
#define KILL_WAIT_MS 5000
#define FREEZE_MS 10000
#define THAW_MS 5000

/* ---- shared by the modules ---- */

bool oci_is_host_image(const struct spec *spec)
{
    return str_eq(spec->image, SPEC_IMAGE_HOST);
}

bool oci_is_strict(const struct spec *spec)
{
    return str_eq(spec->privilege, "strict");
}

const char *oci_agent_place(const struct spec *spec)
{
    return oci_is_host_image(spec) ? "/run/bellhopd" : "/usr/local/bin/bellhopd";
}

int oci_lower_path(const struct provider_box *b, char **ret, struct err *e)
{
    if (!oci_is_host_image(b->spec))
        return oci_squash_choose(b->spec->image_dir, b->ctx->cancel_fd, ret, e);
    *ret = oci_path(b, "oci/hostroot");
    return *ret ? 0 : err_oom(e);
}

const char *oci_lower_kind(const struct spec *spec, const char *lower)
{
    return oci_is_host_image(spec)              ? "host"
           : str_has_suffix(lower, ".squashfs") ? "squashfs"
                                                : "directory";
}

bool oci_may_miss(const struct spec *spec, const char *piece)
{
    for (char **p = spec->allow_missing; p && *p; p++)
        if (str_eq(*p, piece))
            return true;
    return false;
}

int oci_missing(const struct spec *spec, const char *piece, const char *why, struct err *e)
{
    if (oci_may_miss(spec, piece))
        return 0;
    return err_field(e, ERR_PRECONDITION, piece,
                     "%s is not enforced here (%s); --allow-missing %s does without", piece, why,
                     piece);
}

/* ---- probe and check ---- */

static int require_root(struct err *e)
{
    if (geteuid() == 0)
        return 0;
    return err_set(e, ERR_DENIED,
                   "the oci provider needs root (try sudo), or --provider docker or process");
}

static int oci_probe(struct bh_ctx *ctx, const char *runtime, struct provider_facts *ret,
                     struct err *e)
{
    struct oci_runtime rt;
    struct err why = {0};
    int r;

    *ret = (struct provider_facts){0};
    r = require_root(&why);
    if (r == 0)
        r = oci_runtime_choose(ctx, runtime, &rt, &why);
    if (r == -ERR_CANCELED) {
        if (e)
            *e = why;
        return r;
    }
    ret->usable = r == 0;
    if (r == 0)
        (void)snprintf(ret->runtime, sizeof(ret->runtime), "%s", rt.name);
    else
        (void)snprintf(ret->why, sizeof(ret->why), "%s", why.message);
    return 0;
}

/* Without explicit limits, a box leaves the machine usable. */
static void set_default_limits(const struct bh_ctx *ctx, struct spec *spec)
{
    struct statvfs fs;
    struct oci_limits limits;

    oci_cgroup_defaults(&limits);
    if (str_eq(spec->runtime,
               "runsc")) /* it enforces none of them, and would need --allow-missing */
        limits = (struct oci_limits){0};
    if (!spec->memory_bytes)
        spec->memory_bytes = limits.memory_bytes;
    if (!spec->cpu_millis)
        spec->cpu_millis = limits.cpu_millis;
    if (!spec->disk_bytes && statvfs(ctx->state_dir, &fs) == 0)
        spec->disk_bytes = (uint64_t)fs.f_bavail * fs.f_frsize / 5 * 4;
}

static int oci_check(struct bh_ctx *ctx, struct spec *spec, struct err *e)
{
    struct oci_runtime rt;
    char *name;
    int r;

    r = require_root(e);
    if (r == 0 && oci_is_host_image(spec))
        r = host_image_check(ctx->state_dir, e);
    if (r == 0)
        r = oci_rootfs_check_dest(spec->dest, e);
    if (r == 0)
        r = oci_network_check(spec, e);
    if (r == 0)
        r = oci_runtime_require(ctx, spec->runtime, &rt, e);
    if (r < 0)
        return r;
    name = strdup(rt.name);
    if (!name)
        return err_oom(e);
    free(spec->runtime);
    spec->runtime = name;
    set_default_limits(ctx, spec);
    return 0;
}

/* ---- prepare ---- */

/* Claims a range of ids if the kernel can map the image's mount to it. */
static int choose_base(const struct provider_box *b, const char *lower, uint32_t *ret,
                       struct err *e)
{
    struct err why = {0};
    uint32_t base;
    int r;

    r = oci_range_claim(b, &base, e);
    if (r < 0)
        return r;
    r = oci_idmap_try(lower, base, &why);
    if (r == 0) {
        *ret = base;
        return 0;
    }
    oci_range_release(b, base);
    *ret = 0;
    return oci_missing(b->spec, "user_namespace", why.message, e);
}

/* Reads the image through a private mount. */
static int make_upper(const struct provider_box *b, const char *lower, struct oci_disk *disk,
                      struct err *e)
{
    _cleanup_close_ int fd = -1;
    char seen[32];
    int r;

    if (strcmp(oci_lower_kind(b->spec, lower), "squashfs") != 0)
        return oci_rootfs_prepare(b, lower, disk, e);
    r = oci_squash_mount(lower, -1, &fd, e);
    if (r < 0)
        return r;
    (void)snprintf(seen, sizeof(seen), "/proc/self/fd/%d", fd);
    return oci_rootfs_prepare(b, seen, disk, e);
}

static int make_disk(const struct provider_box *b, struct oci_disk *disk, struct err *e)
{
    _cleanup_free_ char *lower = NULL;
    int r = oci_lower_path(b, &lower, e);

    if (r == 0 && oci_is_host_image(b->spec))
        r = host_image_make(lower, e);
    if (r == 0)
        r = choose_base(b, lower, &disk->base, e);
    if (r == 0)
        r = b->source ? oci_layers_prepare(b, disk, e) : make_upper(b, lower, disk, e);
    if (r == 0)
        r = oci_disk_save(b, disk, e);
    return r;
}

static int oci_prepare(struct provider_box *b, struct err *e)
{
    _cleanup_free_ char *dir = oci_path(b, "oci");
    struct oci_disk disk = {0};
    int r;

    if (!dir)
        return err_oom(e);
    r = require_root(e);
    if (r == 0)
        r = io_mkdir_p(dir, 0700, e);
    if (r < 0)
        return r;
    r = oci_disk_load(b, &disk, e);
    return r == -ERR_NOT_FOUND ? make_disk(b, &disk, e) : r;
}

/* ---- the record of the run ---- */

void oci_run_name(const struct provider_box *b, struct oci_run *run)
{
    (void)snprintf(run->container, sizeof(run->container), "bellhop-%s", b->id);
    freezer_name(b->ctx->state_dir, b->id, run->cgroup);
}

/* Takes the names from the id, also when it fails: a damaged record must not name the control
 * group of others, which a stop would kill. */
static int load_run(const struct provider_box *b, struct oci_run *ret, struct err *e)
{
    int r;

    *ret = (struct oci_run){0};
    r = oci_run_load(b, ret, e);
    oci_run_name(b, ret);
    return r;
}

/* Undoes everything that a run can have, by name, also after a process died halfway through
 * making it. */
static int undo_run(const struct provider_box *b, const struct oci_run *run, struct err *e)
{
    _cleanup_free_ char *state = oci_path(b, "oci/state");
    const struct oci_runtime *rt = &(struct oci_runtime){0};
    struct oci_runtime named;
    struct oci_container c = {.id = run->container, .state_dir = state, .network = run->network};
    struct err why = {0};
    int r;

    if (!state)
        return err_oom(e);
    if (run->runtime_path[0]) {
        (void)snprintf(named.name, sizeof(named.name), "%s", run->runtime);
        (void)snprintf(named.path, sizeof(named.path), "%s", run->runtime_path);
        rt = &named;
    }
    c.runtime = rt;
    oci_proc_signal(&run->init, SIGKILL);
    (void)freezer_thaw(run->cgroup, 0, NULL); /* v1: frozen processes do not die */
    (void)oci_proc_wait(&run->init, KILL_WAIT_MS);
    /* if its state was half written, the cgroup does it */
    if (rt->path[0])
        (void)oci_runtime_delete(&c, &why);
    r = oci_cgroup_remove(run->cgroup, CGROUP_TIMEOUT_MS, e);
    oci_network_end(run);
    if (r == 0)
        r = dirtree_remove(state, e);
    if (r == 0)
        r = oci_mounts_undo(b->dir, e);
    return r;
}

static void remove_run_files(const struct provider_box *b)
{
    static const char *const names[] = {"run/agent.sock", "run/hold.sock", "run/token",
                                        "oci/bundle/pid"};

    for (size_t i = 0; i < N_ELEMENTS(names); i++) {
        _cleanup_free_ char *path = oci_path(b, names[i]);

        if (path)
            (void)unlink(path);
    }
}

/* ---- pause ---- */

/* runsc: the box's processes are not the kernel's, and its control group is empty. */
static int command_runtime(const struct provider_box *b, const struct oci_run *run,
                           const char *command, struct err *e)
{
    _cleanup_free_ char *state = oci_path(b, "oci/state");
    struct oci_runtime rt = {{0}};
    const struct oci_container c = {.runtime = &rt,
                                    .id = run->container,
                                    .state_dir = state,
                                    .network = run->network,
                                    .cancel_fd = -1};

    if (!state)
        return err_oom(e);
    (void)snprintf(rt.name, sizeof(rt.name), "%s", run->runtime);
    (void)snprintf(rt.path, sizeof(rt.path), "%s", run->runtime_path);
    return oci_runtime_command(&c, command, e);
}

static int thaw_run(const struct provider_box *b, const struct oci_run *run, struct err *e)
{
    return str_eq(run->runtime, "runsc") ? command_runtime(b, run, "resume", e)
                                         : freezer_thaw(run->cgroup, THAW_MS, e);
}

static int load_live_run(const struct provider_box *b, struct oci_run *ret, struct err *e)
{
    int r = load_run(b, ret, e);

    if (r == -ERR_NOT_FOUND || (r == 0 && !oci_proc_is_alive(&ret->init)))
        return err_set(e, ERR_PRECONDITION, "the box is not running");
    return r;
}

static int oci_check_pause(struct provider_box *b, enum provider_pause level, struct err *e)
{
    struct oci_run run;
    int r = load_live_run(b, &run, e);

    (void)level;
    if (r < 0 || str_eq(run.runtime, "runsc"))
        return r;
    return freezer_check(run.cgroup, run.init.pid, e);
}

static int oci_pause(struct provider_box *b, enum provider_pause level, struct err *e)
{
    struct oci_run run;
    int r = load_live_run(b, &run, e);

    (void)level;
    if (r < 0)
        return r;
    return str_eq(run.runtime, "runsc") ? command_runtime(b, &run, "pause", e)
                                        : freezer_freeze(run.cgroup, FREEZE_MS, e);
}

static int oci_resume(struct provider_box *b, struct err *e)
{
    struct oci_run run;
    int r = load_live_run(b, &run, e);

    return r < 0 ? r : thaw_run(b, &run, e);
}

/* ---- stop and destroy ---- */

static int oci_stop(struct provider_box *b, int grace_ms, struct err *e)
{
    struct oci_run run = {0};
    int r;

    (void)load_run(b, &run, NULL); /* without a record, the names are enough */
    if (grace_ms > 0 && oci_proc_is_alive(&run.init)) {
        oci_proc_signal(&run.init, SIGTERM);
        (void)thaw_run(b, &run, NULL);
        (void)oci_proc_wait(&run.init, grace_ms);
    }
    r = undo_run(b, &run, e);
    if (r < 0)
        return r;
    remove_run_files(b);
    return oci_run_remove(b, e);
}

static int oci_destroy(struct provider_box *b, struct err *e)
{
    struct oci_disk disk = {0};
    int r;

    r = require_root(e);
    if (r == 0)
        r = oci_stop(b, 0, e);
    if (r < 0)
        return r;
    (void)oci_disk_load(b, &disk, NULL);
    r = dirtree_remove(b->dir, e);
    if (r == 0)
        oci_quota_clear(b->ctx->state_dir, disk.base);
    if (r == 0)
        oci_range_release(b, disk.base);
    return r;
}

/* ---- start ---- */

static struct provider_run run_of(const struct oci_run *run)
{
    return (struct provider_run){.pid = run->init.pid,
                                 .pid_start = run->init.start,
                                 .listener = run->listener.pid,
                                 .listener_start = run->listener.start};
}

static int oci_find(struct provider_box *b, struct provider_run *ret, struct err *e)
{
    struct oci_run run;
    int r;

    r = load_run(b, &run, e);
    if (r == -ERR_NOT_FOUND)
        return 0;
    if (r < 0)
        return r;
    /* If a start was killed between create and start, the runtime's first process waits there
     * for ever. */
    if (!run.is_started || !oci_proc_is_alive(&run.init))
        return 0;
    *ret = run_of(&run);
    return 1;
}

static int oci_start(struct provider_box *b, struct provider_run *ret, struct err *e)
{
    struct oci_run run = {0};
    int r;

    r = require_root(e);
    if (r < 0)
        return r;
    r = oci_find(b, ret, e);
    if (r)
        return r > 0 ? 0 : r;
    r = oci_stop(b, 0, e); /* leftovers of a start that died */
    if (r < 0)
        return r;
    r = oci_launch(b, &run, e);
    if (r < 0)
        (void)oci_stop(b, 0, NULL);
    else
        *ret = run_of(&run);
    return r;
}

static int oci_inspect_box(struct provider_box *b, json_t **ret, struct err *e)
{
    struct oci_run run;
    int r = load_live_run(b, &run, e);

    return r < 0 ? r : oci_inspect(b, &run, ret, e);
}

/* ---- gc ---- */

struct sweep {
    struct bh_ctx *ctx;
    bool (*is_kept)(void *arg, const char *id, bool has_disk);
    void *arg;
    void (*report)(void *arg, const char *line);
    void *report_arg;
};

static int sweep_cgroup(void *arg, const char *id, struct err *e)
{
    struct sweep *s = arg;
    char name[FREEZER_NAME_BYTES], line[128];
    int r;

    if (!ctx_is_box_id(id) || s->is_kept(s->arg, id, true))
        return 0;
    freezer_name(s->ctx->state_dir, id, name);
    r = oci_cgroup_remove(name, CGROUP_TIMEOUT_MS, e);
    (void)snprintf(line, sizeof(line), "removed the control group of '%s'", id);
    if (r == 0 && s->report)
        s->report(s->report_arg, line);
    return r;
}

/* The removal of a box died after its record was written. */
static int sweep_directory(struct sweep *s, const char *id, struct err *e)
{
    _cleanup_free_ char *dir = ctx_box_path(s->ctx, id, NULL);
    _cleanup_free_ char *ours = ctx_box_path(s->ctx, id, "oci");
    struct provider_box b = {.ctx = s->ctx, .id = id, .name = id, .dir = dir};
    char line[128];
    int r;

    if (!dir || !ours)
        return err_oom(e);
    if (s->is_kept(s->arg, id, true) || access(ours, F_OK) < 0)
        return 0;
    r = oci_destroy(&b, e);
    (void)snprintf(line, sizeof(line), "removed what was left of the box '%s', which is gone", id);
    if (r == 0 && s->report)
        s->report(s->report_arg, line);
    return r;
}

static int sweep_directories(struct sweep *s, struct err *e)
{
    _cleanup_free_ char *boxes = ctx_box_path(s->ctx, "", NULL);
    _cleanup_closedir_ DIR *d = boxes ? opendir(boxes) : NULL;
    int r = 0;

    for (struct dirent *de; r == 0 && d && (de = readdir(d));)
        if (ctx_is_box_id(de->d_name)) /* a copy that somebody made is not ours to remove */
            r = sweep_directory(s, de->d_name, e);
    return r;
}

static int oci_sweep(struct bh_ctx *ctx, bool (*is_kept)(void *arg, const char *id, bool has_disk),
                     void *arg, void (*report)(void *arg, const char *line), void *report_arg,
                     struct err *e)
{
    struct sweep s = {ctx, is_kept, arg, report, report_arg};
    int r;

    if (geteuid() != 0)
        return 0;
    r = sweep_directories(&s, e);
    if (r < 0)
        return r;
    return oci_cgroup_each(ctx->state_dir, sweep_cgroup, &s, e);
}

/* "status" of the runtime's state command: the OCI runtime specification's words, and those that
 * runc, crun and runsc add. */
static const struct provider_state oci_states[] = {
    {"creating", BH_STATE_PROVISIONING}, {"created", BH_STATE_PROVISIONING},
    {"running", BH_STATE_RUNNING},       {"pausing", BH_STATE_PAUSING},
    {"paused", BH_STATE_PAUSED},         {"restoring", BH_STATE_RESUMING},
    {"stopped", BH_STATE_STOPPED},       {0},
};

static const char *const oci_runtimes[] = {"runc", "crun", "runsc", NULL};

const struct provider provider_oci = {
    .name = "oci",
    .states = oci_states,
    .summary = "an OCI runtime (runc, crun, runsc) on an image: namespaces, seccomp, limits",
    .isolates = true,
    .has_own_children = true,
    .has_runtimes = true,
    .runtimes = oci_runtimes,
    .has_privileges = true,
    .has_allow_missing = true,
    .has_host_image = true,
    .has_snapshots = true,
    .networks = PROVIDER_NETWORK_USER | PROVIDER_NETWORK_NONE | PROVIDER_NETWORK_HOST,
    .limits =
        PROVIDER_LIMIT_CPUS | PROVIDER_LIMIT_MEMORY | PROVIDER_LIMIT_DISK | PROVIDER_LIMIT_PIDS,
    .pauses = PROVIDER_PAUSE_FREEZE,
    .exit = PROVIDER_EXIT_CHILD,
    .image = PROVIDER_IMAGE_ROOTFS,
    .layers = PROVIDER_LAYERS_MOUNTED,
    .disk_dir = "oci/disk",
    .probe = oci_probe,
    .check = oci_check,
    .prepare = oci_prepare,
    .start = oci_start,
    .stop = oci_stop,
    .destroy = oci_destroy,
    .find = oci_find,
    .check_pause = oci_check_pause,
    .pause = oci_pause,
    .resume = oci_resume,
    .check_capture = oci_layers_check,
    .capture = oci_layers_capture,
    .restore = oci_layers_restore,
    .has_restored = oci_layers_has_restored,
    .inspect = oci_inspect_box,
    .sweep = oci_sweep,
};
