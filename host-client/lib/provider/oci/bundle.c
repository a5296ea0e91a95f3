#include "lib/provider/oci/bundle.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/io.h"
#include "common/jsonx.h"
#include "common/str.h"
#include "lib/provider/oci/cgroup.h"
#include "lib/provider/oci/host_image.h"

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
    (void)strv_free(p->layers);
    provider_layer_done(&p->layer);
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
    s->layers = paths->layers;
    s->disk = paths->disk;
    for (size_t i = 0; r == 0 && i < N_ELEMENTS(binds); i++)
        r = oci_stage_bind(s, &binds[i], e);
    /* Without the box's ids: its root has no rights of an owner over the layer's files. */
    if (r == 0 && paths->layer.source)
        r = oci_stage_bind(
            s,
            &(struct oci_bind){
                .source = paths->layer.source, .name = "layer", .is_dir = true, .readonly = true},
            e);
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
    if (c->layer && c->layer->source)
        r |= add_bind(mounts, c->stage, "layer", c->layer->target, true);
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

/* ---- system calls ---- */

/* CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET: a box makes no namespaces. */
#define CLONE_NEW_ANY 0x7e020000

/*
 * Allowed whatever the arguments. Not here, on purpose: mounts and namespaces (mount, umount2,
 * pivot_root, fsopen, move_mount, open_tree, mount_setattr, unshare, setns), the kernel's own
 * insides (bpf, perf_event_open, userfaultfd, io_uring, kexec, modules, iopl, syslog, acct,
 * quotactl, swapon, reboot), keys (they have no namespace), handles (open_by_handle_at reads past
 * every mount), clocks (settimeofday, clock_settime, adjtimex), host names, process accounting
 * across boxes (lookup_dcookie, fanotify_init), and the ways in for another architecture.
 * ptrace stays: debuggers need it, and the pid namespace ends at the box.
 */
