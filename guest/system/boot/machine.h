#pragma once
/*
 * machine: the first process of a virtual machine, from the kernel's call to where the agent begins,
 * and its power. A container is none: its runtime has mounted what there is to be.
 *
 * As /init of an initramfs it loads /modules, mounts the root disk, makes it the root and goes on
 * there without another exec; its program stays in memory, and lies over the box's own
 * /usr/local/bin/bellhopd. As init of a root that the kernel mounted itself it begins after that.
 *
 * The token comes from QEMU's firmware configuration (-fw_cfg name=opt/org.bellhop/token,file=F):
 * everybody in the box can read the kernel's command line. It is read before anything else runs,
 * and the module that shows it is unloaded.
 */
#include <stdbool.h>

#include "common/err.h"

/* Is this process a machine's first, and has it yet to make the machine usable? */
bool machine_is_starting(void);
/* *argv: "bellhopd", "--init" and what follows, never freed. Before there are threads. */
int machine_start(int *argc, char ***argv, struct err *e);

/*
 * The last thing: in a machine of our own, ends who is left, writes back so that the disk is clean,
 * and turns the power off. Else returns.
 */
void machine_power_off(void);
