#pragma once
/*
 * holdsock: a unix socket on which every process of the box may take and release holds, without the token and
 * without access to anything else. One line in, one line out:
 *
 *     take MS ID REASON...    for MS milliseconds; the same id renews. ID "-": one is generated
 *     bind MS ID REASON...    while the connection is open, for at most MS milliseconds (0: no bound)
 *     release ID
 *  -> ok ID   or   error SENTENCE
 *
 * The peer's identity comes from the kernel (SO_PEERCRED). The number of connections and the time to send the line
 * are bounded. For the loop's thread only, except holdsock_new(), which is called before it runs.
 */
#include <stdbool.h>

#include "common/err.h"

#define HOLDSOCK_PATH "/run/bellhop-hold.sock"
#define HOLDSOCK_PATH_STRICT "/run/bellhop/hold.sock" /* where the agent can't write to /run */
#define HOLDSOCK_MAX_CONNECTIONS 256
#define HOLDSOCK_LINE_BYTES 512
#define HOLDSOCK_LINE_MS 5000 /* deadline of the line */

struct holds;
struct holdsock;
struct loop;

int holdsock_new(struct loop *l, struct holds *h, const char *path, struct holdsock **ret,
                 struct err *e);
/* Removes the socket's file. Only after the loop has ended; accepts NULL; returns NULL. */
struct holdsock *holdsock_free(struct holdsock *s);
