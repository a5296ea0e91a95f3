#pragma once
/*
 * process: processes by an identity, and signals that reach the identified process or none. A pid is not an
 * identity: it is free for another process as soon as its own has been waited for. These are: a descriptor
 * of the process (a pidfd), a pid together with the start time (unless the number is used again within one
 * clock tick), and the pid of a child that its parent has not waited for. Thread-safe.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/err.h"

struct process_stat {
    pid_t pid, parent, session;
    char state;     /* R, S, D, T, Z, ...: proc(5) */
    int n_threads;  /* of a zombie: those that still run, and itself */
    uint64_t flags; /* the kernel's PF_... */
    uint64_t start; /* clock ticks since boot, as this kernel counts them */
};

/* /proc/PID/stat. False, with errno: there is no such process, or it can't be read. */
bool process_read(pid_t pid, struct process_stat *ret);
/* It only waits to be waited for. A zombie whose other threads still run has not ended. */
bool process_has_ended(const struct process_stat *s);
/* A pidfd, close-on-exec; -1 with errno: ESRCH without such a process, ENOSYS on a kernel without pidfds. */
int process_open(pid_t pid);
/* False once it has been waited for; true for a zombie. */
bool process_is_there(int pidfd);

/*
 * Sends sig to the process with this pid and start time. False: it is gone, it is pid 1, or the caller may
 * not signal it.
 */
bool process_signal(pid_t pid, uint64_t start, int sig);

/* Is it a child of the caller's that has not been waited for? */
bool process_is_child(pid_t pid);
/*
 * Send sig to a child, or to its process group, which must be its own. 0, or a negative errno: -ESRCH when
 * `child` is no child of the caller's or has been waited for. Nobody else may wait for it meanwhile.
 */
int process_signal_child(pid_t child, int sig);
int process_signal_child_group(pid_t child, int sig);

/*
 * Sends SIGKILL to the processes that a cgroup.procs file lists, but for the caller and pid 1. Each is opened,
 * and killed if the file still lists it after that. *ret_listed: how many it listed before. Short of descriptors
 * it leaves some out: call it until the file lists none.
 */
int process_kill_listed(const char *procs_path, size_t *ret_listed, struct err *e);
/* How many it lists. */
int process_count_listed(const char *procs_path, size_t *ret, struct err *e);
