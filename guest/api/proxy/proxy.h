#pragma once
/*
 * proxy: the inside of one request to a port in the box, shared by the files that are its parts
 * (proxy.c: the connection's side; proxy_loop.c: the loop's side, which speaks with the server in
 * the box; proxy_head.c: what that server is told). Nobody else includes it.
 *
 * The two sides meet in two bounded rings, one for each direction; whoever empties or fills one
 * wakes the other: the loop by request_wake(), the connection by proxy_kick().
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/buf.h"
#include "common/err.h"
#include "event/loop.h"
#include "http/request.h"
#include "event/ring.h"
#include "http/server.h"
#include "system/dial.h"
#include "system/http1.h"

#define PROXY_TIMEOUT_HEADER "Bellhop-Proxy-Timeout-Ms"
#define PROXY_IO_BYTES (8 * 1024) /* taken from the server in the box at a time */

struct proxy {
    struct request *request; /* a reference */
    struct server *server;
    uint16_t port;
    int64_t patience_ms;
    bool is_upgrade;
    bool is_started;

    pthread_mutex_t lock;
    /* guarded by lock: */
    int refs;       /* the request's, the reply's, the loop's */
    bool is_posted; /* pump() is on its way */
    bool is_left;   /* the request is over */
    struct ring up; /* to the server in the box, as it goes on the wire */
    bool up_ended;
    bool wants_room;  /* the connection waits for room in up */
    struct ring down; /* the reply's body */
    bool down_ended;
    bool wants_data; /* the connection waits for the head, or something in down */
    bool has_head;
    int r; /* how it failed */
    struct err error;

    /* the loop's until has_head, then the connection's */
    struct http1_head head;
    struct buf early; /* of the reply: the head as it comes, then what follows an upgrade's */
    /* the loop's: */
    struct buf hello; /* the request's head */
    size_t hello_sent;
    struct dial *dial;
    int fd; /* taken over by the relay after an upgrade */
    struct loop_watch *watch;
    struct loop_timer *timer; /* until the head is there */
    uint32_t events;
    bool is_finished;
    uint64_t left; /* of a body with a length */
    struct http1_chunks chunks;
};

/* proxy.c. Called with the lock; gives it up, and with the last reference frees. */
void proxy_unref_and_unlock(struct proxy *p);

/* proxy_head.c: fills p->hello. `path` is what follows the port, as it came, with the query. */
int proxy_write_hello(struct request *q, struct proxy *p, const char *path, struct err *e);

/* proxy_loop.c. Called with the lock, from the connection's thread: the loop has a look. */
void proxy_kick(struct proxy *p);
bool proxy_has_body(const struct proxy *p); /* the reply; when there is its head */