static const char *const allowed_calls[] = {
    /* files */
    "access", "chdir", "chmod", "chown", "chown32", "close", "close_range", "copy_file_range",
    "creat", "dup", "dup2", "dup3", "faccessat", "faccessat2", "fadvise64", "fadvise64_64",
    "fallocate", "fchdir", "fchmod", "fchmodat", "fchmodat2", "fchown", "fchown32", "fchownat",
    "fcntl", "fcntl64", "fdatasync", "fgetxattr", "flistxattr", "flock", "fremovexattr",
    "fsetxattr", "fstat", "fstat64", "fstatat64", "fstatfs", "fstatfs64", "fsync", "ftruncate",
    "ftruncate64", "futimesat", "getcwd", "getdents", "getdents64", "getxattr", "inotify_add_watch",
    "inotify_init", "inotify_init1", "inotify_rm_watch", "lchown", "lchown32", "lgetxattr", "link",
    "linkat", "listxattr", "llistxattr", "_llseek", "lremovexattr", "lseek", "lsetxattr", "lstat",
    "lstat64", "mkdir", "mkdirat", "mknod", "mknodat", "name_to_handle_at", "newfstatat", "open",
    "openat", "openat2", "pread64", "preadv", "preadv2", "pwrite64", "pwritev", "pwritev2", "read",
    "readahead", "readlink", "readlinkat", "readv", "removexattr", "rename", "renameat",
    "renameat2", "rmdir", "sendfile", "sendfile64", "setxattr", "splice", "stat", "stat64",
    "statfs", "statfs64", "statx", "symlink", "symlinkat", "sync", "sync_file_range", "syncfs",
    "tee", "truncate", "truncate64", "umask", "unlink", "unlinkat", "utime", "utimensat",
    "utimensat_time64", "utimes", "vmsplice", "write", "writev", "chroot", "ioctl",
    /* memory */
    "brk", "cachestat", "madvise", "membarrier", "memfd_create", "memfd_secret", "mincore", "mlock",
    "mlock2", "mlockall", "mmap", "mmap2", "mprotect", "mremap", "msync", "munlock", "munlockall",
    "munmap", "pkey_alloc", "pkey_free", "pkey_mprotect", "process_madvise", "process_mrelease",
    "process_vm_readv", "process_vm_writev", "remap_file_pages",
    /* processes */
    "arch_prctl", "capget", "capset", "execve", "execveat", "exit", "exit_group", "fork", "getcpu",
    "getegid", "getegid32", "geteuid", "geteuid32", "getgid", "getgid32", "getgroups",
    "getgroups32", "getpgid", "getpgrp", "getpid", "getppid", "getpriority", "getresgid",
    "getresgid32", "getresuid", "getresuid32", "getrlimit", "getrusage", "getsid", "gettid",
    "getuid", "getuid32", "ioprio_get", "ioprio_set", "kcmp", "kill", "pause", "pidfd_open",
    "pidfd_send_signal", "prctl", "prlimit64", "ptrace", "rseq", "sched_get_priority_max",
    "sched_get_priority_min", "sched_getaffinity", "sched_getattr", "sched_getparam",
    "sched_getscheduler", "sched_rr_get_interval", "sched_rr_get_interval_time64",
    "sched_setaffinity", "sched_setattr", "sched_setparam", "sched_setscheduler", "sched_yield",
    "set_robust_list", "get_robust_list", "set_thread_area", "get_thread_area", "set_tid_address",
    "setfsgid", "setfsgid32", "setfsuid", "setfsuid32", "setgid", "setgid32", "setgroups",
    "setgroups32", "setpgid", "setpriority", "setregid", "setregid32", "setresgid", "setresgid32",
    "setresuid", "setresuid32", "setreuid", "setreuid32", "setrlimit", "setsid", "setuid",
    "setuid32", "sysinfo", "tgkill", "times", "tkill", "ugetrlimit", "uname", "vfork", "wait4",
    "waitid", "waitpid", "modify_ldt", "seccomp", "landlock_create_ruleset", "landlock_add_rule",
    "landlock_restrict_self",
    /* signals, time, waiting */
    "alarm", "clock_getres", "clock_getres_time64", "clock_gettime", "clock_gettime64",
    "clock_nanosleep", "clock_nanosleep_time64", "epoll_create", "epoll_create1", "epoll_ctl",
    "epoll_ctl_old", "epoll_pwait", "epoll_pwait2", "epoll_wait", "epoll_wait_old", "eventfd",
    "eventfd2", "futex", "futex_time64", "futex_waitv", "futex_wake", "futex_wait", "futex_requeue",
    "getitimer", "getrandom", "gettimeofday", "io_cancel", "io_destroy", "io_getevents",
    "io_pgetevents", "io_setup", "io_submit", "nanosleep", "newselect", "_newselect", "poll",
    "ppoll", "ppoll_time64", "pselect6", "pselect6_time64", "restart_syscall", "rt_sigaction",
    "rt_sigpending", "rt_sigprocmask", "rt_sigqueueinfo", "rt_sigreturn", "rt_sigsuspend",
    "rt_sigtimedwait", "rt_sigtimedwait_time64", "rt_tgsigqueueinfo", "select", "setitimer",
    "sigaltstack", "signalfd", "signalfd4", "sigreturn", "time", "timer_create", "timer_delete",
    "timer_getoverrun", "timer_gettime", "timer_gettime64", "timer_settime", "timer_settime64",
    "timerfd_create", "timerfd_gettime", "timerfd_gettime64", "timerfd_settime",
    "timerfd_settime64",
    /* sockets and IPC; socket() itself is below */
    "accept", "accept4", "bind", "connect", "getpeername", "getsockname", "getsockopt", "listen",
    "mq_getsetattr", "mq_notify", "mq_open", "mq_timedreceive", "mq_timedreceive_time64",
    "mq_timedsend", "mq_timedsend_time64", "mq_unlink", "msgctl", "msgget", "msgrcv", "msgsnd",
    "pipe", "pipe2", "recv", "recvfrom", "recvmmsg", "recvmmsg_time64", "recvmsg", "semctl",
    "semget", "semop", "semtimedop", "semtimedop_time64", "send", "sendmmsg", "sendmsg", "sendto",
    "setsockopt", "shmat", "shmctl", "shmdt", "shmget", "shutdown", "socketpair", "ipc"};

