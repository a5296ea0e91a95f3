#pragma once
/*
 * proxy_state: struct proxy, private to its parts: proxy.c, the client's side, on the connection's thread;
 * proxy_loop.c, the server's side, on the loop's thread.
 *
 * The two sides share two bounded rings, one per direction. The side that fills or drains a ring wakes the other:
 * the loop by request_wake(), the connection by proxy_kick(). Once the request is sent and the reply's head is there,
 * the loop hands the socket over (is_handed): the connection's thread then reads the reply's body from it, without the
 * ring and without a change of threads, and the loop only waits until there is more.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/buf.h"
#include "common/err.h"
#include "common/http1.h"
#include "event/dial.h"
#include "event/loop.h"
#include "event/ring.h"
#include "http/proxy.h"
#include "http/request.h"
#include "http/server.h"

#define PROXY_IO_BYTES (8 * 1024) /* the loop reads from the server at a time */

struct proxy {
    struct request *request; /* a reference */
    struct server *server;
    uint16_t port;
    char what[PROXY_WHAT_BYTES];
    int64_t answer_ms;
    const char *reply_name, *reply_value;
    bool (*drops_reply)(const char *name);
    bool is_upgrade;
    bool is_started;

    _Atomic int refs; /* the request's, the reply's, the loop's */
    pthread_mutex_t lock;
    /* guarded by lock: */
    bool is_posted; /* pump_proxy() is posted to the loop */
    bool is_left;   /* the request is over */
    struct ring up; /* to the server, as on the wire */
    bool up_ended;
    bool is_hello_sent; /* the loop has sent the head: the connection may send the body itself */
    bool wants_room;    /* the connection waits for room in up */
    struct ring down;   /* the reply's body */
    bool down_ended;
    bool wants_data; /* the connection waits for the head, or for data in down or at the socket */
    bool wants_hand; /* the connection would read the body itself */
    bool is_handed;  /* it does: the loop neither reads nor closes until is_left */
    bool has_head;
    int r; /* 0, or the failure */
    struct err error;

    /* the loop's until has_head, then the connection's */
    struct http1_head head;
    unsigned n_interim; /* replies 1xx that came before it */
    struct buf
        early; /* the reply's head while it arrives; after an upgrade the bytes that follow it */
    /* the loop's until is_handed, then the connection's: */
    uint64_t left; /* of a body with a length */
    struct http1_chunks chunks;
    /* the loop's: */
    struct buf hello; /* the request's head */
    size_t hello_sent;
    struct dial *dial;
    int fd; /* taken over by the relay after an upgrade */
    struct loop_watch *watch;
    struct loop_timer *timer; /* deadline of the reply's head */
    uint32_t events;
    bool is_finished;
};

/* proxy.c. arg: a struct proxy. Without the lock. */
void proxy_unref(void *arg);

/* proxy_loop.c. With the lock, on the connection's thread: makes the loop check the rings. */
void proxy_kick(struct proxy *p);
bool proxy_has_body(
    const struct proxy *p); /* whether the reply has a body; once its head is there */
/*
 * Cuts a piece of the body that was read down to its payload; *len: its length. 1: the body is complete. By the side
 * that reads.
 */
int proxy_decode_body(struct proxy *p, char *data, size_t *len, struct err *e);
/* The server closed. 1: the reply is complete. */
int proxy_end_body(struct proxy *p, struct err *e);
