#pragma once
/*
 * respond: every reply leaves through respond_queue(), the one place that knows common headers and
 * counts. The words of an error are the service's.
 */
#include <microhttpd.h>

#include "common/err.h"
#include "http/request.h"
#include "http/service.h"

/* Takes the response. Headers of the reply's own are added to it before. */
int respond_queue(struct request *q, int status, struct MHD_Response *response, struct err *e);

/* The same without headers of ours: for a reply that is somebody else's. */
int respond_queue_plain(struct request *q, int status, struct MHD_Response *response,
                        struct err *e);

/* Takes text (malloc'ed). */
int respond_text_take(struct request *q, int status, const char *type, char *text, size_t len,
                      struct err *e);
int respond_empty(struct request *q, int status, struct err *e);

/* As the service writes it. status 0: the code's own. */
int respond_error(struct request *q, const struct err *error, int status, struct err *e);
/* The same for who sends it himself; ret->text is the caller's. */
int respond_write_error(const struct request *q, const struct err *error, int status,
                        struct error_reply *ret, struct err *e);

/* The status of an error of a route that moves bytes: 412, 413, 507 where they are meant. */
int respond_bytes_status(const struct err *error);

/* A response with a body from a callback; NULL is reported as out of memory by the caller. */
void respond_add_header(struct MHD_Response *response, const char *name, const char *value);

/* "OK", "Not Found", ... */
const char *respond_reason(int status);
