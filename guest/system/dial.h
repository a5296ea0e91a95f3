#pragma once
/*
 * dial: a connection to a port in the box: to one address, or to 127.0.0.1, then ::1. Without
 * waiting; everything on the loop's thread.
 */
#include <stdint.h>

#include "common/err.h"

#define DIAL_TIMEOUT_MS 5000

struct dial;
struct loop;

/* fd: connected, non-blocking, the callee's; or -1 with the error. Never called by dial_new(). */
typedef void (*dial_fn)(void *arg, int fd, const struct err *error);

/* host: an IP address as text; NULL: the loopbacks. */
int dial_new(struct loop *l, const char *host, uint16_t port, dial_fn fn, void *arg,
             struct dial **ret, struct err *e);
/* Whether `host` can be one; the error names the field "host". */
int dial_check_host(const char *host, struct err *e);
struct dial *dial_free(struct dial *d); /* before fn was called; accepts NULL; returns NULL */

/* "8080", "8080/rest" or "8080?query" -> the port, and where it ends. Errors name field "port". */
int dial_parse_port(const char *text, uint16_t *ret, const char **ret_end, struct err *e);
