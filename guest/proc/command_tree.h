#pragma once
/*
 * command_tree: a command and everything it started, found without a cgroup. A process is a member
 *
 *   by its mark: the first process gets a resource limit of a unique value, which children inherit;
 *   setsid, a double fork and an empty environment do not remove it;
 *   by its session: it is in the session that the first process leads, while that process exists;
 *   by its parents: an unbroken chain of parents leads to a member.
 *
 * The pid of a first process that has been reaped identifies nothing: it may be another's by now.
 * The agent, its ancestors, pid 1 and processes older than the command are never members. A member
 * stays a member for as long as the struct lives, whatever happens to its parents.
 *
 * The functions read all of /proc: call them on a pool thread. A struct command_tree is for one
 * thread at a time.
 */
#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

#include "common/err.h"
#include "common/process.h"

#define COMMAND_TREE_MAX_MEMBERS 65536

/*
 * The hard limits that carry the mark, with values far beyond any use of them. RLIMIT_RSS has had
 * no effect in Linux since 2.4.30 (getrlimit(2)); gVisor accepts it and refuses RLIMIT_RTTIME,
 * which real-time programs set.
 */
#define COMMAND_TREE_MARK_LIMITS \
    { \
        RLIMIT_RTTIME, RLIMIT_RSS \
    }

struct command_tree {
    pid_t leader;    /* the command's first process; also its session and process group */
    uint64_t start;  /* start time of the leader; 0: unknown. An older process is no member */
    bool has_leader; /* it had not been reaped when it was captured */
    int leader_fd;   /* with has_leader: a pidfd of it; -1: the kernel has no pidfds */
    rlim_t mark;
    struct proctable seen; /* the latest reading of /proc */
};
#define COMMAND_TREE_NONE ((struct command_tree){.leader_fd = -1})

/*
 * Makes a number that tells this agent from others in the box out of a random one. Without
 * CAP_SYS_RESOURCE hard limits can only be lowered: an agent inside another agent's command gets a
 * lower number than that agent.
 */
uint32_t command_tree_new_instance(uint32_t random);
/* serial: the command's. */
rlim_t command_tree_mark(uint32_t instance, uint32_t serial);
/* Does the process carry a mark of this instance? */
bool command_tree_find_serial(pid_t pid, uint32_t instance, uint32_t *ret_serial);

/*
 * Captures the tree of a child of the caller, without a search for members. leader: at least 2.
 * start: its start time; 0: unknown. If is_waited_for is false, no thread may reap the leader
 * before this returns.
 */
void command_tree_init(struct command_tree *t, pid_t leader, uint64_t start, bool is_waited_for,
                       rlim_t mark);
void command_tree_done(struct command_tree *t); /* leaves COMMAND_TREE_NONE */

/* Counts the members, without zombies. */
int command_tree_count(struct command_tree *t, size_t *ret, struct err *e);

/*
 * Sends sig and SIGCONT to each member: a stopped process must run to see the signal. Before a
 * signal that ends processes (TERM, INT, QUIT, HUP) the members are stopped, so that none forks a
 * process that misses it. *ret: how many got it.
 */
int command_tree_signal(struct command_tree *t, int sig, size_t *ret, struct err *e);

/*
 * Stops members until a reading of /proc shows no new one, kills all, and waits up to wait_ms for
 * them to exit. *ret_left: the members that are alive after that.
 */
int command_tree_kill(struct command_tree *t, int wait_ms, size_t *ret_left, struct err *e);
