#pragma once
/*
 * gate: the checks of every request, when its headers are there and before its body is read. On failure
 * *ret_status is the HTTP status if it differs from that of the error's code.
 */
#include <stdbool.h>

#include "common/err.h"
#include "http/request.h"

/* Finds the route, and fills verb, path, query, rest, declared and the rest of the request. */
int gate_check(struct request *q, const char *verb, const char *version, int *ret_status,
               struct err *e);

/* Sets the error for a body that exceeds the route's bound. */
int gate_too_large(const struct request *q, struct err *e);

/*
 * Web pages are kept from a server without a token. A browser on the same machine or network sends requests for every
 * page that it shows; only these checks tell them from requests of the user.
 *
 * - Host: DNS rebinding gives a page's own name the server's address, so that the browser takes the
 *   server for the page's origin. So the host must be an address, "localhost" or a name that
 *   --allow-host gives. A unix socket, which no browser reaches, takes any host.
 * - Origin and Sec-Fetch-Site: pages of other origins, including other ports of this machine, are
 *   refused, unless the service's check_page lets them pass.
 *
 * Programs other than browsers do not send Origin and Sec-Fetch-Site.
 */

/* A value of --allow-host: a host name, or ".NAME" for it and every name below. -ERR_INVALID. */
int origin_check_name(const char *name, struct err *e);
/* host: of a Host header, with or without a port. names: NULL-terminated, or NULL. Pure. */
bool origin_host_is_allowed(const char *host, char *const *names);
/* Whether an Origin header names the same site as the Host header. Pure. */
bool origin_is_own(const char *origin, const char *host);
