#pragma once
/*
 * holdsock: a unix socket on which every process of the box may take and release holds, without
 * the token and with no way to anything else. One line in, one line out:
 *
 *     take MS ID REASON...    for so long; the same id renews. ID "-": one is made
 *     bind MS ID REASON...    as long as the connection is open, and no longer (MS 0: no bound)
 *     release ID
 *  -> ok ID   or   error SENTENCE
 *
 * Who asks is read from the kernel (SO_PEERCRED). Connections and the time to say the line are
 * bounded. Everything on the loop's thread, but for holdsock_new() before it runs.
 */
#include <stdbool.h>

#include "common/err.h"

#define HOLDSOCK_PATH "/run/bellhop-hold.sock"
#define HOLDSOCK_PATH_STRICT "/run/bellhop/hold.sock" /* where /run is not the agent's to write */
#define HOLDSOCK_MAX_CONNECTIONS 256
#define HOLDSOCK_LINE_BYTES 512
#define HOLDSOCK_LINE_MS 5000 /* to say the line */

struct holds;
struct holdsock;
struct loop;

int holdsock_new(struct loop *l, struct holds *h, const char *path, struct holdsock **ret,
                 struct err *e);
/* Removes the socket's file. After the loop has ended; accepts NULL; returns NULL. */
struct holdsock *holdsock_free(struct holdsock *s);
