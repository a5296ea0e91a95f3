#pragma once
/*
 * server: an HTTP server: sockets of ours, connections served by libmicrohttpd's threads,
 * a watch on those that are suspended. Made, started and stopped by main on the loop's thread. The program describes
 * itself by struct http_service.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"
#include "http/route.h"

#define SERVER_THREADS 2
#define SERVER_MAX_CONNECTIONS 1024
#define SERVER_RESERVE 64             /* connections beyond, on which ROUTE_RESERVE alone answers */
#define SERVER_POOL_BYTES (24 * 1024) /* per connection: headers, and pieces of up to half of it */
#define SERVER_IDLE_MS 120000         /* a connection without a request */
#define SERVER_KEEPALIVE_MS 10000     /* of silence in a stream, then a sign of life is sent */
#define SERVER_MAX_LISTENERS 16
#define SERVER_BODY_BUDGET (256ull * 1024 * 1024) /* of all bodies kept in memory */

struct loop;
struct pool;
struct reply;
struct request;
struct server;

/* The error as it is sent. */
struct error_reply {
    int status; /* set before the call; the service may change it */
    char *text; /* owned */
    size_t len;
    const char *type;
    const char *challenge; /* the WWW-Authenticate header of a 401; NULL: none */
};

/*
 * The callbacks of the program that serves: routes, access, error bodies, metrics. guest/http knows nothing else of
 * the program. request_owner() returns its context. Static. All but find_route, is_open, authorize and write_error may be NULL.
 * They are called on the threads of connections, write_error also on the loop's; none may block.
 */
struct http_service {
    /* path: raw, without the query. q->verb is set, q->route is not yet. */
    void (*find_route)(struct request *q, const char *path, size_t len, struct route_match *ret);
    /* True if no token is set: then the checks of gate.h keep web pages out. */
    bool (*is_open)(struct request *q);
    /* The service is open, and the header `header` shows that a web page sent the request. 0: let it pass. */
    int (*check_page)(struct request *q, const char *header, struct err *e);
    /* Checks token and policy. Called for every route, including those with ROUTE_OPEN. */
    int (*authorize)(struct request *q, struct err *e);
    /* The request has passed the gate. Sets q->is_use. */
    void (*admitted)(struct request *q);
    /* q->route is NULL if the request was refused before its route was found. */
    int (*write_error)(const struct request *q, const struct err *error, struct error_reply *ret,
                       struct err *e);
    /* Adds headers to each reply of respond_queue(). */
    void (*add_headers)(struct request *q, struct reply *response);
    /* The request is over; q->status 0: it was cut off before a reply. */
    void (*done)(const struct request *q, int64_t took_ms);
    void (*connection_refused)(void *owner);
    void (*relayed)(void *owner, uint64_t bytes_in, uint64_t bytes_out);
    /* The loop's thread, every second. */
    void (*sweep)(void *owner, int64_t now_ms);
};

struct server_options {
    const struct http_service *service;
    void *owner;       /* the service's context: request_owner() */
    struct loop *loop; /* accepts, sweeps, relays */
    struct pool *pool; /* for what blocks */
    unsigned max_connections;
    unsigned keepalive_ms;
    /* PEM: connections by TCP are TLS, where the HTTP library has it (Debian's has, the static one has not). */
    const char *tls_cert, *tls_key;
    /* With TLS: writes to the library's session (gnutls_session_t), and ends its sending side. What does not fit is lost. */
    void (*tls_finish)(void *session, const char *data, size_t len);
    char *const *allow_hosts; /* while it is open (gate.h): names it answers to; or NULL */
};

int server_new(const struct server_options *o, struct server **ret, struct err *e);
/* "127.0.0.1:0", "[::1]:8080", "0.0.0.0:80", ":80". On the loop's thread or before it runs. */
int server_listen_tcp(struct server *s, const char *addr, struct err *e);
int server_listen_unix(struct server *s, const char *path, struct err *e);
/* A socket that listens already, of a service manager; its file, if it has one, stays. Takes fd. */
int server_listen_fd(struct server *s, int fd, struct err *e);
/* Begins to accept. */
int server_start(struct server *s, struct err *e);
/*
 * With TLS: new connections get this certificate, those that are there keep theirs. On failure nothing has changed. On
 * the loop's thread. The texts are not used afterwards.
 */
int server_reload_tls(struct server *s, const char *cert, const char *key, struct err *e);
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
