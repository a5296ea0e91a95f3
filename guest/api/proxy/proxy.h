#pragma once
/*
 * proxy: the state of one request to a port in the box, private to its parts: proxy.c, the client's side, on
 * the connection's thread; proxy_loop.c, the side of the server in the box, on the loop's thread.
 *
 * The two sides share two bounded rings, one per direction. The side that fills or drains a ring wakes the other:
 * the loop by request_wake(), the connection by proxy_kick().
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
#include "system/ports.h"
#include "system/http1.h"

#define PROXY_TIMEOUT_HEADER "Bellhop-Proxy-Timeout-Ms"
#define PROXY_IO_BYTES (8 * 1024) /* read from the server in the box at a time */

struct proxy {
    struct request *request; /* a reference */
    struct server *server;
    uint16_t port;
    int64_t patience_ms;
    bool is_upgrade;
    bool is_started;

    _Atomic int refs; /* the request's, the reply's, the loop's */
    pthread_mutex_t lock;
    /* guarded by lock: */
    bool is_posted; /* pump_proxy() is posted to the loop */
    bool is_left;   /* the request is over */
    struct ring up; /* to the server in the box, as on the wire */
    bool up_ended;
    bool wants_room;  /* the connection waits for room in up */
    struct ring down; /* the reply's body */
    bool down_ended;
    bool wants_data; /* the connection waits for the head, or for data in down */
    bool has_head;
    int r; /* 0, or the failure */
    struct err error;

    /* the loop's until has_head, then the connection's */
    struct http1_head head;
    struct buf
        early; /* the reply's head while it arrives; after an upgrade the bytes that follow it */
    /* the loop's: */
    struct buf hello; /* the request's head */
    size_t hello_sent;
    struct dial *dial;
    int fd; /* taken over by the relay after an upgrade */
    struct loop_watch *watch;
    struct loop_timer *timer; /* deadline of the reply's head */
    uint32_t events;
    bool is_finished;
    uint64_t left; /* of a body with a length */
    struct http1_chunks chunks;
};

/* proxy.c. arg: a struct proxy. Without the lock. */
void proxy_unref(void *arg);

/* proxy_loop.c. With the lock, on the connection's thread: makes the loop check the rings. */
void proxy_kick(struct proxy *p);
bool proxy_has_body(
    const struct proxy *p); /* whether the reply has a body; once its head is there */
