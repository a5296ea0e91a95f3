#pragma once
/*
 * http_service: the callbacks of the program that serves: routes, access, error bodies, metrics. guest/http
 * knows nothing else of the program. request_owner() returns the program's context.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"
#include "http/route.h"

struct reply;
struct request;

/* The error as it is sent. */
struct error_reply {
    int status; /* set before the call; the service may change it */
    char *text; /* owned */
    size_t len;
    const char *type;
    const char *challenge; /* the WWW-Authenticate header of a 401; NULL: none */
};

/* Static. All but find_route, is_open, authorize and write_error may be NULL. They are called on the threads
 * of connections, write_error also on the loop's; none may block. */
struct http_service {
    /* path: raw, without the query. q->verb is set, q->route is not yet. */
    void (*find_route)(struct request *q, const char *path, size_t len, struct route_match *ret);
    /* True if no token is set: then the checks of origin.h keep web pages out. */
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
