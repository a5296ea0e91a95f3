#pragma once
/*
 * dial: connects to a port: to one address, or to 127.0.0.1, then ::1. Non-blocking; for the loop's
 * thread only.
 */
#include <stdint.h>

#include "common/err.h"

#define DIAL_TIMEOUT_MS 5000

struct dial;
struct loop;

/* fd: connected, non-blocking, owned by the callee; or -1 with the error. Never called by dial_new(). */
typedef void (*dial_fn)(void *arg, int fd, const struct err *error);

/* host: an IP address as text; NULL: the loopbacks. */
int dial_new(struct loop *l, const char *host, uint16_t port, dial_fn fn, void *arg,
             struct dial **ret, struct err *e);
/* Checks that `host` is an IP address; the error names the field "host". */
int dial_check_host(const char *host, struct err *e);
struct dial *dial_free(struct dial *d); /* only before fn was called; accepts NULL; returns NULL */

/* Parses "8080", "8080/rest" or "8080?query"; *ret_end: after the port. Errors name the field "port". */
int dial_parse_port(const char *text, uint16_t *ret, const char **ret_end, struct err *e);
