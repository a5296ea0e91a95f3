#pragma once
/*
 * cgbox: two control groups where the group that the agent is in (v2) is its own: one for the agent, one
 * for everything that commands start. Whatever they do (eat all memory, fork without end), the agent
 * has a share of processor, memory and process numbers left to end them with. Each command has a group
 * of its own below the second then.
 *
 * A group is the agent's own when nobody else is in it or below it, the agent may divide it, and it was
 * given to the agent: the whole hierarchy to the first process of a machine, a container's own
 * part, a service's that its manager has delegated. What is not is left as it is.
 */
#include "common/err.h"

/*
 * Before there are threads or commands. ERR_UNIMPLEMENTED, or the kernel's reason: this box has no such
 * group. Nothing has changed then.
 */
int cgroup_split_set_up(struct err *e);

/*
 * At the end, when no command is watched any more: the agent goes back to where it was and what is empty
 * is removed, so that another can be started in the same group.
 */
void cgroup_split_undo(void);
