#pragma once
/*
 * forward: makes TCP ports that listen only on localhost in the box reachable at one more of the box's addresses
 * (--forward-localhost), as E2B's edge dials them at 169.254.0.21. Every FORWARD_SCAN_MS the agent reads the
 * listeners of /proc/net: a port on 127.0.0.1 or ::1 gets a listener at the address, which is closed when the
 * original one is gone. The loop relays the bytes, half-closes included. No token is asked for: the address decides
 * who may connect.
 *
 * All functions are called on the loop's thread, or before it runs.
 */
#include "common/err.h"

#define FORWARD_SCAN_MS 1000
#define FORWARD_MAX_PORTS 256
#define FORWARD_MAX_CONNECTIONS 512 /* on all ports: up to 64 MiB of buffers, 128 KiB each */

struct agent;
struct forward;

/* An IP address as text, and no wildcard, loopback or group: ERR_INVALID. */
int forward_check_address(const char *text, struct err *e);

/* The agent's server is there already. */
int forward_new(struct agent *a, const char *address, struct forward **ret, struct err *e);
int forward_start(struct forward *f, struct err *e);
/* No new connections; those that there are go on. Accepts NULL. */
void forward_quiesce(struct forward *f);
/* After it, when no worker and nothing posted is left, and its relays have ended. Returns NULL. */
struct forward *forward_free(struct forward *f);
