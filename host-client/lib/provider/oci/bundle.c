#include "lib/provider/oci/bundle.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/io.h"
#include "common/jsonx.h"
#include "common/str.h"
#include "lib/provider/oci/host_image.h"
#include "lib/provider/oci/cgroup.h"
#include "lib/provider/oci/seccomp.h"

#define CPU_PERIOD_US 100000
#define SHM_OPTION "size=268435456" /* browsers need more than the usual 64 MB */

struct capability {
    const char *name;
    int bit;
};

/* The capabilities that sudo, package managers and servers need, within the box's user
 * namespace. */
static const struct capability sudo_capabilities[] = {
    {"CAP_CHOWN", CAP_CHOWN},
    {"CAP_DAC_OVERRIDE", CAP_DAC_OVERRIDE},
    {"CAP_FOWNER", CAP_FOWNER},
    {"CAP_FSETID", CAP_FSETID},
    {"CAP_SETUID", CAP_SETUID},
    {"CAP_SETGID", CAP_SETGID},
    {"CAP_KILL", CAP_KILL},
    {"CAP_NET_BIND_SERVICE", CAP_NET_BIND_SERVICE},
    {"CAP_SYS_CHROOT", CAP_SYS_CHROOT},
    {"CAP_AUDIT_WRITE", CAP_AUDIT_WRITE},
};

uint64_t oci_bundle_capabilities(void)
{
    uint64_t mask = 0;

    for (size_t i = 0; i < N_ELEMENTS(sudo_capabilities); i++)
        mask |= 1ull << sudo_capabilities[i].bit;
    return mask;
}

/* ---- the stage ---- */

void oci_stage_paths_done(struct oci_stage_paths *p)
{
    free(p->lower);
    free(p->disk);
    free(p->run);
    free(p->hosts);
    free(p->resolv);
}

int oci_bundle_stage(const struct provider_box *b, const struct oci_stage_paths *paths,
                     struct oci_stage *s, struct err *e)
{
    const struct oci_bind binds[] = {
        {.source = paths->run, .name = "run", .is_dir = true},
        {.source = b->ctx->agent_path, .name = "agent", .readonly = true, .idmap = true},
        {.source = paths->hosts, .name = "hosts"},
        {.source = paths->resolv, .name = "resolv.conf"},
    };
    int r = 0;

    s->lower = paths->lower;
    s->disk = paths->disk;
    for (size_t i = 0; r == 0 && i < N_ELEMENTS(binds); i++)
        r = oci_stage_bind(s, &binds[i], e);
    if (r == 0 && oci_is_host_image(b->spec))
        r = host_image_stage(s, e);
    return r;
}

/* ---- small JSON helpers: NULL anywhere ends as NULL, which is "out of memory" ---- */

static json_t *new_strings(const char *const *list)
{
    json_t *array = json_array();

    for (; *list; list++)
        if (json_array_append_new(array, json_string(*list)) < 0) {
            json_decref(array);
            return NULL;
        }
    return array;
}

static int add_mount(json_t *mounts, const char *type, const char *source, const char *target,
                     const char *const *options)
{
    return json_array_append_new(mounts, json_pack("{s:s, s:s, s:s, s:o}", "destination", target,
                                                   "type", type, "source", source, "options",
                                                   new_strings(options)));
}

/* ---- process ---- */

static json_t *new_env(const struct oci_bundle *c)
{
    json_t *env = json_array();
    int r = 0;

    r |= json_array_append_new(
        env, json_string("PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"));
    r |= json_array_append_new(env, json_string("LANG=C.UTF-8"));
    r |= json_array_append_new(env, oci_is_strict(c->box->spec)
                                        ? json_sprintf("HOME=/home/%s", c->disk->user)
                                        : json_string("HOME=/root"));
    for (char **p = c->box->spec->env; p && *p; p++)
        r |= json_array_append_new(env, json_string(*p));
    if (r == 0)
        return env;
    json_decref(env);
    return NULL;
}

/* sudo: the sets that let the box's root act as root. Inheritable stays empty, so that file
 * capabilities cannot add to it. strict: none. */
