#pragma once
/*
 * spawn: starts one program in a session of its own. Everything is prepared before the child is
 * created; the child shares the agent's memory until exec (like vfork), so it only makes system
 * calls. A step that fails in the child becomes the caller's error, which names the request's
 * field.
 *
 * May wait for the disk (the directory or the program may be on a disk that hangs): call it on a
 * pool thread. Thread-safe.
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
    char *const *envp; /* "K=V"; its PATH is searched for argv[0] */
    const char *cwd;
    bool cwd_or_root; /* use "/" if cwd does not exist */
    int stdin_fd, stdout_fd, stderr_fd;
    int script_fd;            /* becomes SPAWN_SCRIPT_FD; -1: none */
    bool has_tty;             /* make the terminal stdin_fd the controlling terminal */
    const struct user *user;  /* NULL: the agent's own */
    uint64_t ignored_signals; /* spawn_ignored_signals(): reset to the default */
    int umask;                /* -1: the agent's */
    struct spawn_limit limits[SPAWN_MAX_LIMITS];
    size_t n_limits;
    /* The soft limit of descriptors, unless it is among the limits; 0: the agent's. */
    rlim_t nofile;
    rlim_t marker;                   /* proc/command_tree.h; 0: none */
    int oom_score_adj;               /* -1: leave it */
    int cgroup_fds[CGROUP_MAX_DIRS]; /* open cgroup.procs files of the groups to enter */
    size_t n_cgroup_fds;
};

/* Memory of a child until exec: its stack, and a place to report a failure. */
struct spawn_room;

struct spawn_room *spawn_room_new(void); /* NULL: no memory */
struct spawn_room *spawn_room_free(struct spawn_room *r);
/* Did the child end before it became the program? Then spawn() is about to report why. */
bool spawn_room_has_failed(const struct spawn_room *r);

/* A bit mask of the ignored signals. Call it once: it costs more than the rest of a start. */
uint64_t spawn_ignored_signals(void);

/*
 * The kernel writes *ret_pid before the child runs, so that a reaper on another thread can
 * recognise the child. If spawn fails, it has reaped the child and *ret_pid is 0 again.
 */
int spawn(const struct spawn_args *a, struct spawn_room *room, _Atomic pid_t *ret_pid,
          struct err *e);
