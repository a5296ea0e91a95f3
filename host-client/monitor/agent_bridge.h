#pragma once
/*
 * agent_bridge: serves <dir>/run/agent.sock for a box whose guest agent cannot listen there, because the box is not on
 * this machine or does not see its files (provider.dial). Each connection is passed on to a connection of its own to the
 * agent, by a thread. Up to BRIDGE_MAX_CONNECTIONS; more wait in the kernel's backlog.
 */
#include "common/err.h"
#include "lib/box/box.h"

#define BRIDGE_MAX_CONNECTIONS 1024 /* as the agent takes */
#define BRIDGE_DIAL_MS 30000

struct bridge;

/* NULL in *ret: the provider has no dial(). The socket is ready when this returns. */
int bridge_new(struct bh_box *box, struct bridge **ret, struct err *e);
/* Puts the reason of the last connection that was not made in the place of an error. b may be NULL; returns the code. */
int bridge_explain(struct bridge *b, int r, struct err *e);
/* Ends every connection. Accepts NULL; returns NULL. */
struct bridge *bridge_free(struct bridge *b);
