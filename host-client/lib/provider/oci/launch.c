#include "lib/provider/oci/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/io.h"
#include "common/str.h"
#include "lib/provider/oci/bundle.h"
#include "lib/provider/oci/cgroup.h"
#include "lib/provider/oci/inspect.h"
#include "lib/provider/oci/mounts.h"
#include "lib/provider/oci/network.h"
#include "lib/provider/oci/rootfs.h"
#include "lib/provider/oci/runtime.h"
#include "lib/provider/oci/layers.h"
#include "lib/util/beneath.h"
#include "lib/util/socket.h"

#define TOKEN_MAX_BYTES 4096
#define LISTEN_POLL_MS 2

/*
 * run/ belongs to pid 1 of the box (its root, or with `strict` the user) until the agent listens
 * there; then seal_run_dir() revokes it. The content of an earlier run is not trusted.
 */
static int open_run_dir(const struct provider_box *b, const struct oci_disk *disk, struct err *e)
{
    _cleanup_free_ char *run = oci_path(b, "run");
    uint32_t uid = oci_is_strict(b->spec) ? disk->base + disk->uid : disk->base;
    uint32_t gid = oci_is_strict(b->spec) ? disk->base + disk->gid : disk->base;

    int r = run ? dirtree_remove(run, e) : err_oom(e);

    if (r < 0)
        return r;
    if (mkdir(run, 0700) < 0)
        return err_sys(e, errno, "mkdir '%s'", run);
    if (chown(run, uid, gid) < 0)
        return err_sys(e, errno, "own '%s'", run);
    return 0;
}

/* Writes the box's own copy: pid 1 reads and unlinks it. */
static int give_token(const struct provider_box *b, const struct oci_disk *disk, struct err *e)
{
    _cleanup_free_ char *from = oci_path(b, "token");
    _cleanup_free_ char *to = oci_path(b, "run/token");
    _cleanup_free_ char *token = NULL;
    _cleanup_close_ int fd = -1;
    uint32_t uid = oci_is_strict(b->spec) ? disk->base + disk->uid : disk->base;
    size_t len;
    int r;

    if (!from || !to)
        return err_oom(e);
    r = io_read_file(AT_FDCWD, from, TOKEN_MAX_BYTES, &token, &len, e);
    if (r < 0)
        return r;
    if (unlink(to) < 0 && errno != ENOENT)
        return err_sys(e, errno, "unlink '%s'", to);
    fd = open(to, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0400);
    if (fd < 0)
        return err_sys(e, errno, "create '%s'", to);
    r = io_write_all(fd, token, len, e);
    if (r == 0 && fchown(fd, uid, uid) < 0)
        r = err_sys(e, errno, "own '%s'", to);
    return r;
}

static int stage_paths(const struct provider_box *b, struct oci_stage_paths *p, struct err *e)
{
    int r = oci_lower_path(b, &p->lower, e);

    if (r < 0)
        return r;
    p->disk = oci_path(b, "oci/disk");
    p->run = oci_path(b, "run");
    p->hosts = oci_path(b, "oci/etc/hosts");
    p->resolv = oci_path(b, "oci/etc/resolv.conf");
    if (!p->lower || !p->disk || !p->run || !p->hosts || !p->resolv)
        return err_oom(e);
    r = oci_layers_trees(b, &p->layers, e);
    return r < 0 ? r : provider_layer_load(b->dir, &p->layer, e);
}

static int open_console(const struct provider_box *b, int *ret_fd, struct err *e)
{
    _cleanup_free_ char *path = oci_path(b, "console.log");
    int fd;

    if (!path)
        return err_oom(e);
    fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return err_sys(e, errno, "create '%s'", path);
    *ret_fd = fd;
    return 0;
}

/* The working set of start(). */
struct launch {
    struct provider_box *box;
    struct oci_disk disk;
    struct oci_run run;
    struct oci_runtime runtime;
    struct oci_stage stage;
    struct oci_stage_paths paths;
    char *state_dir, *bundle_dir, *log_path;
    int console;
};

static void launch_done(struct launch *l)
{
    oci_stage_paths_done(&l->paths);
    fd_close(l->stage.userns_fd);
    fd_close(l->console);
    free(l->state_dir);
    free(l->bundle_dir);
    free(l->log_path);
}

static struct oci_container launch_container(struct launch *l)
{
    return (struct oci_container){.runtime = &l->runtime,
                                  .id = l->run.container,
                                  .state_dir = l->state_dir,
                                  .log_path = l->log_path,
                                  .network = l->run.network,
                                  .cancel_fd = l->box->ctx->cancel_fd,
                                  .deadline_mono_ms = provider_deadline(l->box)};
}

/* Prepares names, files and bundle; nothing that the kernel keeps. */
static int launch_init(struct launch *l, struct provider_box *b, struct err *e)
{
    int r;

    l->box = b;
    l->state_dir = oci_path(b, "oci/state");
    l->bundle_dir = oci_path(b, "oci/bundle");
    l->log_path = oci_path(b, "oci/runtime.log");
    if (!l->state_dir || !l->bundle_dir || !l->log_path)
        return err_oom(e);
    r = oci_disk_load(b, &l->disk, e);
    if (r == 0)
        r = oci_runtime_require(b->ctx, b->spec->runtime, &l->runtime, e);
    if (r == 0)
        r = stage_paths(b, &l->paths, e);
    if (r == 0 && l->disk.base)
        r = oci_userns_open(l->disk.base, &l->stage.userns_fd, e);
    if (r < 0)
        return r;
    oci_run_name(b, &l->run);
    (void)snprintf(l->run.runtime, sizeof(l->run.runtime), "%s", l->runtime.name);
    (void)snprintf(l->run.runtime_path, sizeof(l->run.runtime_path), "%s", l->runtime.path);
    (void)snprintf(l->run.network, sizeof(l->run.network), "%s", b->spec->network);
    (void)snprintf(l->run.lower, sizeof(l->run.lower), "%s",
                   oci_lower_kind(b->spec, l->paths.lower));
    l->stage.root = oci_stage_root(b->dir, l->runtime.path);
    return 0;
}