static json_t *new_capabilities(bool strict)
{
    const char *names[N_ELEMENTS(sudo_capabilities) + 1] = {NULL};

    for (size_t i = 0; i < N_ELEMENTS(sudo_capabilities); i++)
        names[i] = strict ? NULL : sudo_capabilities[i].name;
    return json_pack("{s:o, s:o, s:o, s:[], s:[]}", "bounding", new_strings(names), "effective",
                     new_strings(names), "permitted", new_strings(names), "inheritable", "ambient");
}

static json_t *new_process(const struct oci_bundle *c)
{
    bool strict = oci_is_strict(c->box->spec);
    const char *argv[] = {oci_agent_place(c->box->spec),
                          "--init",
                          "--unix",
                          OCI_BOX_RUN "/agent.sock",
                          "--token-file",
                          OCI_BOX_RUN "/token",
                          "--user",
                          c->disk->user,
                          "--workdir",
                          c->box->spec->dest,
                          NULL};

    return json_pack("{s:b, s:{s:i, s:i}, s:o, s:o, s:s, s:o, s:b}", "terminal", 0, "user", "uid",
                     strict ? (int)c->disk->uid : 0, "gid", strict ? (int)c->disk->gid : 0, "args",
                     new_strings(argv), "env", new_env(c), "cwd", "/", "capabilities",
                     new_capabilities(strict), "noNewPrivileges", strict);
}

/* ---- mounts ---- */

static int add_bind(json_t *mounts, const struct oci_stage *s, const char *name, const char *target,
                    bool readonly)
{
    const char *const rw[] = {"bind", "nosuid", "nodev", NULL};
    const char *const ro[] = {"bind", "nosuid", "nodev", "ro", NULL};
    char source[OCI_STAGE_PATH_BYTES];

    (void)snprintf(source, sizeof(source), "%s/%s", s->root, name);
    return add_mount(mounts, "bind", source, target, readonly ? ro : rw);
}

/* Only the owner of the network namespace can mount a sysfs: with the host's network, the
 * host's sysfs is bound instead. */
static int add_sys(json_t *mounts, const struct oci_bundle *c)
{
    const char *const own[] = {"nosuid", "noexec", "nodev", "ro", NULL};
    const char *const bound[] = {"rbind", "nosuid", "noexec", "nodev", "ro", NULL};

    if (c->disk->base && str_eq(c->run->network, "host"))
        return add_mount(mounts, "bind", "/sys", "/sys", bound);
    return add_mount(mounts, "sysfs", "sysfs", "/sys", own);
}

static json_t *new_mounts(const struct oci_bundle *c)
{
    const char *const proc[] = {"nosuid", "noexec", "nodev", NULL};
    const char *const dev[] = {"nosuid", "strictatime", "mode=755", "size=65536k", NULL};
    const char *const pts[] = {"nosuid",    "noexec", "newinstance", "ptmxmode=0666",
                               "mode=0620", "gid=5",  NULL};
    const char *const shm[] = {"nosuid", "noexec", "nodev", "mode=1777", SHM_OPTION, NULL};
    const char *const mq[] = {"nosuid", "noexec", "nodev", NULL};
    const char *const cgroup[] = {
        "nosuid", "noexec", "nodev", "relatime", oci_cgroup_is_given(c->disk) ? "rw" : "ro", NULL};
    char uid[32];
    char gid[32];
    /* the user's secrets, never on a disk */
    const char *const secrets[] = {"nosuid",     "noexec", "nodev", "mode=0700",
                                   "size=4096k", uid,      gid,     NULL};
    json_t *mounts = json_array();
    int r = 0;

    r |= add_mount(mounts, "proc", "proc", "/proc", proc);
    r |= add_mount(mounts, "tmpfs", "tmpfs", "/dev", dev);
    r |= add_mount(mounts, "devpts", "devpts", "/dev/pts", pts);
    r |= add_mount(mounts, "tmpfs", "shm", "/dev/shm", shm);
    r |= add_mount(mounts, "mqueue", "mqueue", "/dev/mqueue", mq);
    (void)snprintf(uid, sizeof(uid), "uid=%u", (unsigned)c->disk->uid);
    (void)snprintf(gid, sizeof(gid), "gid=%u", (unsigned)c->disk->gid);
    r |= add_mount(mounts, "tmpfs", "tmpfs", "/run/secrets", secrets);
    r |= add_sys(mounts, c);
    /* On v2 the box sees its own subtree. v1 is never delegated. */
    if (oci_cgroup_is_v2())
        r |= add_mount(mounts, "cgroup", "cgroup", "/sys/fs/cgroup", cgroup);
    if (oci_is_host_image(c->box->spec))
        r |= host_image_mounts(mounts, c->stage);
    r |= add_bind(mounts, c->stage, "run", OCI_BOX_RUN, false);
    r |= add_bind(mounts, c->stage, "agent", oci_agent_place(c->box->spec), true);
    r |= add_bind(mounts, c->stage, "hosts", "/etc/hosts", false);
    r |= add_bind(mounts, c->stage, "resolv.conf", "/etc/resolv.conf", false);
    if (r == 0)
        return mounts;
    json_decref(mounts);
    return NULL;
}

