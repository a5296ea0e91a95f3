#pragma once
/*
 * access: who sends a request, and what they may do. The unix socket takes its owner and root, who may do everything.
 * TCP takes tokens (lib/box/store_access.h); ports and files of boxes also signatures (lib/box/signature.h).
 *
 * The tokens are kept in memory, by their hashes: a thread that serves sockets never reads the store. They are read
 * again when the store's files change, so a token that a command has revoked ends within moments.
 */
#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"
#include "lib/box/store_access.h"

struct access;
struct daemon;
struct request;

/* Before a token in Sec-WebSocket-Protocol: of browsers, whose WebSockets have no headers. */
#define ACCESS_SUBPROTOCOL "bellhop.token."

/* Flags of routes, beside those of http/route.h. */
#define ROUTE_SIGNED \
    (1u << 16) /* a request without a token reaches the handler, which calls access_check_*() */
#define ROUTE_OWNED (1u << 17) /* its handler shows a token of an owner nothing of others */

/* Reads the tokens and the key of signatures. Blocks. */
int access_new(struct daemon *d, struct access **ret, struct err *e);
struct access *access_free(struct access *a); /* accepts NULL; returns NULL */
/* The store may have changed: reads the tokens again. Blocks; from any thread. */
int access_read(struct access *a, struct err *e);

/* The sender of a request. */
struct principal {
    bool is_local;  /* by the unix socket */
    bool is_nobody; /* no token: access_check_*() decide */
    enum token_scope scope;
    char token[BOX_ID_BYTES];      /* the token's id, or "" */
    char name[ACCESS_NAME_BYTES];  /* of the token, or "" */
    char owner[ACCESS_NAME_BYTES]; /* "": of all boxes */
};

/*
 * For the gate: finds out who sends the request and whether its route's scope allows that. A route whose path does not
 * begin with a box, and that is not ROUTE_OWNED, is closed to tokens of an owner.
 */
int access_authorize(struct request *q, struct err *e);
/*
 * For the begin of a route whose reply may go on for long, once q->state is set: ops->revoke of the request is called
 * when its token is revoked or has expired. ERR_UNAUTHENTICATED: it is so already. More calls do nothing.
 */
int access_watch(struct request *q, struct err *e);
void access_unwatch(const struct request *q); /* the request is over */
/* Whether the token has ended; e: why. */
bool access_has_ended(const struct request *q, struct err *e);
void access_sweep(struct access *a); /* every second: tokens expire */
/* Of a request that has passed the gate, as long as the request; NULL on an open route. */
const struct principal *access_principal(const struct request *q);
bool access_is_of_socket(const struct request *q); /* the unix socket, which no browser reaches */
bool access_is_admin(const struct request *q);
/* The author of events and of the audit record: "daemon", "token NAME", "token ID", "signature". */
void access_actor(const struct request *q, char *out, size_t n);
/* The same for events of boxes: a command on the unix socket says which one it is, as without a daemon.
 * For the connection's thread: elsewhere the client's headers may be gone. */
void access_actor_of_events(struct request *q, char *out, size_t n);

/* May the sender see a box of this owner ("": of nobody)? Else the box is to be ERR_NOT_FOUND. */
bool access_sees_owner(const struct request *q, const char *owner);

/*
 * On a route with ROUTE_SIGNED: may the sender reach this port of the box? By a token, by a signature in the query or
 * in a cookie, or because the port is open. file: path is absolute; a signature is for GET and HEAD.
 * ERR_UNAUTHENTICATED: no; ERR_NOT_FOUND: the box is of another owner. Do not block.
 */
int access_check_port(struct request *q, const char *box_id, const char *owner, uint16_t port,
                      struct err *e);
int access_check_file(struct request *q, const char *box_id, const char *owner, const char *path,
                      struct err *e);
