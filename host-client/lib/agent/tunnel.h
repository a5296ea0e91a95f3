#pragma once
/* tunnel: request and reply of a raw connection to a TCP port in the box (GET /v1/tunnel/{port},
 * Upgrade: tcp). Pure functions: the caller reads and writes. client_tunnel() does both. */
#include <stddef.h>
#include <stdint.h>

#include "common/buf.h"
#include "common/err.h"

#define TUNNEL_HEAD_BYTES (16 * 1024)

int tunnel_request(uint16_t port, const char *token, struct buf *out, struct err *e);
/* Bytes of the reply's head with its empty line; 0: incomplete. */
size_t tunnel_head_bytes(const struct buf *answer);
/* Fails unless the head says 101. */
int tunnel_check(const struct buf *answer, struct err *e);
