#pragma once
/*
 * dialect: a public protocol as a table: routes, methods, codecs, errors, access. The native API is the first
 * (native.c); every other is a folder of guest/dialect and a row of guest/dialect/dialects.c. Also the agent
 * as http sees it, and what a route's handler finds in a request.
 */
#include <jansson.h>

#include "agent.h"
#include "api/encode.h"
#include "api/rpc.h"
#include "common/err.h"
#include "http/server.h"
#include "http/request.h"

struct fs_caller;

struct dialect {
    const char *name;

    /* Methods: POST {method_prefix}{service}/{name}, see rpc.h. */
    const char *method_prefix;
    const struct rpc_method *methods;
    size_t n_methods;
    const struct route *call_route;   /* of those with one request; .ops: call_ops */
    const struct route *inflow_route; /* of those to which the client streams; .ops: inflow_ops */
    const struct route *routes;       /* all others */
    size_t n_routes;

    /* State for all of its requests: dialect_state(). May be NULL. */
    int (*init)(struct agent *a, void **ret_state, struct err *e);
    void (*free)(void *state);

    /* ---- methods ---- */

    /*
     * Chooses the codec of a request by its headers. On failure q->error_status may be
     * set, and q->codec for the error.
     */
    int (*choose_codec)(struct request *q, const struct rpc_method *m, const struct codec **ret,
                        struct err *e);
    /*
     * Reads other headers into call->headers, which free_headers frees with the request, and
     * call->timeout_ms. *ret_deadline_ms: after that time the server ends the request; it is -1 before:
     * never. NULL: the dialect has no such headers.
     */
    int (*read_headers)(struct request *q, const struct rpc_method *m, struct rpc_call *call,
                        int64_t *ret_deadline_ms, struct err *e);
    /* Of several bad headers the reply names the first that is read. False: read_headers after the
     * common ones (Content-Encoding, Connect-Protocol-Version). */
    bool reads_own_headers_first;
    void (*free_headers)(void *headers);
    /* Sets the error of a request past its deadline. NULL: deadline_exceeded. */
    int (*set_late)(struct err *e);
    /* Rewords an error in a stream. NULL: it stays as it is. */
    void (*reword)(struct err *error);

    /* ---- errors and access. Each may be NULL: as the native API does ---- */

    /* As http_service.write_error. */
    int (*write_error)(const struct request *q, const struct err *error, struct error_reply *ret,
                       struct err *e);
    /* Sets the error of a request without the right token. */
    int (*refuse_token)(struct request *q, struct err *e);
    /* A web page sent this to an agent without a token. 0: let it pass. */
    int (*check_page)(struct request *q, const char *header, struct err *e);
    /* The route that answers an OPTIONS request in place of its own, if it is a CORS preflight; or NULL. */
    const struct route *(*preflight)(struct request *q);
    /* Headers for each reply. */
    void (*add_headers)(struct request *q, struct reply *response);

    /* The reply to a GET of a directory among the native files; blocks. NULL: it is refused, unless another
     * dialect has one. */
    int (*list_directory)(struct fs_caller *c, const char *path, json_t **ret, struct err *e);
};

/* A row and its state. The agent has an array of them that ends with a NULL row. */
struct dialect_slot {
    const struct dialect *row;
    void *state;
};

extern const struct dialect native_dialect;

/* rows: NULL-terminated; the first answers what no route has. Names the counters of all routes and methods.
 * Call it once, before threads start. */
int dialects_start(struct agent *a, const struct dialect *const *rows, struct err *e);
void dialects_stop(struct agent *a); /* frees the states; accepts an agent without any */
void *dialect_state(const struct agent *a, const struct dialect *row);

/* Row `name` of a method, as "Exec", "Run"; len: of the two with a '/' between. NULL: none. */
const struct rpc_method *dialect_find_method(const struct dialect *d, const char *path, size_t len);

/* Sets deadline_exceeded in the words of the request's dialect. */
int dialect_set_late(const struct request *q, struct err *e);

extern const struct http_service agent_service; /* its owner: struct agent */

struct agent *request_agent(const struct request *q);
/* Of the route; of a request without one the first dialect's. */
const struct dialect *request_dialect(const struct request *q);
const struct rpc_method *request_method(const struct request *q);
const struct codec *request_codec(const struct request *q);

/* -ERR_UNAUTHENTICATED: two headers have tokens, and they differ. A proxy may have added one of them. */
int request_check_tokens(struct request *q, struct err *e);

int respond_json(struct request *q, int status, const json_t *body, struct err *e);
/* The error as {"code","message","field"}, or an RFC 9457 problem with these beside its members. */
int service_write_json_error(const struct request *q, const struct err *error,
                             struct error_reply *ret, struct err *e);

/* The handlers of the native routes; see the file named beside each. */
extern const struct request_ops call_ops;          /* call.c: /bellhop.v1.Service/Method */
extern const struct request_ops inflow_ops;        /* call.c: those to which the client streams */
extern const struct request_ops health_ops;        /* rpc_system.c */
extern const struct request_ops ready_ops;         /* system_ready.c */
extern const struct request_ops metrics_ops;       /* rpc_system.c */
extern const struct request_ops openapi_ops;       /* openapi.c */
extern const struct request_ops file_get_ops;      /* file_get.c */
extern const struct request_ops file_put_ops;      /* file_put.c */
extern const struct request_ops file_delete_ops;   /* file_get.c */
extern const struct request_ops file_options_ops;  /* file_get.c */
extern const struct request_ops upload_look_ops;   /* uploads.c: GET, HEAD, DELETE */
extern const struct request_ops upload_append_ops; /* uploads.c: PATCH */
extern const struct request_ops archive_get_ops;   /* archive_get.c */
extern const struct request_ops archive_put_ops;   /* archive_put.c */
extern const struct request_ops proxy_ops;         /* port_proxy.c */
extern const struct request_ops tunnel_ops;        /* tunnel.c */
