#pragma once
/* http1: parses the replies of an HTTP/1.1 server. Bounded; no sockets. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"

#define HTTP1_HEAD_MAX (64 * 1024)
#define HTTP1_MAX_HEADERS 256

struct http1_header {
    const char *name; /* into head->text */
    const char *value;
};

struct http1_head {
    char *text; /* owned */
    int status;
    struct http1_header headers[HTTP1_MAX_HEADERS];
    size_t n_headers;
    bool is_chunked;
    bool has_length;
    uint64_t length;
};

/* Parses the head at the start of data. *ret_len: its length; 0: it is incomplete. */
int http1_parse_head(const char *data, size_t len, struct http1_head *ret, size_t *ret_len,
                     struct err *e);
void http1_head_done(struct http1_head *h);

/* Whether a header is for one hop only: Connection and the headers it lists, Keep-Alive, TE, ...
 * connection: the value of the message's Connection header, or NULL. */
bool http1_is_hop_by_hop(const char *name, const char *connection);

/* The decoder of a chunked body that comes in pieces. Zero it first. */
struct http1_chunks {
    int state;
    uint64_t left;
    unsigned n_line;     /* bytes in this size or trailer line */
    unsigned n_trailers; /* bytes of all trailers */
    bool is_over;
};

/* Decodes in place: moves the payload of data[0..len) to its front; *ret_len: its length. */
int http1_decode_chunks(struct http1_chunks *c, char *data, size_t len, size_t *ret_len,
                        struct err *e);
