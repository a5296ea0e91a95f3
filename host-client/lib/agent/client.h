#pragma once
/*
 * client: the guest agent's API over its unix socket (or a URL). Errors of the agent come back as
 * they were: code, field, message. One thread at a time.
 */
#include <jansson.h>
#include <stdint.h>

#include "common/buf.h"
#include "common/err.h"
#include "common/wire/method.h"
#include "lib/util/transport.h"

struct client;

struct client_options {
    const char *socket; /* or url */
    const char *url;    /* "http://127.0.0.1:4711" */
    const char *token;  /* or NULL */
    int cancel_fd;
    /* Is it the guest agent that listens on the socket? Asked once for each connection, before the
     * token is sent. NULL: whoever listens is. */
    int (*check_peer)(void *arg, int fd, struct err *e);
    void *check_arg;
    int64_t answer_timeout_ms; /* 0: CLIENT_ANSWER_MS */
};

#define CLIENT_ANSWER_MS 30000

int client_new(const struct client_options *opts, struct client **ret, struct err *e);
struct client *client_free(struct client *c);

/* From now on its requests do not count as use of the box (WIRE_HEADER_QUIET). */
int client_set_quiet(struct client *c, struct err *e);

int client_health(struct client *c, int64_t timeout_ms, struct err *e);
/* Polls until it answers or the deadline has passed. */
int client_wait_ready(struct client *c, int64_t deadline_mono_ms, struct err *e);

/*
 * params may be NULL ({}). The reply is the caller's. deadline 0: none of the caller's.
 *
 * No call waits for ever for an agent that is silent: an answer must begin within the answer timeout,
 * or 20 times that where the agent works before it answers. Only a method that waits by its nature
 * (SINGLE in rpc.def: Exec/Wait) has no other limit than its deadline. Replies, and messages of streams, that
 * are larger than an agent's can be, or would take much memory when parsed, are ERR_EXHAUSTED.
 */
int client_call(struct client *c, enum rpc_method method, json_t *params, int64_t deadline_mono_ms,
                json_t **ret, struct err *e);
/* Each message of a stream (borrowed); a non-zero result ends the call with ERR_CANCELED. An
 * {"error"} message becomes the result. A stream that ends without its end is ERR_DATA_LOSS. */
int client_stream(struct client *c, enum rpc_method method, json_t *params,
                  int64_t deadline_mono_ms, int (*fn)(void *arg, json_t *msg), void *arg,
                  struct err *e);
/* The same by name ("Exec/Run"), for methods that only a newer agent knows. */
int client_call_named(struct client *c, const char *method, json_t *params,
                      int64_t deadline_mono_ms, json_t **ret, struct err *e);
int client_stream_named(struct client *c, const char *method, json_t *params,
                        int64_t deadline_mono_ms, int (*fn)(void *arg, json_t *msg), void *arg,
                        struct err *e);

/* Any other route: "/v1/metrics". */
int client_get(struct client *c, const char *route, int (*write)(void *, const char *, size_t),
               void *arg, int64_t deadline_mono_ms, struct err *e);
int client_get_file(struct client *c, const char *path, int (*write)(void *, const char *, size_t),
                    void *arg, int64_t deadline_mono_ms, struct err *e);
int client_put_file(struct client *c, const char *path, const void *data, size_t len, uint32_t mode,
                    const char *user, int64_t deadline_mono_ms, struct err *e);
/* A file's bytes with all that the route can do. Header values are as HTTP has them, or NULL. */
struct client_bytes {
    const char *query; /* "mode=0644" */
    const char *range; /* "bytes=0-99" */
    const char *if_match, *if_none_match;
    const char *digest; /* Repr-Digest */
    const void *data;   /* of a PUT */
    size_t len;
    int (*write)(void *arg, const char *data, size_t len);
    void *arg;
    char *etag; /* where the tag goes, without its quotes; or NULL */
    size_t etag_bytes;
};
int client_bytes(struct client *c, const char *method, const char *path,
                 const struct client_bytes *b, int64_t deadline_mono_ms, struct err *e);

/* A large local file, by an upload that goes on after a broken connection. */
struct client_upload {
    const char *path;  /* in the box */
    const char *query; /* "mode=0644" */
    int fd;            /* a regular file; read from its start by pread() */
    const char *name;  /* what errors call it */
    void (*progress)(void *arg, uint64_t n_bytes); /* so many are sent; it may go back. Or NULL */
    void *arg;
    int64_t deadline_mono_ms; /* 0: none */
};
/*
 * The target becomes the whole file or stays as it was. *ret_begun, also set on failure: the agent has accepted the
 * upload; if it has not, nothing has changed, and another way may work. ERR_ABORTED: the local file changed meanwhile.
 */
int client_upload(struct client *c, const struct client_upload *u, bool *ret_begun, struct err *e);

/* Streams an archive into a directory of the box. query: "mode=merge&user=user" or NULL. */
int client_put_archive(struct client *c, const char *dir, const char *query,
                       int64_t (*read)(void *arg, char *out, size_t max, struct err *e), void *arg,
                       int64_t deadline_mono_ms, json_t **ret, struct err *e);
int client_get_archive(struct client *c, const char *path, const char *query,
                       int (*write)(void *, const char *, size_t), void *arg,
                       int64_t deadline_mono_ms, struct err *e);

/* The same of the names below path alone: each with a NUL. */
int client_post_archive(struct client *c, const char *path, const char *query, const char *names,
                        size_t names_bytes, int (*write)(void *, const char *, size_t), void *arg,
                        int64_t deadline_mono_ms, struct err *e);

/* GET of an HTTP server that listens on a port in the box, by /v1/proxy/{port}; basic is
 * "user:password" or NULL. 0 whatever the status; an error when there was no whole answer. */
int client_get_port(struct client *c, uint16_t port, const char *path, const char *basic,
                    int64_t deadline_mono_ms, int *ret_status, struct buf *ret_body, struct err *e);

/* A raw connection to a TCP port in the box, by /v1/tunnel/{port}; *ret_fd is blocking. */
int client_tunnel(const struct client_options *opts, uint16_t port, int64_t deadline_mono_ms,
                  int *ret_fd, struct err *e);
