#pragma once
/*
 * process: processes by identity, and signals that reach the identified process or none. A pid is no identity: it may
 * be reused as soon as its process has been reaped. Identities are: a pidfd, a pid with its start time (unless the
 * pid is reused within one clock tick), and the pid of a child that its parent has not reaped. Thread-safe.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/err.h"

#define PROCESS_NAME_BYTES 16

struct process_stat {
    pid_t pid, parent, session;
    char state;     /* R, S, D, T, Z, ...: proc(5) */
    int n_threads;  /* of a zombie: the threads that still run, and itself */
    uint64_t flags; /* the kernel's PF_... */
    uint64_t start; /* in clock ticks since boot */
    uint64_t ticks; /* of processor time: its own and of the children it has waited for */
    int64_t resident_pages;
    char name[PROCESS_NAME_BYTES];
};

/* /proc/PID/stat. False, with errno: there is no such process, or it can't be read. */
bool process_read(pid_t pid, struct process_stat *ret);
/* Whether it only has to be reaped. A zombie with threads that still run has not ended. */
bool process_has_ended(const struct process_stat *s);
/* A pidfd, close-on-exec; -1 with errno: ESRCH without such a process, ENOSYS on a kernel without pidfds. */
int process_open(pid_t pid);
/* False once it has been reaped; true for a zombie. */
bool process_is_there(int pidfd);

/*
 * Sends sig to the process with this pid and start time. False: it is gone, it is pid 1, or the caller may
 * not signal it.
 */
bool process_signal(pid_t pid, uint64_t start, int sig);

/* Whether it is the caller's child and has not been reaped. */
bool process_is_child(pid_t pid);
/*
 * Send sig to a child, or to its process group, which must be its own. Return 0 or a negative errno; -ESRCH: `child`
 * is not the caller's child, or has been reaped. No other thread may reap it meanwhile.
 */
int process_signal_child(pid_t child, int sig);
int process_signal_child_group(pid_t child, int sig);

/*
 * Sends SIGKILL to the processes in a cgroup.procs file, except the caller and pid 1. Each process is opened, and
 * killed if the file still lists it after that. *ret_listed: the number listed before. If descriptors run out, some
 * are skipped: call it until the file lists none.
 */
int process_kill_listed(const char *procs_path, size_t *ret_listed, struct err *e);
/* The number of processes in the file. */
int process_count_listed(const char *procs_path, size_t *ret, struct err *e);

/*
 * proctable: a snapshot of the processes of this machine, and a set of members among them. The caller marks the members
 * it can prove; proctable_add_descendants() adds their children. One thread at a time.
 */

struct proctable_row {
    struct process_stat stat;
    bool is_barred;    /* set by the caller: never a member */
    bool is_member;    /* set by the caller, or by proctable_add_descendants() */
    bool was_signaled; /* set by the caller */
};

struct proctable {
    struct proctable_row *rows; /* by pid, ascending */
    size_t n, cap;
};

/*
 * Reads all processes except the caller and pid 1; with_ended: also zombies. ERR_EXHAUSTED: more than max_rows, or no
 * descriptors. *t must be empty or from an earlier read; it is replaced on success only.
 */
int proctable_read(struct proctable *t, bool with_ended, size_t max_rows, struct err *e);
void proctable_done(struct proctable *t); /* leaves an empty table */

struct proctable_row *proctable_find(const struct proctable *t, pid_t pid); /* NULL: not there */
/* Copies is_member and was_signaled of processes that are in an earlier table too. */
void proctable_keep_members(struct proctable *t, const struct proctable *earlier);
/*
 * Makes the descendants of members members. A parent's pid proves nothing by itself (it may have been reused since
 * it was read), so parent and child are read again.
 */
void proctable_add_descendants(struct proctable *t);
size_t proctable_count_members(const struct proctable *t);
