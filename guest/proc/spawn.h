#pragma once
/*
 * spawn: starts one program in a session of its own. Everything is ready before the child is made;
 * the child shares the agent's memory until exec (as vfork has it), so it makes system calls only.
 * A step that fails in the child comes back as the caller's error, naming the request's field.
 *
 * May wait for the disk (the directory or the program can be on one that hangs): call it on a pool
 * thread. Thread-safe.
 */
#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

#include "common/err.h"
#include "proc/cgroup.h"
#include "common/user.h"

#define SPAWN_MAX_LIMITS 16
#define SPAWN_MAX_SIGNAL 64
#define SPAWN_SIGNAL_BIT(sig) ((uint64_t)1 << ((sig)-1))
#define SPAWN_SCRIPT_FD 3 /* where a script's descriptor is put */

struct spawn_limit {
    int resource;
    rlim_t value; /* soft and hard */
    const char *field;
};

struct spawn_args {
    char *const *argv;
    char *const *envp; /* "K=V"; PATH in it is where argv[0] is looked for */
    const char *cwd;
    bool cwd_or_root; /* "/" when cwd is not there */
    int stdin_fd, stdout_fd, stderr_fd;
    int script_fd;            /* becomes SPAWN_SCRIPT_FD; -1: none */
    bool has_tty;             /* stdin_fd is a terminal to be the controlling one */
    const struct user *user;  /* NULL: as the agent itself */
    uint64_t ignored_signals; /* spawn_ignored_signals(): they become the default again */
    int umask;                /* -1: the agent's */
    struct spawn_limit limits[SPAWN_MAX_LIMITS];
    size_t n_limits;
    rlim_t
        nofile; /* the soft limit of descriptors, unless it is among the limits; 0: the agent's */
    rlim_t marker;                   /* proc/command_tree.h; 0: none */
    int oom_score_adj;               /* -1: leave it */
    int cgroup_fds[CGROUP_MAX_DIRS]; /* open files cgroup.procs, to enter */
    size_t n_cgroup_fds;
};

/* What a child has until it is another program: its stack, and a place to say what failed. */
struct spawn_room;

struct spawn_room *spawn_room_new(void); /* NULL: no memory */
struct spawn_room *spawn_room_free(struct spawn_room *r);
/* Of a child that has ended: before it became the program? spawn() is about to say why. */
bool spawn_room_has_failed(const struct spawn_room *r);

/* What is ignored now: asked once, since a look costs more than the rest of a start. */
uint64_t spawn_ignored_signals(void);

/*
 * *ret_pid is written by the kernel before the child runs, so that a reaper on another thread can
 * know it; it is 0 again when spawn fails, and the failed child has been reaped then.
 */
int spawn(const struct spawn_args *a, struct spawn_room *room, _Atomic pid_t *ret_pid,
          struct err *e);
