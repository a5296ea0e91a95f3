#pragma once
/*
 * proxy: relays one HTTP/1.1 request to another server, and its reply back, without buffering either. A request to
 * upgrade (WebSocket) is passed on; after the 101 the two sockets are joined. The handler of a route makes the struct
 * in begin, and passes its body, finish and done on.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"
#include "http/request.h"

#define PROXY_ANSWER_MS (10 * 60 * 1000) /* from the end of the request to the head of the reply */
#define PROXY_WHAT_BYTES 80

struct proxy;

/* Everything is copied, unless it says otherwise. */
struct proxy_target {
    int fd;           /* connected; -1: `port` of this machine's loopback is dialed */
    uint16_t port;    /* the field "port" of errors; 0: none */
    const char *what; /* names the server in messages: "port 80 in the box" */
    const char *path; /* the raw request target for the server, with the query */
    const char *host; /* its Host header */
    const char
        *prefix; /* X-Forwarded-Prefix: the path below which the client sees the server; or NULL */
    bool is_own; /* an agent of ours: its X-Forwarded-For has the proxies before us alone */
    const char *headers; /* lines for the request's head, each with its line end; or NULL */
    int64_t answer_ms;   /* 0: PROXY_ANSWER_MS */
    const char
        *reply_name; /* a header that the reply gets besides the server's; or NULL. Both static */
    const char *reply_value;
    /* Whether a header of the client stays here, besides those that every proxy drops. NULL: none. */
    bool (*drops)(void *arg, const char *name, const char *value);
    /* The same for a header of the reply. */
    bool (*drops_reply)(const char *name);
    void *arg; /* used by proxy_new_take() only */
};

/* Takes target->fd in any case. */
int proxy_new_take(struct request *q, const struct proxy_target *target, struct proxy **ret,
                   struct err *e);
/* As request_ops has them. */
int proxy_body(struct proxy *p, const char *data, size_t *len, struct err *e);
int proxy_finish(struct proxy *p, struct err *e);
/* The request is over. Accepts NULL; returns NULL. */
struct proxy *proxy_leave(struct proxy *p);
