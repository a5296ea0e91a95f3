#pragma once
/*
 * origin: keeps web pages from an agent without a token. A browser on the same machine, or on the
 * same network, reaches the agent on behalf of every page that it shows; nothing else but these
 * checks would tell such a request from the user's own.
 *
 * - Host: by DNS rebinding a page turns a name of its own into the agent's address, and is then of
 *   the agent's own origin for its browser. So the host must be an address, "localhost" or a name
 *   that --allow-host gives. A unix socket, which no browser reaches, takes any host.
 * - Origin and Sec-Fetch-Site: pages of other origins, other ports of this machine included, are
 *   refused, unless the service's check_page lets them.
 *
 * Programs that are no browsers send neither of the latter two.
 */
#include <stdbool.h>

#include "common/err.h"

struct request;

/* -ERR_DENIED: a web page may have sent this. Asked only while the agent has no token. */
int origin_check(struct request *q, struct err *e);

/* A value of --allow-host: a host name, or ".NAME" for it and every name below. -ERR_INVALID. */
int origin_check_name(const char *name, struct err *e);

/* Of a Host header: with or without a port. names: NULL-terminated, or NULL. Pure. */
bool origin_host_is_allowed(const char *host, char *const *names);
/* Whether an Origin header is of the site that the Host header names. Pure. */
bool origin_is_own(const char *origin, const char *host);
