#pragma once
/*
 * transport: HTTP by libcurl over TCP, TLS or a unix socket; no other file includes libcurl. Every
 * request has a connect timeout, a deadline and the context's cancel descriptor.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/buf.h"
#include "common/err.h"
#include "lib/util/debug.h"

struct http; /* keeps connections; one thread at a time */

struct http_request {
    const char *method; /* "GET" */
    const char *url;
    const char *unix_socket; /* or NULL; of any length */
    /* Checks a new connection to unix_socket before anything is sent; a negative result refuses
     * it. Or NULL. */
    int (*check_peer)(void *arg, int fd, struct err *e);
    void *check_arg;
    const char *const *headers; /* "Name: value", NULL-terminated, or NULL */
    const void *body;           /* or read() */
    size_t body_len;
    /* Produces the body: returns bytes written, 0 at the end, a negative error to abort. */
    int64_t (*read)(void *arg, char *out, size_t max, struct err *e);
    void *read_arg;
    int64_t read_len; /* -1: unknown (chunked) */
    /* Takes the body of a 2xx response as it arrives; non-zero aborts with ERR_CANCELED. NULL:
     * the response collects it. Bodies of other responses are always collected (64 KiB). */
    int (*write)(void *arg, const char *data, size_t len);
    void *write_arg;
    int64_t deadline_mono_ms; /* 0: none */
    /* From the last send to the response: to its whole head if write() takes the body, else to
     * its end. 0: none */
    int64_t answer_timeout_ms;
    /* Stall timeout: at least stall_bytes (0: one) of a body that write() takes must arrive
     * within it. The time that write() needs does not count. 0: none */
    int64_t stall_timeout_ms;
    size_t stall_bytes;
    /* or NULL: counts the whole units that write() has taken, instead of bytes */
    const uint64_t *n_taken;
    size_t max_body; /* limit of a collected body; 0: 16 MiB */
    /* On a connection of its own. On a kept one a request without an answer is sent again. */
    bool is_sent_once;
    int *
        ret_status; /* or NULL: of http_upgrade() alone, also of an answer that refuses; 0: there was none */
};

struct http_response {
    int status;
    struct buf body;
    struct buf headers; /* "Name: value\r\n" lines of the last response */
};

/* Loads libcurl, which takes 10 ms: http_new() does it too. Thread-safe. */
int http_load(struct err *e);
int http_new(int cancel_fd, struct http **ret, struct err *e);
void http_set_debug(struct http *h, const struct debug *d); /* outlives h; a line a request */
/* The certificates that https trusts, and no others, in a file in PEM; NULL: the system's. Outlives h. */
void http_set_ca(struct http *h, const char *ca_file);
/* Of this side, for https: a certificate and its key in PEM; NULL: none. They outlive h. */
void http_set_certificate(struct http *h, const char *cert_file, const char *key_file);
struct http *http_free(struct http *h);
/* 0 for any status; an error if there was no complete response. */
int http_do(struct http *h, const struct http_request *req, struct http_response *ret,
            struct err *e);
void http_response_done(struct http_response *r);
/* Copies the value of a header to out; false: there is none. */
bool http_header(const struct http_response *r, const char *name, char *out, size_t out_bytes);

/*
 * Sends a request with "Connection: Upgrade" (the headers say to which protocol) and a body, and returns the connection
 * once the answer was 101; *ret_fd is a blocking socket, which with https is served by a thread of its own. Any other answer is
 * an error with the text of its body. The connection is a new one, and stays when h is freed.
 */
int http_upgrade(struct http *h, const struct http_request *req, int *ret_fd, struct err *e);
