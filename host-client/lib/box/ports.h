#pragma once
/* ports: loopback ports of this machine that lead into a box; its monitor forwards them. */
#include <stdint.h>

#include "common/err.h"
#include "lib/box/box.h"

/* Makes the port in the box (0: its guest agent) reachable, on the same port of this machine as
 * the last time. ret_host_port may be NULL. */
int ports_forward(struct bh_box *box, uint16_t port, uint16_t *ret_host_port, struct err *e);
