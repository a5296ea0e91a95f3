#pragma once
/*
 * unix_http: HTTP/1.1 over one unix socket, for calls that have one answer: what libcurl takes ten milliseconds to load
 * for. The answer is hostile input: its head, its body and the number of interim answers are bounded. The connection is
 * kept between requests. One thread at a time.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/buf.h"
#include "common/err.h"

struct unix_http;

struct unix_http_options {
    const char *path; /* of any length */
    int cancel_fd;    /* -1: none */
    /* Checks a new connection before anything is sent; a negative result refuses it. Or NULL. */
    int (*check_peer)(void *arg, int fd, struct err *e);
    void *check_arg;
};

struct unix_http_request {
    const char *method;         /* "GET" */
    const char *target;         /* "/v1/boxes?limit=100" */
    const char *const *headers; /* "Name: value", NULL-terminated, or NULL */
    const char *body;           /* or NULL */
    size_t body_len;            /* a GET has none */
    int64_t deadline_mono_ms;
};

struct unix_http_answer {
    int status;
    struct buf body; /* init it with its limit; buf_done() it */
    char *seen;      /* the value of the header `see`, or NULL; free() it */
    const char *see; /* the name of a header to look for, or NULL */
};

int unix_http_new(const struct unix_http_options *o, struct unix_http **ret, struct err *e);
struct unix_http *unix_http_free(struct unix_http *h); /* accepts NULL; returns NULL */
/*
 * 0 for any status. ERR_UNAVAILABLE: no connection, or none of the answer came; a GET on a kept connection that the
 * server closed is sent once more. ERR_DATA_LOSS: the answer broke off. ERR_EXHAUSTED: it is larger than its limit.
 */
int unix_http_do(struct unix_http *h, const struct unix_http_request *q,
                 struct unix_http_answer *ret, struct err *e);
/* Was nothing sent, because the last call got no connection? */
bool unix_http_is_unconnected(const struct unix_http *h);
