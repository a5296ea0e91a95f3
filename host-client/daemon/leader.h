#pragma once
/*
 * leader: `bellhop daemon --lease`. The first process of a container waits for a Lease of its cluster, and runs the daemon
 * as a child while it holds the Lease. Everything that may write to the store is a process of this container, and has
 * ended before the Lease can be another's: at the deadline of a renewal all of them are killed.
 */
#include "common/err.h"
#include "daemon/options.h"

/*
 * argv: of this program; the child's is the same without the Lease. Returns the exit status once all has ended, or an error
 * before anything has begun: ERR_PRECONDITION if this is not the first process of a container.
 */
int leader_run(const struct daemon_options *o, char **argv, struct err *e);
