#include "lib/provider/oci/seccomp.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>

#include "common/cleanup.h"

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
