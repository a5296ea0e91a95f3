#pragma once
/*
 * client: the guest agent's API over its unix socket (or a URL). The agent's errors are passed on
 * unchanged: code, field, message. One thread at a time.
 */
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/buf.h"
#include "common/err.h"
#include "common/wire/method.h"
#include "lib/util/transport.h"

struct client;

struct debug;

struct client_options {
    const char *socket; /* or url */
    const char *url;    /* "http://127.0.0.1:4711" */
    const char *token;  /* or NULL */
    int cancel_fd;
    /* Verifies that the guest agent listens on the socket, once for each connection, before the
     * token is sent. NULL: whoever listens is. */
    int (*check_peer)(void *arg, int fd, struct err *e);
    void *check_arg;
    int64_t answer_timeout_ms; /* 0: CLIENT_ANSWER_MS */
    const struct debug *debug; /* or NULL; outlives the client */
    /* The URL is that of a box at a daemon, "http://HOST:PORT/v1/boxes/ID", and token, socket and
     * check_peer are the daemon's: its gateway passes everything on to the agent. */
    bool is_gateway;
    const char *ca_file; /* as of http_set_ca(); or NULL */
};

#define CLIENT_ANSWER_MS 30000

int client_new(const struct client_options *opts, struct client **ret, struct err *e);
struct client *client_free(struct client *c);

/* Requests from now on do not count as use of the box (WIRE_HEADER_QUIET). */
int client_set_quiet(struct client *c, struct err *e);

int client_health(struct client *c, int64_t timeout_ms, struct err *e);
/* Gives an agent that was frozen the wall time, random numbers and a new generation; it drops its
 * idle connections. Tries until the agent answers or the deadline passes. */
int client_resync(struct client *c, int64_t deadline_mono_ms, struct err *e);
/* Polls until the agent answers or the deadline passes. */
int client_wait_ready(struct client *c, int64_t deadline_mono_ms, struct err *e);

/*
 * params may be NULL ({}); they are borrowed. The caller owns *ret; ret may be NULL. deadline 0:
 * none.
 *
 * No call waits for ever for a silent agent: the answer must begin within the answer timeout, or
 * within 20 times that if the agent works before it answers. Only a method that waits by its nature
 * (SINGLE in rpc.def: Exec/Wait) is bounded by its deadline alone. A reply, or a message of a
 * stream, that is larger than an agent's can be, or that would take much memory when parsed, is
 * ERR_EXHAUSTED.
 */
int client_call(struct client *c, enum rpc_method method, json_t *params, int64_t deadline_mono_ms,
                json_t **ret, struct err *e);
/* Calls fn with each message of a stream (borrowed); a non-zero result ends the call with
 * ERR_CANCELED. An {"error"} message becomes the result. A stream that breaks off before its
 * {"end"} is ERR_DATA_LOSS. */
int client_stream(struct client *c, enum rpc_method method, json_t *params,
                  int64_t deadline_mono_ms, int (*fn)(void *arg, json_t *msg), void *arg,
                  struct err *e);
/* The same by name ("Exec/Run"), for methods that only a newer agent knows. */
int client_call_named(struct client *c, const char *method, json_t *params,
                      int64_t deadline_mono_ms, json_t **ret, struct err *e);
int client_stream_named(struct client *c, const char *method, json_t *params,
                        int64_t deadline_mono_ms, int (*fn)(void *arg, json_t *msg), void *arg,
                        struct err *e);

int64_t client_answer_ms(const struct client *c); /* the answer timeout */

/* Any other route: "/v1/metrics". */
int client_get(struct client *c, const char *route, int (*write)(void *, const char *, size_t),
               void *arg, int64_t deadline_mono_ms, struct err *e);
int client_get_file(struct client *c, const char *path, int (*write)(void *, const char *, size_t),
                    void *arg, int64_t deadline_mono_ms, struct err *e);
