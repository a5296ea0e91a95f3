#pragma once
/*
 * relay: copies bytes between two sockets in both directions, with half-close. It runs in the loop, without
 * a thread, with at most two buffers of RELAY_BUFFER_BYTES. For tunnels, upgraded proxied connections and
 * forwarded ports.
 */
#include <stddef.h>

#include "common/err.h"

#define RELAY_BUFFER_BYTES (64 * 1024)
#define RELAY_MAX 1024

struct reply;
struct request;
struct server;

/*
 * A reply (101) that joins the client's connection with a peer's socket once it is upgraded. take_peer is then called,
 * at most once, while the request lives: it returns the socket, which it gives away, and the bytes that the peer has
 * sent already. NULL: out of memory.
 */
struct reply *relay_new_reply(struct request *q,
                              int (*take_peer)(void *arg, const char **ret_late,
                                               size_t *ret_late_len),
                              void *arg);

/*
 * Joins two sockets, and takes both; on the loop's thread. on_end is called once, after both are closed. The caller
 * bounds their number; they do not count against RELAY_MAX.
 */
void relay_join(struct server *s, int client_fd, int peer_fd, void (*on_end)(void *arg), void *arg);

/* Ends the relay of an upgraded request, soon. From any thread, by a holder of a reference. */
void relay_cut(struct request *q);
/* Ends all of them; on the loop's thread. */
void relay_end_all(struct server *s);
