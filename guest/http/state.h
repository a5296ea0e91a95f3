#pragma once
/*
 * state: the server's insides, shared by the files of guest/http that need them: the table of
 * connections, which the loop's sweep walks, and what the gate asks. For guest/http alone.
 */
#include <microhttpd.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "http/server.h"

struct loop_timer;
struct loop_watch;
struct listener;
struct relay;
struct request;

#define SERVER_MAX_RETIRED 8 /* certificates that earlier connections still use */

/* The HTTP library's daemon with a certificate; the connections that began with it stay with it. */
struct tls_library {
    struct server *server;
    struct MHD_Daemon *daemon;
};

/* One accepted connection, from the library's notice to its closing. */
struct conn {
    int fd;
    unsigned slot;
    uint32_t generation;
    bool is_reserve; /* over the bound: only ROUTE_RESERVE is served */
    bool is_tcp;
    const struct tls_library *library; /* NULL: no TLS */
    void *tls;       /* the library's session: only it writes to fd; NULL: no TLS */
    bool is_watched; /* its fd is in vanish_fd's set. The connection's thread's */
    /* guarded by the table lock: */
    int64_t idle_since_ms; /* without a request; 0: it has one, or was upgraded */
    struct request *request;
};

struct server {
    struct server_options o;
    struct MHD_Daemon *daemon;
    struct tls_library *tls;                         /* for TCP; NULL: without TLS */
    struct tls_library *retired[SERVER_MAX_RETIRED]; /* oldest first; the loop's thread's */
    size_t n_retired;
    struct listener *listeners[SERVER_MAX_LISTENERS];
    size_t n_listeners;
    int vanish_fd; /* an epoll set of suspended connections' sockets */
    struct loop_watch *vanish_watch;
    struct loop_timer *sweep_timer;
    _Atomic bool stopping;
    _Atomic unsigned n_quiet;    /* how often all was quiet after there was something to do */
    _Atomic uint64_t body_bytes; /* charged now: request_charge() */

    pthread_mutex_t table_lock;
    /* guarded by table_lock: */
    struct conn **conns;
    unsigned n_slots;
    unsigned n_conns;
    unsigned first_free; /* a hint */
    uint32_t generation;

    struct relay *relays;      /* of tunnels, upgraded proxies, forwards; the loop's thread's */
    _Atomic unsigned n_relays; /* of tunnels and upgraded proxies */
};

/* Has the peer sent all that it will, and has all of it been read? A reset counts as an end. */
bool server_has_ended(int fd);
/* Or can it be written to no more? */
bool server_peer_has_left(int fd);
/* Watches a suspended connection's socket for the peer's FIN, once. On its thread. */
void server_watch_vanish(struct server *s, struct conn *c);
/* The connection's struct. On its thread. */
struct conn *server_conn(struct MHD_Connection *mhd);
void server_set_request(struct server *s, struct conn *c, struct request *q);

/* The callbacks for libmicrohttpd; cls is the server. */
void *request_on_uri(void *cls, const char *uri, struct MHD_Connection *mhd);
enum MHD_Result request_on_access(void *cls, struct MHD_Connection *mhd, const char *url,
                                  const char *verb, const char *version, const char *data,
                                  size_t *data_len, void **con_cls);
void request_on_completed(void *cls, struct MHD_Connection *mhd, void **con_cls,
                          enum MHD_RequestTerminationCode why);

/*
 * refuse: answers a request with an error while its body may still arrive. The library cannot: it takes
 * no reply while a body arrives, and if a socket is closed with unread bytes, the kernel resets the
 * connection, so that the client never sees the reply. So:
 *   - the client waits for 100-continue: answer at once; it does not send the body;
 *   - a body of at most REQUEST_DRAIN_BYTES: read it, then answer, and keep the connection;
 *   - a larger body: write the reply to the socket directly, shut down the sending side, discard the
 *     incoming bytes, within bounds of bytes and time, and close.
 */
/* At the headers. status 0: that of the error's code. */
enum MHD_Result refuse_headers(struct request *q, const struct err *error, int status);
/* While the body arrives: a handler failed, or a bound is exceeded. Takes the rest of the piece. */
enum MHD_Result refuse_midway(struct request *q, const struct err *error, size_t *len);
/* For each further piece of the body, and at its end. */
enum MHD_Result refuse_body(struct request *q, size_t *len);
enum MHD_Result refuse_end(struct request *q);
/* When the body is complete: an ordinary reply. */
enum MHD_Result refuse_now(struct request *q, const struct err *error);
/* The body has stalled: 408. On the loop's thread, with the request's lock held. */
void refuse_stalled(struct request *q, int64_t now_ms);
