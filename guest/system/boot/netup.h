#pragma once
/* netup: the network of a machine, as its command line has it. Before there are threads; as root. */
#include "common/err.h"
#include "system/boot/cmdline.h"

#define NETUP_WAIT_MS 3000 /* for an interface that was asked for */

/* The loopback interface, an address, a route, and /etc/resolv.conf when a name server is known. */
int netup(const struct cmdline_net *n, struct err *e);
/* Sets it, and lets the box find itself by it. "": what /etc/hostname says, or else "bellhop". */
int netup_hostname(const char *name, struct err *e);
