#pragma once
/*
 * cgroup_split: divides the cgroup that the agent is in (v2), if it belongs to the agent: one part
 * for the agent, one part for all commands. Whatever commands do (eat all memory, fork without
 * end), the agent keeps a share of processor, memory and process numbers to kill them. Each command
 * then has a group of its own below the second part.
 *
 * A group belongs to the agent if no other process is in it or below it, the agent may divide it,
 * and it was given to the agent: the whole hierarchy to the first process of a machine, a
 * container's own part, or the group of a service that its manager has delegated. Other groups are
 * left unchanged.
 */
#include "common/err.h"

/*
 * Call it before there are threads or commands. If it fails, nothing has changed: ERR_UNIMPLEMENTED
 * (the group does not belong to the agent) or the kernel's reason.
 */
int cgroup_split_set_up(struct err *e);

/*
 * Call it at the end, when no command is watched any more: moves the agent back and removes empty
 * groups, so that another agent can be started in the same group.
 */
void cgroup_split_undo(void);