static int launch_files(struct launch *l, struct err *e)
{
    const struct oci_bundle bundle = {.box = l->box,
                                      .disk = &l->disk,
                                      .run = &l->run,
                                      .stage = &l->stage,
                                      .layer = &l->paths.layer};
    int r;

    (void)unlink(l->log_path);
    r = oci_network_files(l->box, e);
    if (r == 0)
        r = oci_bundle_stage(l->box, &l->paths, &l->stage, e);
    if (r == 0)
        r = oci_bundle_write(&bundle, e);
    if (r == 0)
        r = open_run_dir(l->box, &l->disk, e);
    if (r == 0)
        r = give_token(l->box, &l->disk, e);
    if (r == 0)
        r = open_console(l->box, &l->console, e);
    return r;
}

/* Delegates the group to pid 1, which puts itself into one part of it and commands into
 * another. */
static int give_cgroup(const struct launch *l, struct err *e)
{
    bool strict = oci_is_strict(l->box->spec);

    if (!oci_cgroup_is_given(&l->disk))
        return 0;
    return oci_cgroup_give(l->run.cgroup, l->disk.base + (strict ? l->disk.uid : 0),
                           l->disk.base + (strict ? l->disk.gid : 0), e);
}

/* Waits until the agent listens on its socket; *ret_fd is -1 if pid 1 has ended. */
static int connect_first(const struct launch *l, int *ret_fd, struct err *e)
{
    _cleanup_free_ char *path = oci_path(l->box, "run/agent.sock");
    int64_t deadline = provider_deadline(l->box);

    if (!path)
        return err_oom(e);
    while (oci_proc_is_alive(&l->run.init)) {
        int r = socket_connect(path, 0, ret_fd, e);

        if (r != -ERR_UNAVAILABLE)
            return r;
        if (clock_until_ms(deadline) == 0)
            return err_wrap(e, r, "the guest agent does not listen");
        if (socket_wait_canceled(l->box->ctx->cancel_fd, LISTEN_POLL_MS))
            return err_set(e, ERR_CANCELED, "canceled while the guest agent started");
    }
    return 0;
}

/*
 * The agent is the only program in the box so far. Once it listens it no longer writes to run/:
 * the mount becomes read-only, and no capability in the box can undo that. Connections still work.
 * With runsc, the gofer has the sockets and mounts.
 */
static int seal_run_dir(struct launch *l, struct err *e)
{
    _cleanup_close_ int fd = -1;
    pid_t pid = 0;
    int r = connect_first(l, &fd, e);

    if (r < 0 || fd < 0) /* it has ended, and the caller reports why */
        return r;
    r = socket_peer(fd, &pid, e);
    if (r == 0)
        r = oci_proc_identify(pid, &l->run.listener, e);
    if (r == 0 && !str_eq(l->runtime.name, "runsc") &&
        (pid != l->run.init.pid || l->run.listener.start != l->run.init.start))
        r = err_set(e, ERR_INTERNAL, "process %d listens in the place of the guest agent",
                    (int)pid);
    return r < 0 ? r : oci_mounts_seal(&l->run.listener, OCI_BOX_RUN, e);
}

/* Creates the box and attaches its network before its program runs, and reads back the
 * isolation before anybody can use the box. */
static int launch_box(struct launch *l, struct err *e)
{
    struct oci_container c = launch_container(l);
    pid_t pid;
    int r;

    r = oci_run_save(l->box, &l->run, e);
    if (r == 0)
        r = io_mkdir_p(l->state_dir, 0700, e);
    if (r == 0)
        r = oci_runtime_create(&c, l->bundle_dir, l->console, &l->stage, &pid, e);
    if (r == 0)
        r = oci_proc_identify(pid, &l->run.init, e);
    if (r == 0)
        r = oci_run_save(l->box, &l->run, e);
    if (r == 0)
        r = give_cgroup(l, e);
    if (r == 0)
        r = oci_network_attach(l->box, &l->run, e);
    if (r == 0)
        r = oci_runtime_command(&c, "start", e);
    if (r == 0)
        r = oci_inspect_require(l->box, &l->run, e);
    if (r == 0)
        r = seal_run_dir(l, e);
    l->run.is_started = true;
    if (r == 0)
        r = oci_run_save(l->box, &l->run, e);
    return r;
}

int oci_launch(struct provider_box *b, struct oci_run *ret, struct err *e)
{
    struct launch l = {.console = -1, .stage = {.userns_fd = -1}};
    int r = launch_init(&l, b, e);

    if (r == 0)
        r = launch_files(&l, e);
    if (r == 0)
        r = launch_box(&l, e);
    if (r == 0)
        *ret = l.run;
    launch_done(&l);
    return r;
}
