#pragma once
/* netup: sets up the network of a machine from its command line. Before there are threads; as root. */
#include "common/err.h"
#include "system/boot/cmdline.h"

#define NETUP_WAIT_MS 3000 /* for an interface that was asked for */

/* Sets up the loopback interface, an address, a route, and /etc/resolv.conf if a name server is known. */
int netup(const struct cmdline_net *n, struct err *e);
/* Sets the host name, and adds it to /etc/hosts. "": the name in /etc/hostname, else "bellhop". */
int netup_hostname(const char *name, struct err *e);
