#pragma once
/* tunnel: the words that open a raw connection to a TCP port in the box (GET /v1/tunnel/{port},
 * Upgrade: tcp). Pure functions: the caller does the reading and writing. */
#include <stddef.h>
#include <stdint.h>

#include "common/buf.h"
#include "common/err.h"

#define TUNNEL_HEAD_BYTES (16 * 1024)

int tunnel_request(uint16_t port, const char *token, struct buf *out, struct err *e);
/* How many bytes the answer's head has with its empty line; 0: it is not there yet. */
size_t tunnel_head_bytes(const struct buf *answer);
/* 0 when the head says 101, else what the agent said went wrong. */
int tunnel_check(const struct buf *answer, struct err *e);
