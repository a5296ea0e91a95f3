#pragma once
/* modules: loads the kernel modules of an initramfs. Before there are threads. */
#include "common/err.h"

#define MODULES_MAX_BYTES (64 * 1024) /* of the list */

/*
 * Loads the files that DIR/order names, in that order, and removes each, to free its memory. A module that the
 * kernel refuses (it is built in, the machine has no such device) is logged; the step that needs it fails
 * later. No DIR/order: nothing to do.
 */
int modules_load(const char *dir, struct err *e);
void modules_unload(const char *name);
