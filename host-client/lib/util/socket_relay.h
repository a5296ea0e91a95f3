#pragma once
/*
 * socket_relay: joins two connected sockets and passes bytes both ways until both directions have ended. A half-close of one
 * side reaches the other. Each direction may have a filter, for a peer that frames its bytes. Bounded: RELAY_BYTES
 * for each direction and stage, and RELAY_LINGER_MS without a byte once one side has hung up.
 */
#include <stdbool.h>

#include "common/buf.h"
#include "common/err.h"

#define RELAY_BYTES (128 * 1024)
#define RELAY_LINGER_MS (5 * 60 * 1000) /* a person may read the end of an answer slowly */

/*
 * Moves bytes of `in` to `out`, and consumes what it has read; `out` has room for RELAY_BYTES more. is_eof: the source
 * has ended, and `in` has its last bytes. A negative result ends the relay; 1: the source has ended by its own word.
 */
typedef int (*relay_filter)(void *arg, struct buf *in, struct buf *out, bool is_eof);

struct socket_relay {
    int left, right;       /* owned: socket_relay_run() closes both */
    relay_filter to_right; /* or NULL */
    relay_filter to_left;
    /* Or NULL: while it is true, to_right is called without input, too: it has something to answer. */
    const bool *has_answer;
    bool keeps_right; /* to_right has told the end by itself: `right` is not shut down */
    void *arg;
    void (*done)(void *arg); /* called once at the end, with the descriptors closed; or NULL */
    int stop_fd;             /* readable: the relay ends; -1: none. Borrowed */
    int linger_ms;           /* 0: RELAY_LINGER_MS */
};

void socket_relay_run(struct socket_relay *r);
/* The same in a detached thread. On failure everything is closed and done() was called. */
int socket_relay_start(const struct socket_relay *r, struct err *e);
