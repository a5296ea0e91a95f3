#pragma once
/*
 * daemon_client: calls of a daemon's REST API over its unix socket or TCP. Its answers are hostile
 * input: bounded in size and in memory, and each caller decodes them by a field table. The daemon's
 * errors are passed on unchanged: code, field, message. A unix socket takes no libcurl. One thread at
 * a time.
 */
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"
#include "lib/util/debug.h"

struct daemon_client;

struct daemon_client_options {
    const char *url;     /* "unix:PATH", "http://HOST:PORT" or "https://HOST:PORT" */
    const char *token;   /* or NULL */
    const char *ca_file; /* certificates that https trusts, in PEM; NULL: the system's */
    const char *actor; /* of the events that its calls cause, for a unix socket's daemon; or NULL */
    int cancel_fd;     /* -1: none */
    const struct debug *debug;
};

/* Checks the options and connects to nothing yet. ERR_INVALID names the field "daemon" or
 * "daemon-ca". */
int daemon_client_new(const struct daemon_client_options *o, struct daemon_client **ret,
                      struct err *e);
struct daemon_client *daemon_client_free(struct daemon_client *d); /* accepts NULL; returns NULL */

/* For other connections to the same daemon. Borrowed. */
const char *daemon_client_base(const struct daemon_client *d);   /* "http://HOST:PORT" */
const char *daemon_client_socket(const struct daemon_client *d); /* or NULL */
const char *daemon_client_token(const struct daemon_client *d);  /* or NULL */
const char *daemon_client_ca(const struct daemon_client *d);     /* or NULL */
/* Of a connection to the unix socket: refuses a listener that is neither this user's nor root's. */
int daemon_client_check_peer(void *arg, int fd, struct err *e);

/*
 * Sends `body` (or NULL) and waits for the answer. path: with its query, percent-encoded. *ret is
 * NULL for an answer without a body; ret may be NULL.
 */
int daemon_client_call(struct daemon_client *d, const char *method, const char *path,
                       const json_t *body, int64_t timeout_ms, json_t **ret, struct err *e);
int daemon_client_status(const struct daemon_client *d); /* of the last answer; 0: none */
/* Did the last call get no connection, so that nothing was sent? Of a unix socket alone. */
bool daemon_client_is_unconnected(const struct daemon_client *d);
/*
 * Is this the daemon of a unix socket that says it is `instance` (daemon_lock.h)? The connection stays for the calls.
 * ERR_DEADLINE: it did not answer in time. ERR_NOT_FOUND: another daemon answers there.
 */
int daemon_client_greet(struct daemon_client *d, const char *instance, int64_t timeout_ms,
                        struct err *e);
/* A part of a path, percent-encoded; free() it. NULL: out of memory. */
char *daemon_client_encode(const char *part);
