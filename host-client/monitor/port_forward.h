#pragma once
/*
 * port_forward: ports of 127.0.0.1 on this machine that lead into the box. Each connection becomes
 * a tunnel through the guest agent (or, for port 0, a connection to the agent itself), with
 * bounded buffers and half-close in both directions. For the monitor's loop only.
 */
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"
#include "lib/agent/client.h"

struct forwards;

int forwards_new(const struct client_options *agent, struct forwards **ret, struct err *e);
struct forwards *forwards_free(struct forwards *f);

/* Listens on host_port (0: any free one) for the box's port; an existing forward stays. */
int forwards_add(struct forwards *f, uint16_t port, uint16_t host_port, uint16_t *ret_host_port,
                 struct err *e);
unsigned forwards_n_connections(const struct forwards *f);

/*
 * While the box is paused, nothing is accepted, read or written, and connections wait. Does one of
 * them want the box to run? A new client, one whose tunnel is not open yet, or one with bytes for
 * the box. A client that has hung up does not.
 */
bool forwards_want_box(const struct forwards *f);
/* Closes the connections that want the box. */
void forwards_refuse(struct forwards *f);

/* Fill the array to poll, then act on the result. */
size_t forwards_poll(struct forwards *f, bool is_paused, struct pollfd *out, size_t max);
void forwards_act(struct forwards *f, bool is_paused, const struct pollfd *polled, size_t n);