int client_put_file(struct client *c, const char *path, const void *data, size_t len, uint32_t mode,
                    const char *user, int64_t deadline_mono_ms, struct err *e);
/* GET or PUT of a file with every option of the route. Header values are as in HTTP, or NULL. */
struct client_bytes {
    const char *query; /* "mode=0644" */
    const char *range; /* "bytes=0-99" */
    const char *if_match, *if_none_match;
    const char *digest; /* Repr-Digest */
    const void *data;   /* of a PUT */
    size_t len;
    int (*write)(void *arg, const char *data, size_t len);
    void *arg;
    char *etag; /* gets the tag, without its quotes; or NULL */
    size_t etag_bytes;
};
int client_bytes(struct client *c, const char *method, const char *path,
                 const struct client_bytes *b, int64_t deadline_mono_ms, struct err *e);

/* A large local file, by an upload that resumes after a broken connection. */
struct client_upload {
    const char *path;  /* in the box */
    const char *query; /* "mode=0644" */
    int fd;            /* a regular file; read from its start by pread() */
    const char *name;  /* of the local file, for errors */
    void (*progress)(void *arg, uint64_t n_bytes); /* sent so far; may decrease. Or NULL */
    void *arg;
    int64_t deadline_mono_ms; /* 0: none */
    int64_t retry_ms;         /* no retry later than that; 0: ten minutes, more for large files */
};
/*
 * Replaces the target, all or nothing. ERR_ABORTED: the local file changed or became shorter
 * meanwhile; one that grew is sent to the length that it had at first. *ret_begun is
 * set on failure too: if it is false, the agent refused the upload before any byte, and another
 * route may work.
 */
int client_upload(struct client *c, const struct client_upload *u, bool *ret_begun, struct err *e);

/* Streams an archive into a directory of the box. query: "mode=merge&user=user" or NULL. */
int client_put_archive(struct client *c, const char *dir, const char *query,
                       int64_t (*read)(void *arg, char *out, size_t max, struct err *e), void *arg,
                       int64_t deadline_mono_ms, json_t **ret, struct err *e);
int client_get_archive(struct client *c, const char *path, const char *query,
                       int (*write)(void *, const char *, size_t), void *arg,
                       int64_t deadline_mono_ms, struct err *e);

/* The same, restricted to the given names below path, each of which ends with a NUL. */
int client_post_archive(struct client *c, const char *path, const char *query, const char *names,
                        size_t names_bytes, int (*write)(void *, const char *, size_t), void *arg,
                        int64_t deadline_mono_ms, struct err *e);

/* A request to an HTTP server in the box, by /v1/proxy/{port}. Succeeds with any status; fails if there
 * was no complete answer. The caller owns *ret_body. */
struct client_port_request {
    uint16_t port;
    const char *method, *path;
    const char *basic; /* "user:password" or NULL */
    const char *json;  /* the body, or NULL */
    size_t max_body;   /* of the answer; 0: 256 KiB */
};
int client_ask_port(struct client *c, const struct client_port_request *p, int64_t deadline_mono_ms,
                    int *ret_status, struct buf *ret_body, struct err *e);

/* Connects to a TCP port in the box, by /v1/tunnel/{port}; *ret_fd is blocking. */
int client_tunnel(const struct client_options *opts, uint16_t port, int64_t deadline_mono_ms,
                  int *ret_fd, struct err *e);

/* ---- tunnel ---- */

/* Request and reply of a raw connection to a TCP port in the box (GET /v1/tunnel/{port},
 * Upgrade: tcp). Pure functions: the caller reads and writes. client_tunnel() does both. */

#define TUNNEL_HEAD_BYTES (16 * 1024)

int tunnel_request(uint16_t port, const char *token, struct buf *out, struct err *e);
/* Bytes of the reply's head with its empty line; 0: incomplete. */
size_t tunnel_head_bytes(const struct buf *answer);
/* Fails unless the head says 101. */
int tunnel_check(const struct buf *answer, struct err *e);
