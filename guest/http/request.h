#pragma once
/*
 * request: one HTTP request from its first line to its end. It runs on a thread of libmicrohttpd. Work that
 * takes time runs elsewhere while the connection is suspended ("parked"); request_wake() resumes it.
 *
 * Life: it is made when the request line arrives. The library's reference goes with the completion
 * callback, in which ops->done frees the handler's state. Work elsewhere (a pool job, the loop) holds a
 * reference of its own, and finds is_over set if it is late.
 *
 * Threads: the connection's thread owns all fields, except those that are marked. Lock order: q->lock, then
 * the library's lock, which suspend and resume take, and which the library holds when it reports the end of
 * an upgraded connection. So no thread takes q->lock with the server's table lock held, or calls
 * request_wake() or request_park() with a handler's lock held.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/buf.h"
#include "common/err.h"
#include "event/pool.h"
#include "http/route.h"

#define REQUEST_DRAIN_BYTES (1024 * 1024)         /* of a refused body, read before the reply */
#define REQUEST_DISCARD_BYTES (256 * 1024 * 1024) /* read and dropped after the reply */
#define REQUEST_DISCARD_MS 20000
#define REQUEST_STALL_MS 60000 /* stall timeout of a body: 408 */

#define REQUEST_REPLY_HEADERS 6

#define REQUEST_PARKED 1 /* a result: request_park() returned true, it goes on later */

struct MHD_Connection;
struct server;
struct request;

/* The handler of a route. A negative result becomes the reply's error. All but finish may be NULL. */
struct request_ops {
    /* The headers have passed the gate. May return REQUEST_PARKED: it is called again. */
    int (*begin)(struct request *q, struct err *e);
    /* A piece of the body. *len returns how many bytes are left; more than 0 only after
     * request_park() returned true. NULL: a body is refused. */
    int (*body)(struct request *q, const char *data, size_t *len, struct err *e);
    /* The body is complete: replies, or parks and is called again after the wake. */
    int (*finish)(struct request *q, struct err *e);
    /* The request is over, served or not: free the state. Must not block. */
    void (*done)(struct request *q);
    /*
     * The service's: the sender has lost its right to a reply that goes on. Ends it. From any thread, by a holder of a
     * reference; must not block.
     */
    void (*revoke)(struct request *q);
};

enum stage {
    STAGE_HEADERS,
    STAGE_BODY,
    STAGE_DRAIN,   /* refused; the rest of a small body is read, then the refusal is sent */
    STAGE_DISCARD, /* refused; the reply was written, the body is discarded for a while */
    STAGE_REPLIED,
};

struct conn;

struct reply_header {
    const char *name; /* static */
    char *value;      /* owned */
};

struct problem {
    const char *type; /* the last part of its URI, or NULL; static */
    bool has_offsets;
    uint64_t expected_offset;
    uint64_t provided_offset;
};

struct request {
    struct server *server;
    struct MHD_Connection *mhd;
    struct conn *conn;
    const struct route *route; /* NULL until the gate found it */
    unsigned route_verbs;      /* all that the path has */
    /* The service's, of its find_route: */
    const void *group;
    const void *method;
    int counter;
    void *
        caller; /* the service's, of its authorize: who sent it. malloc'ed, freed with the request; or NULL */
    enum verb verb;
    const char *verb_name; /* as received; the library owns it */
    bool is_http11;
    char *target;         /* the raw request target, from its path on */
    char *authority;      /* of a target in absolute form ("http://AUTHORITY/..."); or NULL */
    char *path;           /* its decoded path (may hold any byte but NUL) */
    char *rest;           /* the decoded path behind the route's prefix; NULL without ROUTE_REST */
    const char *raw_rest; /* the same, raw and with the query; points into target */
    const char *query;    /* raw, behind the '?', or NULL; points into target */
    uint64_t declared;    /* body length as announced; UINT64_MAX: chunked */
    bool expects_continue;
    enum stage stage;
    bool is_gated;
    bool is_use;         /* the service's: it counts as a call */
    const void *codec;   /* the handler's: how the messages are written; NULL: not known yet */
    int status;          /* of the reply, 0 before */
    struct err *refusal; /* once it is refused; NULL: no memory for it */
    int refusal_status;
    int error_status; /* a handler's: the status of its error, if it is not that of the code */
    struct reply_header reply_headers[REQUEST_REPLY_HEADERS]; /* of an error's reply */
    unsigned n_reply_headers;
    struct problem problem; /* the error's type by RFC 9457, if it has one */
    uint64_t discarded;
    int64_t started_ms;
    uint64_t bytes_in;
    uint64_t bytes_out;
    void *state; /* the handler's */
    /* Set by relay_new_reply(): */
    int (*take_peer)(void *arg, const char **ret_late, size_t *ret_late_len);
    void *take_peer_arg;
    void (*free_state)(void *state); /* called with the last reference; NULL: ops->done does it */

    _Atomic int refs;
    pthread_mutex_t lock;
    /* guarded by lock: */
    bool is_parked;    /* suspended, and not resumed yet */
    bool is_woken;     /* request_wake() was called while it was not parked */
    bool is_gone;      /* the client has disconnected */
    bool is_over;      /* completed: mhd must not be used any more */
    bool is_upgraded;  /* a relay owns the socket */
    bool is_cut;       /* request_cut(): a relay that starts later ends at once */
    bool is_revoked;   /* request_revoke(): a relayed WebSocket is told */
    bool is_late;      /* the client's deadline has passed */
    bool is_body_held; /* request_hold_body() */
    int64_t discard_until_ms;
    int64_t body_ms;      /* when the last piece of the body arrived; 0: none is expected */
    int64_t wait_ms;      /* since when a streaming reply is silent; 0: it is not */
    bool wants_keepalive; /* set by the sweep: send a keep-alive */
};

