#pragma once
/* commands: the monitor's control socket (lib/box/control.h has the protocol). For the loop's
 * thread only. */
#include <poll.h>

#include "common/err.h"

struct commands;
struct monitor;

int commands_new(struct monitor *m, const char *path, struct commands **ret, struct err *e);
struct commands *commands_free(struct commands *c); /* removes the socket */
unsigned commands_n_holds(const struct commands *c);

size_t commands_poll(struct commands *c, struct pollfd *out, size_t max);
void commands_act(struct commands *c, const struct pollfd *polled, size_t n);