/* ---- linux ---- */

static json_t *new_namespaces(const struct oci_bundle *c)
{
    json_t *list = json_pack("[{s:s}, {s:s}, {s:s}, {s:s}, {s:s}]", "type", "pid", "type", "ipc",
                             "type", "uts", "type", "mount", "type", "cgroup");
    int r = 0;

    if (!str_eq(c->run->network, "host"))
        r |= json_array_append_new(list, json_pack("{s:s}", "type", "network"));
    if (c->disk->base)
        r |= json_array_append_new(list, json_pack("{s:s}", "type", "user"));
    if (r == 0)
        return list;
    json_decref(list);
    return NULL;
}

static json_t *new_resources(const struct spec *spec)
{
    json_t *res = json_pack("{s:[{s:b, s:s}], s:{s:I}}", "devices", "allow", 0, "access", "rwm",
                            "pids", "limit", (json_int_t)spec->pids);
    int r = 0;

    if (spec->memory_bytes) {
        json_t *memory = json_pack("{s:I}", "limit", (json_int_t)spec->memory_bytes);

        /* memory and swap together: a limit is a limit */
        if (oci_cgroup_limits_swap())
            r |= json_object_set_new(memory, "swap", json_integer((json_int_t)spec->memory_bytes));
        r |= json_object_set_new(res, "memory", memory);
    }
    if (spec->cpu_millis)
        r |= json_object_set_new(res, "cpu",
                                 json_pack("{s:I, s:I}", "quota",
                                           (json_int_t)spec->cpu_millis * CPU_PERIOD_US / 1000,
                                           "period", (json_int_t)CPU_PERIOD_US));
    if (r == 0)
        return res;
    json_decref(res);
    return NULL;
}

static int add_mappings(json_t *linux_, uint32_t base)
{
    static const char *const keys[] = {"uidMappings", "gidMappings"};
    int r = 0;

    for (size_t i = 0; base && i < N_ELEMENTS(keys); i++)
        r |= json_object_set_new(linux_, keys[i],
                                 json_pack("[{s:i, s:I, s:I}]", "containerID", 0, "hostID",
                                           (json_int_t)base, "size", (json_int_t)OCI_RANGE));
    return r;
}

static json_t *new_linux(const struct oci_bundle *c)
{
    /* Paths that reveal the host or reach it. */
    static const char *const masked[] = {"/proc/acpi",          "/proc/asound",
                                         "/proc/interrupts",    "/proc/kcore",
                                         "/proc/keys",          "/proc/latency_stats",
                                         "/proc/timer_list",    "/proc/timer_stats",
                                         "/proc/sched_debug",   "/proc/scsi",
                                         "/proc/kallsyms",      "/proc/kmsg",
                                         "/sys/firmware",       "/sys/devices/virtual/powercap",
                                         "/sys/fs/bpf",         "/sys/kernel/debug",
                                         "/sys/kernel/tracing", NULL};
    static const char *const readonly[] = {
        "/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger", NULL};
    json_t *linux_ =
        json_pack("{s:o, s:o, s:s, s:o, s:o, s:o, s:s}", "namespaces", new_namespaces(c),
                  "resources", new_resources(c->box->spec), "cgroupsPath", c->run->cgroup,
                  "seccomp", oci_seccomp_new(), "maskedPaths", new_strings(masked), "readonlyPaths",
                  new_strings(readonly), "rootfsPropagation", "private");

    if (linux_ && add_mappings(linux_, c->disk->base) == 0)
        return linux_;
    json_decref(linux_);
    return NULL;
}

