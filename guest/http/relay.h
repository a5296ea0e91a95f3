#pragma once
/*
 * relay: two sockets joined byte for byte, both directions with half-close, in the loop, no
 * thread and at most two buffers of RELAY_BUFFER_BYTES each. For tunnels, upgraded proxied
 * connections and forwarded ports.
 */
#include <microhttpd.h>
#include <stddef.h>

#include "common/err.h"

#define RELAY_BUFFER_BYTES (64 * 1024)
#define RELAY_MAX 1024

struct server;

/*
 * Joins an upgraded connection's socket (through urh, closed at the end) and peer_fd (taken in any
 * case). `early`: what the client sent already; `late`: what the peer did. From any thread; on
 * failure the connection is closed too.
 */
void relay_begin(struct server *s, struct MHD_UpgradeResponseHandle *urh, int client_fd,
                 int peer_fd, const char *early, size_t early_len, const char *late,
                 size_t late_len);

/*
 * The same for two sockets of ours, both taken; on the loop's thread. on_end is called once, after both are
 * closed. These are bounded by whoever joins them, and do not count as RELAY_MAX does.
 */
void relay_join(struct server *s, int client_fd, int peer_fd, void (*on_end)(void *arg), void *arg);

/* The loop's thread: end all. */
void relay_end_all(struct server *s);