/* Families of socket(): no AF_VSOCK (the hypervisor), AF_ALG, AF_PACKET, AF_BLUETOOTH, ... */
static const int socket_families[] = {AF_UNIX, AF_INET, AF_INET6, AF_NETLINK};

/* personality(): the default, 32-bit, uname 2.6, both, "what is it", and no address space
 * randomisation (debuggers; the kernel drops it for setuid programs). */
static const uint64_t allowed_personalities[] = {0x0, 0x8, 0x20000, 0x20008, 0xffffffff, 0x40000};

/* Programs ask whether these are there and fall back when the answer is ENOSYS. clone3's flags
 * are in memory, where a filter can't see them. */
static const char *const absent_calls[] = {"clone3", "io_uring_setup", "io_uring_enter",
                                           "io_uring_register"};

static json_t *new_rule(const char *name, const char *action)
{
    return json_pack("{s:[s], s:s}", "names", name, "action", action);
}

static json_t *new_arg_rule(const char *name, unsigned index, uint64_t value, uint64_t value_two,
                            const char *op)
{
    return json_pack("{s:[s], s:s, s:[{s:i, s:I, s:I, s:s}]}", "names", name, "action",
                     "SCMP_ACT_ALLOW", "args", "index", (int)index, "value", (json_int_t)value,
                     "valueTwo", (json_int_t)value_two, "op", op);
}

static json_t *new_errno_rule(const char *name, int sys)
{
    json_t *rule = new_rule(name, "SCMP_ACT_ERRNO");

    (void)json_object_set_new(rule, "errnoRet", json_integer(sys));
    return rule;
}

static json_t *new_allow_rule(void)
{
    json_t *rule = json_pack("{s:[], s:s}", "names", "action", "SCMP_ACT_ALLOW");
    json_t *names = json_object_get(rule, "names");

    for (size_t i = 0; i < N_ELEMENTS(allowed_calls); i++)
        if (json_array_append_new(names, json_string(allowed_calls[i])) < 0) {
            json_decref(rule);
            return NULL;
        }
    return rule;
}

static json_t *new_rules(void)
{
    json_t *rules = json_array();
    int r = json_array_append_new(rules, new_allow_rule());

    for (size_t i = 0; i < N_ELEMENTS(socket_families); i++)
        r |= json_array_append_new(
            rules, new_arg_rule("socket", 0, (uint64_t)socket_families[i], 0, "SCMP_CMP_EQ"));
    for (size_t i = 0; i < N_ELEMENTS(allowed_personalities); i++)
        r |= json_array_append_new(
            rules, new_arg_rule("personality", 0, allowed_personalities[i], 0, "SCMP_CMP_EQ"));
    /* value is the mask, valueTwo the expected result */
    r |= json_array_append_new(rules,
                               new_arg_rule("clone", 0, CLONE_NEW_ANY, 0, "SCMP_CMP_MASKED_EQ"));
    for (size_t i = 0; i < N_ELEMENTS(absent_calls); i++)
        r |= json_array_append_new(rules, new_errno_rule(absent_calls[i], ENOSYS));
    if (r == 0)
        return rules;
    json_decref(rules);
    return NULL;
}

json_t *oci_seccomp_new(void)
{
    /* One architecture only: i386 and x32 programs are killed at their first call. */
#if defined(__x86_64__)
    const char *arch = "SCMP_ARCH_X86_64";
#elif defined(__aarch64__)
    const char *arch = "SCMP_ARCH_AARCH64";
#else
#error "which architecture's system calls?"
#endif
    json_t *rules = new_rules();

    return rules ? json_pack("{s:s, s:i, s:[s], s:o}", "defaultAction", "SCMP_ACT_ERRNO",
                             "defaultErrnoRet", EPERM, "architectures", arch, "syscalls", rules)
                 : NULL;
}

bool oci_seccomp_allows(const char *name)
{
    for (size_t i = 0; i < N_ELEMENTS(allowed_calls); i++)
        if (strcmp(allowed_calls[i], name) == 0)
            return true;
    return false;
}
