#pragma once
/*
 * gateway: requests that are passed through to the guest agent of a box, byte for byte and without buffering: its files,
 * uploads, archives, methods and tunnels (the rows of routes.def with a guest_path), and HTTP to any port of any box:
 *
 *   by path    /v1/boxes/{box}/proxy/{port}/...
 *   by host    PORT-BOX.localhost, and PORT-BOX.DOMAIN for the domain that --domain gives
 *   by header  Bellhop-Box: BOX and Bellhop-Port: PORT
 *
 * The box is woken first. Its token is added here, and the daemon's own is taken off.
 */
#include <stddef.h>

#include "daemon/routes.h"

extern const struct request_ops gateway_ops;

/* The row for a request that its host or its headers lead to a port of a box; NULL: they do not. */
const struct api_route *gateway_by_name(struct request *q);
/* With ?list=true a directory's files are listed: the row for that, or `row`. */
const struct api_route *gateway_refine(const struct request *q, const struct api_route *row);
