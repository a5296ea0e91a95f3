#pragma once
/*
 * transport: HTTP by libcurl, over TCP, TLS or a unix socket; the only file that sees libcurl.
 * Every request has a connect timeout, a deadline and the context's cancel descriptor.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/buf.h"
#include "common/err.h"

struct http; /* keeps connections; one thread at a time */

struct http_request {
    const char *method; /* "GET" */
    const char *url;
    const char *unix_socket; /* or NULL; of any length */
    /* Of a new connection to unix_socket, before anything is sent: negative refuses it. Or NULL. */
    int (*check_peer)(void *arg, int fd, struct err *e);
    void *check_arg;
    const char *const *headers; /* "Name: value", NULL-terminated, or NULL */
    const void *body;           /* or read() */
    size_t body_len;
    /* Produces the body: bytes written, 0 at its end, negative error to abort. */
    int64_t (*read)(void *arg, char *out, size_t max, struct err *e);
    void *read_arg;
    int64_t read_len; /* -1: not known (chunked) */
    /* Takes the body of a 2xx answer as it comes; non-zero aborts with ERR_CANCELED. NULL: it is
     * collected in the response. Bodies of other answers are always collected (64 KiB). */
    int (*write)(void *arg, const char *data, size_t len);
    void *write_arg;
    int64_t deadline_mono_ms; /* 0: none */
    /* From what was sent last to the answer: its whole head when write() takes the body, else all
     * of it. 0: none */
    int64_t answer_timeout_ms;
    /* Within it at least stall_bytes (0: one) of a body that write() takes must come. The time that
     * write() needs does not count. 0: none */
    int64_t stall_timeout_ms;
    size_t stall_bytes;
    const uint64_t *n_taken; /* or NULL: what write() has taken whole counts, not bytes */
    size_t max_body;         /* of what is collected; 0: 16 MiB */
};

struct http_response {
    int status;
    struct buf body;
    struct buf headers; /* "Name: value\r\n" lines of the last answer */
};

int http_new(int cancel_fd, struct http **ret, struct err *e);
struct http *http_free(struct http *h);
/* 0 whatever the status; an error when there was no whole answer. */
int http_do(struct http *h, const struct http_request *req, struct http_response *ret,
            struct err *e);
void http_response_done(struct http_response *r);
/* The value of a header in out, or false. */
bool http_header(const struct http_response *r, const char *name, char *out, size_t out_bytes);
