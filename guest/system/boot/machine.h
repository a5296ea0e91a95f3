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

#define POWERBUTTON_MAX_DEVICES 8

struct loop;
struct powerbutton;

/*
 * Watches the power button of a machine (ACPI; QEMU's system_powerdown). For the loop's thread only. Succeeds
 * without a button too. on_press may be called many times.
 */
int powerbutton_new(struct loop *l, void (*on_press)(void *arg), void *arg,
                    struct powerbutton **ret, struct err *e);
struct powerbutton *powerbutton_free(struct powerbutton *b); /* accepts NULL; returns NULL */

/* ---- the steps of machine_start(), for boot/ alone. Before there are threads; as root ---- */

#define ROOTDISK_WAIT_MS 10000 /* for the device to appear */
#define NETUP_WAIT_MS 3000     /* for an interface that was asked for */

struct cmdline_net;

/*
 * Mounts the disk at /newroot of an initramfs. A writable ext4 is mounted directly and grown to the size of its
 * device; any other (squashfs, erofs, a read-only ext4) becomes the lower layer of an overlay whose changes go
 * to a tmpfs (*ret_is_in_memory).
 */
int rootdisk_mount(const char *device, bool *ret_is_in_memory, struct err *e);

/* Makes /newroot the root, and moves /proc, /sys and /dev there. */
int rootdisk_enter(struct err *e);

/* Sets up the loopback interface, an address, a route, and /etc/resolv.conf if a name server is known. */
int netup(const struct cmdline_net *n, struct err *e);
/* Sets the host name, and adds it to /etc/hosts. "": the name in /etc/hostname, else "bellhop". */
int netup_hostname(const char *name, struct err *e);
