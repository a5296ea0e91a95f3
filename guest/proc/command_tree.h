#pragma once
/*
 * tree: a command and everything it started, found without a cgroup. A process is a member
 *
 *   by its mark: the command's first process gets a limit of its own value, which children inherit and
 *   neither setsid, a double fork nor an empty environment sheds;
 *   by its session: it is in the one that the first process leads, while that process is there;
 *   by its parents: an unbroken chain of them leads to a member.
 *
 * The number of a first process that has been waited for means nothing: it may be another's by now. Never
 * members are the agent, its ancestors, pid 1, and a process that is older than the command. A member stays
 * one for as long as the struct command_tree lives, whatever becomes of its parents.
 *
 * The functions read all of /proc: call them on a pool thread. A struct command_tree is for one thread at a time.
 */
#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

#include "common/err.h"
#include "common/proctable.h"

#define COMMAND_TREE_MAX_MEMBERS 65536

/*
 * The limits that carry the mark, as hard limits: values far beyond any use of them. RLIMIT_RSS has no effect in
 * Linux since 2.4.30 (getrlimit(2)); gVisor takes it and refuses the other, which real-time programs set.
 */
#define COMMAND_TREE_MARK_LIMITS \
    { \
        RLIMIT_RTTIME, RLIMIT_RSS \
    }

struct command_tree {
    pid_t leader;    /* the command's first process; also its session and process group */
    uint64_t start;  /* of the leader; 0: unknown. An older process is no member */
    bool has_leader; /* it had not been waited for when it was captured */
    int leader_fd;   /* with has_leader, a pidfd of it; -1: there is none to be had */
    rlim_t mark;
    struct proctable seen; /* the latest look */
};
#define COMMAND_TREE_NONE ((struct command_tree){.leader_fd = -1})

/*
 * A number that tells this agent from others in the box, out of a random one. Without CAP_SYS_RESOURCE limits
 * can be lowered only: in an agent that is part of another agent's command it is below that one's.
 */
uint32_t command_tree_new_instance(uint32_t random);
/* serial: of the command. */
rlim_t command_tree_mark(uint32_t instance, uint32_t serial);
/* Does the process carry a mark of this instance? */
bool command_tree_find_serial(pid_t pid, uint32_t instance, uint32_t *ret_serial);

/*
 * Captures the tree of a child of the caller's. leader: at least 2. start: its start time; 0: unknown.
 * is_waited_for: if false, nobody may wait for the leader before this returns. Does not look for members.
 */
void command_tree_init(struct command_tree *t, pid_t leader, uint64_t start, bool is_waited_for,
                       rlim_t mark);
void command_tree_done(struct command_tree *t); /* leaves COMMAND_TREE_NONE */

/* How many members are there (zombies do not count). */
int command_tree_count(struct command_tree *t, size_t *ret, struct err *e);

/*
 * Sends sig to each member, and SIGCONT, so that a stopped one sees it. For a signal that ends (TERM,
 * INT, QUIT, HUP) they are stopped before, so that none forks a process that does not get it. *ret: how
 * many got it.
 */
int command_tree_signal(struct command_tree *t, int sig, size_t *ret, struct err *e);

/*
 * Stops members until a whole look at /proc shows no new one, then kills all, then waits up to
 * wait_ms for them to go. *ret_left: how many are alive after that.
 */
int command_tree_kill(struct command_tree *t, int wait_ms, size_t *ret_left, struct err *e);