struct request *request_ref(struct request *q);
/* The context of the program that serves: server_options.owner. */
void *request_owner(const struct request *q);
struct request *request_unref(struct request *q); /* accepts NULL; returns NULL */

/*
 * Suspends the connection. False: request_wake() was called since the last check, so the caller checks
 * again. Call it on the connection's thread, in body, finish or a content reader, which return at once
 * if it is true.
 */
bool request_park(struct request *q);
/* From any thread, by a holder of a reference. */
void request_wake(struct request *q);
/* Whether the client has disconnected, or the request is over. From any thread. */
bool request_is_gone(struct request *q);
/*
 * A content reader returns this to truncate a reply: the connection is cut, so that the client notices.
 * data: the reader's buffer.
 */
ssize_t request_break_off(struct request *q, char *data);
/* The client's deadline has passed: sets is_late and wakes; and reads it. From any thread. */
void request_make_late(struct request *q);
bool request_is_late(struct request *q);

/*
 * On: the body counts as far as it came, so that a client that disconnects is dropped only after all that
 * it sent was taken.
 */
void request_hold_body(struct request *q, bool on);

/* Cuts the connection, an upgraded one too, so that work for the request finds its client gone. From any thread, by
 * a holder of a reference. */
void request_cut(struct request *q);
/* The same, as the sender's access has ended: between two frames, a relayed WebSocket ends with a close frame. */
void request_revoke(struct request *q);
bool request_is_cut(struct request *q);
bool request_is_revoked(struct request *q);

/*
 * Charges len to the budget that all bodies kept in memory share. -ERR_EXHAUSTED: it is used up.
 */
int request_charge(struct request *q, size_t len, struct err *e);
void request_discharge(struct request *q, size_t len);

/* On: the connection has no idle timeout. */
void request_allow_silence(struct request *q, bool on);

/*
 * The keep-alive timer of a streaming reply: silence starts it. Take: true if it ran out, and a keep-alive
 * is to be sent; it is restarted.
 */
void request_set_silent(struct request *q, bool on);
bool request_take_keepalive(struct request *q);

/*
 * Limits the unsent bytes in the kernel (TCP_NOTSENT_LOWAT). Else it would queue megabytes, and report
 * writable only when a third of them is sent; a source would learn late that a slow client reads.
 */
void request_limit_unsent(const struct request *q);
/*
 * A unix socket is to send a body of so many bytes, or of UINT64_MAX for an unknown number. If it is large, its sending
 * buffer grows to REQUEST_LARGE_BYTES, as TCP's does by itself: reader and writer then change turns less often.
 */
#define REQUEST_LARGE_BYTES (512 * 1024)
void request_widen_socket(int fd, uint64_t len);
/* The same for the client's socket, and the reply's body. */
void request_expect_sent(const struct request *q, uint64_t len);

/* Run fn(arg) on a pool thread with a reference to q held until it returns. */
int request_run(struct request *q, void (*fn)(struct request *q), struct err *e);

/* A question that a worker answers. Embedded in a state with free_state. */
struct ask {
    bool is_asked;
    _Atomic bool is_done;
    int r; /* the worker's result */
    struct err error;
};
/* For finish: REQUEST_PARKED while the worker runs, then its result. fn sets r and error. */
int request_ask(struct request *q, struct ask *a, void (*fn)(struct request *q), struct err *e);
/* The worker's last act. */
void request_answer(struct request *q, struct ask *a);

/* The connection's socket, for getpeername() and the like. No I/O. */
int request_fd(const struct request *q);
/* The value of a request header, or NULL. */
const char *request_header(struct request *q, const char *name);
/* Calls fn for each header as it came, until fn returns a negative result; returns that, or 0. */
int request_each_header(struct request *q,
                        int (*fn)(void *arg, const char *name, const char *value), void *arg);
/* The host that the request is for: the target's, or else the Host header's. NULL: not said. */
const char *request_host(struct request *q);
/* The decoded value of a query parameter, or NULL when absent; owned: free(). */
int request_query(struct request *q, const char *name, char **ret, struct err *e);
/* "1", "true" or "" -> true; "0", "false" -> false. Errors name the parameter. */
int request_query_bool(struct request *q, const char *name, bool *ret, struct err *e);
/* Whether a comma-separated header lists this token (case-insensitive). */
bool request_header_has(struct request *q, const char *name, const char *token);

/* A header that the reply gets when it is an error. name: static; the value is copied. */
int request_reply_header(struct request *q, const char *name, const char *value, struct err *e);

/* The sweep: finds a client that has disconnected, a stalled body, a silent stream. By a holder of a
 * reference. */
void request_sweep(struct request *q, int64_t now_ms);
/* The vanish watch saw the peer's FIN. The same. */
void request_vanished(struct request *q);

/*
 * A timer of a request. It calls request_make_late() at the deadline that the client set
 * (Connect-Timeout-Ms), or request_wake() at the end of a bounded wait; the handler, which is woken, does
 * the rest. The timer runs in the loop.
 */
#define DEADLINE_MAX_MS INT64_C(9999999999) /* ten digits, as the Connect protocol has it */

struct deadline;

/* Call it on the request's thread, before the request parks. due is called on the loop's thread. */
int deadline_new(struct request *q, int64_t in_ms, void (*due)(struct request *q),
                 struct deadline **ret, struct err *e);
/* Call it when the request is over; accepts NULL. */
void deadline_drop(struct deadline *d);
