#pragma once
/* http1: reading what an HTTP/1.1 server answers. Bounded; no sockets. */
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

/* Parses the head at the start of data. *ret_len: its bytes, 0 when it is not complete yet. */
int http1_parse_head(const char *data, size_t len, struct http1_head *ret, size_t *ret_len,
                     struct err *e);
void http1_head_done(struct http1_head *h);

/* Connection and what it lists, Keep-Alive, TE, Transfer-Encoding, ...: for one hop only.
 * connection: the value of that message's Connection header, or NULL. */
bool http1_is_hop_by_hop(const char *name, const char *connection);

/* A chunked body, piece by piece. Zeroed at the start. */
struct http1_chunks {
    int state;
    uint64_t left;
    unsigned n_line; /* bytes in this size or trailer line */
    bool is_over;
};

/* Decodes in place: the payload of data[0..len) is moved to its front; *ret_len: how much. */
int http1_decode_chunks(struct http1_chunks *c, char *data, size_t len, size_t *ret_len,
                        struct err *e);
