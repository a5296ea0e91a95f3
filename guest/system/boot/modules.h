#pragma once
/* modules: the kernel's modules that an initramfs brought along. Before there are threads. */
#include "common/err.h"

#define MODULES_MAX_BYTES (64 * 1024) /* of the list */

/*
 * Loads the files that DIR/order names, in that order, and removes each: they lie in memory. One
 * that the kernel does not take (it has it built in, the machine has no such device) is logged; what
 * needed it says so later. No DIR/order: nothing to do.
 */
int modules_load(const char *dir, struct err *e);
void modules_unload(const char *name);
