#pragma once
/*
 * server: an HTTP server: sockets of ours, connections served by libmicrohttpd's threads,
 * a watch on those that are suspended. Made, started and stopped by main on the loop's thread.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"

#define SERVER_THREADS 2
#define SERVER_MAX_CONNECTIONS 1024
#define SERVER_RESERVE 64             /* connections beyond, on which ROUTE_RESERVE alone answers */
#define SERVER_POOL_BYTES (24 * 1024) /* per connection: headers, and pieces of up to half of it */
#define SERVER_IDLE_MS 120000         /* a connection without a request */
#define SERVER_KEEPALIVE_MS 10000     /* of silence in a stream, then a sign of life is sent */
#define SERVER_MAX_LISTENERS 16
#define SERVER_BODY_BUDGET (256ull * 1024 * 1024) /* of all bodies kept in memory */

struct http_service;
struct loop;
struct pool;
struct server;

struct server_options {
    const struct http_service *service;
    void *owner;       /* the service's context: request_owner() */
    struct loop *loop; /* accepts, sweeps, relays */
    struct pool *pool; /* for what blocks */
    unsigned max_connections;
    unsigned keepalive_ms;
    char *const *allow_hosts; /* while it is open (origin.h): names it answers to; or NULL */
};

int server_new(const struct server_options *o, struct server **ret, struct err *e);
/* "127.0.0.1:0", "[::1]:8080", "0.0.0.0:80", ":80". On the loop's thread or before it runs. */
int server_listen_tcp(struct server *s, const char *addr, struct err *e);
int server_listen_unix(struct server *s, const char *path, struct err *e);
/* Begins to accept. */
int server_start(struct server *s, struct err *e);
/* No new connections or requests; what runs goes on. */
void server_quiesce(struct server *s);
bool server_is_idle(struct server *s); /* no request runs */
/* Closes the connections without a request: after a restore their clients are elsewhere. How many. */
unsigned server_drop_idle(struct server *s);
/*
 * Ends what runs, waiting at most wait_ms for it. The loop need not run any more. False: a request is
 * still at work, and nothing that it may use can be freed.
 */
bool server_stop(struct server *s, int wait_ms);
struct server *server_free(struct server *s); /* stopped; accepts NULL; returns NULL */

/* The addresses that server_listen_tcp() got, for the ready line: i-th, or NULL. */
const char *server_tcp_address(const struct server *s, size_t i);
const char *server_unix_path(const struct server *s, size_t i);

unsigned server_n_conns(struct server *s);
unsigned server_n_relays(const struct server *s); /* of tunnels and upgraded requests */
struct loop *server_loop(const struct server *s);

/* ERR_INVALID for field "port" when a connection to this port of the machine would reach the server itself. */
int server_check_port(const struct server *s, uint16_t port, struct err *e);

/* The HTTP library's version. */
const char *server_library(void);
