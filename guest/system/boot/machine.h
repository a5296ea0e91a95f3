#pragma once
/*
 * machine: the first process of a virtual machine, from its exec by the kernel to the start of the agent, and
 * the power. Not for containers: there the runtime has mounted everything.
 *
 * As /init of an initramfs it loads /modules, mounts the root disk, makes it the root and continues there without
 * another exec; its program stays in memory, and is mounted over the box's own /usr/local/bin/bellhopd. As init
 * of a root that the kernel mounted itself it skips these steps.
 *
 * The token comes from QEMU's firmware configuration (-fw_cfg name=opt/org.bellhop/token,file=F):
 * everybody in the box can read the kernel's command line. It is read before anything else runs,
 * and the module that shows it is unloaded.
 */
#include <stdbool.h>

#include "common/err.h"

/* Whether this process is a machine's first, and machine_start() must be called. */
bool machine_is_starting(void);
/* *argv: "bellhopd", "--init", and the options found; never freed. Before there are threads. */
int machine_start(int *argc, char ***argv, struct err *e);

/*
 * The last step of a machine's first process: ends the remaining processes, syncs, makes the root read-only so that
 * the disk is clean, and turns the power off. Returns if this is no machine.
 */
void machine_power_off(void);
