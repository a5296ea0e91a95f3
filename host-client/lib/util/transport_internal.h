#pragma once
/*
 * transport_internal: what transport_upgrade.c needs of transport.c, which alone knows libcurl. No other file includes
 * it.
 */
#include <stddef.h>

#include "common/err.h"
#include "lib/util/transport.h"

/* The request's address as errors name it. */
const char *http_place(const struct http_request *req);
int http_cancel_fd(const struct http *h);
/*
 * A connection to the request's server by a new handle, with the certificates of `like`, verified as for any request.
 * *ret_socket is the handle's. Free the handle.
 */
int http_connect(struct http *like, const struct http_request *req, struct http **ret,
                 int *ret_socket, struct err *e);
/* Through TLS, if there is any, without waiting. 0, also if nothing could be sent. */
int http_raw_send(struct http *h, const char *data, size_t len, size_t *ret_sent, struct err *e);
/* 1: bytes; 0: none now; -1: the connection has ended. */
int http_raw_recv(struct http *h, char *buf, size_t bytes, size_t *ret_len);
