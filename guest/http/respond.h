#pragma once
/*
 * respond: every reply leaves through respond_queue(), the one place that knows common headers and
 * counts. The words of an error are the service's.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/err.h"
#include "http/server.h"
#include "http/request.h"

/* The statuses that replies use by name. */
#define HTTP_SWITCHING_PROTOCOLS 101
#define HTTP_OK 200
#define HTTP_CREATED 201
#define HTTP_NO_CONTENT 204
#define HTTP_PARTIAL_CONTENT 206
#define HTTP_NOT_MODIFIED 304
#define HTTP_BAD_REQUEST 400
#define HTTP_UNAUTHORIZED 401
#define HTTP_NOT_FOUND 404
#define HTTP_METHOD_NOT_ALLOWED 405
#define HTTP_NOT_ACCEPTABLE 406
#define HTTP_REQUEST_TIMEOUT 408
#define HTTP_CONFLICT 409
#define HTTP_GONE 410
#define HTTP_PRECONDITION_FAILED 412
#define HTTP_CONTENT_TOO_LARGE 413
#define HTTP_UNSUPPORTED_MEDIA_TYPE 415
#define HTTP_RANGE_NOT_SATISFIABLE 416
#define HTTP_UPGRADE_REQUIRED 426
#define HTTP_BAD_GATEWAY 502
#define HTTP_SERVICE_UNAVAILABLE 503
#define HTTP_INSUFFICIENT_STORAGE 507

#define REPLY_SIZE_UNKNOWN UINT64_MAX
#define REPLY_END ((ssize_t)-1)

/*
 * A reply that is being built: a body, and headers of its own. Each function returns NULL if there is no memory; its
 * arguments then stay the caller's.
 */
struct reply *reply_new_empty(void);
struct reply *reply_new_copy(const char *data, size_t len);
struct reply *reply_new_take(char *text, size_t len);              /* malloc'ed */
struct reply *reply_new_fd(int fd, uint64_t offset, uint64_t len); /* takes fd */
/*
 * The body comes from read, on the connection's thread, in pieces of up to block_bytes: it returns the bytes that
 * it put into data, 0 after request_park(), REPLY_END, or request_break_off(). free_arg is called once, when the
 * reply is freed.
 */
struct reply *reply_new_stream(uint64_t size, size_t block_bytes,
                               ssize_t (*read)(void *arg, uint64_t pos, char *data, size_t max),
                               void *arg, void (*free_arg)(void *arg));
void reply_add_header(struct reply *r, const char *name, const char *value);
bool reply_has_header(struct reply *r, const char *name);
/* With REPLY_SIZE_UNKNOWN only; also while the body is being sent. */
void reply_add_trailer(struct reply *r, const char *name, const char *value);
struct reply *
reply_free(struct reply *r); /* only if it was not queued; accepts NULL; returns NULL */

/* Takes the reply; NULL: out of memory. Adds the headers that every reply has. */
int respond_queue(struct request *q, int status, struct reply *response, struct err *e);

/* The same without those headers: for the reply of another server. */
int respond_queue_plain(struct request *q, int status, struct reply *response, struct err *e);

/* Takes text (malloc'ed). */
int respond_text_take(struct request *q, int status, const char *type, char *text, size_t len,
                      struct err *e);
int respond_empty(struct request *q, int status, struct err *e);

/* The status of an error of a route that moves bytes: 412, 413, 507 where they are meant. */
int respond_bytes_status(const struct err *error);