int oci_bundle_config(const struct oci_bundle *c, json_t **ret, struct err *e)
{
    json_t *config = json_pack("{s:s, s:o, s:{s:o, s:b}, s:s, s:o, s:o, s:{s:s}}", "ociVersion",
                               "1.0.2", "process", new_process(c), "root", "path",
                               json_sprintf("%s/rootfs", c->stage->root), "readonly", 0, "hostname",
                               c->box->name, "mounts", new_mounts(c), "linux", new_linux(c),
                               "annotations", "bellhop.id", c->box->id);

    if (!config)
        return err_oom(e);
    *ret = config;
    return 0;
}

static int write_config(const char *dir, json_t *config, struct err *e)
{
    _cleanup_free_ char *path = NULL;
    _cleanup_free_ char *text = NULL;
    size_t len;
    int r;

    if (asprintf(&path, "%s/config.json", dir) < 0)
        return err_oom(e);
    r = io_mkdir_p(dir, 0700, e);
    if (r == 0)
        r = jx_dump(config, &text, &len, e);
    if (r < 0)
        return r;
    return io_write_file(AT_FDCWD, path, text, len, 0600, false, e);
}

int oci_bundle_write(const struct oci_bundle *c, struct err *e)
{
    _cleanup_free_ char *dir = oci_path(c->box, "oci/bundle");
    _cleanup_json_ json_t *config = NULL;
    int r;

    if (!dir)
        return err_oom(e);
    r = oci_bundle_config(c, &config, e);
    if (r < 0)
        return r;
    return write_config(dir, config, e);
}

static json_t *new_probe_mounts(bool with_libraries)
{
    static const char *const libraries[] = {"/usr", "/lib", "/lib64"};
    const char *const options[] = {"bind", "ro", "nosuid", "nodev", NULL};
    const char *const none[] = {NULL};
    json_t *mounts = json_array();
    int r = add_mount(mounts, "proc", "proc", "/proc", none);

    r |= add_mount(mounts, "tmpfs", "tmpfs", "/dev", none); /* crun requires it */
    for (size_t i = 0; with_libraries && i < N_ELEMENTS(libraries); i++)
        if (access(libraries[i], F_OK) == 0)
            r |= add_mount(mounts, "bind", libraries[i], libraries[i], options);
    if (r == 0)
        return mounts;
    json_decref(mounts);
    return NULL;
}

int oci_bundle_write_probe(const char *dir, const char *rootfs, const char *const *argv,
                           bool with_libraries, const char *cgroup, struct err *e)
{
    _cleanup_json_ json_t *config =
        json_pack("{s:s, s:{s:b, s:{s:i, s:i}, s:o, s:[s], s:s, s:b}, s:{s:s, s:b}, s:o,"
                  " s:{s:[{s:s}, {s:s}, {s:s}, {s:s}, {s:s}], s:s, s:o}}",
                  "ociVersion", "1.0.2", "process", "terminal", 0, "user", "uid", 0, "gid", 0,
                  "args", new_strings(argv), "env", "PATH=/bin", "cwd", "/", "noNewPrivileges", 1,
                  "root", "path", rootfs, "readonly", 0, "mounts", new_probe_mounts(with_libraries),
                  "linux", "namespaces", "type", "pid", "type", "mount", "type", "ipc", "type",
                  "uts", "type", "network", "cgroupsPath", cgroup, "seccomp", oci_seccomp_new());

    return config ? write_config(dir, config, e) : err_oom(e);
}
