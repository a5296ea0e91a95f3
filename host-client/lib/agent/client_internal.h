#pragma once
/* client_internal: struct client, for client.c, client_bytes.c and client_upload.c. */
#include <stdbool.h>
#include <stdint.h>

#include "common/wire/wire.h"
#include "lib/agent/client.h"

/*
 * Bounds of what an agent can make a program hold: a reply exists as text (half as much again while
 * it grows), as the parser's copy (twice) and as a value; a message of a stream may be relayed as
 * text and parsed again. With these, no answer makes a command of 12 MiB larger than 64 MiB.
 */
#define CLIENT_SMALL_BYTES (256 * 1024)
#define CLIENT_LARGE_BYTES (8 * 1024 * 1024) /* LARGE in rpc.def: 2,000 commands, 4 MiB of output */
#define CLIENT_LARGE_PARSED_BYTES (24 * 1024 * 1024)
#define CLIENT_LINE_BYTES (4 * 1024 * 1024) /* 64 KiB of output, or a match with 200 long lines */
#define CLIENT_LINE_PARSED_BYTES (12 * 1024 * 1024)

/* Not Authorization, which the API server of Kubernetes, among others, takes for its own. */
#define TOKEN_HEADER "X-Access-Token"
/* A path in the address would not survive the proxies that make one slash of two. */
#define FILES_ROUTE "/v1/files?path="
#define QUIET_HEADER WIRE_HEADER_QUIET ": 1"

struct client {
    struct http *http;
    char *socket;      /* or NULL */
    char *base;        /* "http://box" */
    char *auth;        /* "X-Access-Token: ...", or NULL */
    const char *quiet; /* QUIET_HEADER, unless auth is that */
    bool is_quiet;
    bool is_gateway; /* base is that of a box at a daemon */
    char *token;
    char *ca_file; /* or NULL */
    int cancel_fd;
    int (*check_peer)(void *arg, int fd, struct err *e);
    void *check_arg;
    int64_t answer_ms, work_ms, stall_ms;
};

/* Sends a request of the agent's API. A status other than 2xx becomes the agent's own error. */
int client_send(struct client *c, struct http_request *req, struct http_response *ret,
                struct err *e);
/* A route of the agent's at the client's base: the gateway has them without "/v1". */
const char *client_route(const struct client *c, const char *route);
/* route and path, percent-encoded, then the query (or NULL), as a URL; free() it. */
int client_new_url(struct client *c, const char *route, const char *path, const char *query,
                   char **ret, struct err *e);
/* Percent-encodes all but unreserved characters and, with keep_slash, '/'. */
int client_add_encoded(struct buf *b, const char *s, bool keep_slash, struct err *e);
