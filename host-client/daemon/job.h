#pragma once
/*
 * job: a route whose work blocks. The body (one JSON object, or nothing) is collected, then the row's function runs on
 * a pool thread with a context of libbellhop, and what it leaves in the job is the reply.
 */
#include <jansson.h>
#include <stdint.h>

#include "bellhop/bellhop.h"
#include "common/err.h"
#include "common/jsonx.h"
#include "daemon/routes.h"
#include "http/request.h"

struct daemon;

struct job {
    const struct api_route *row;
    struct daemon *daemon;
    struct bh_ctx *ctx;
    char *params[ROUTE_MAX_PARAMS]; /* the variable segments of the path, decoded; owned */
    json_t *body;                   /* an object, empty without a body; owned */
    const char *text;               /* of the body */
    size_t text_len;
    char *repeat_key;  /* the header Idempotency-Key, or NULL; owned */
    int64_t begun_ms;  /* a daemon was killed at work on this request, which began then; or 0 */
    struct request *q; /* for request_query() */
    bool is_admin;     /* its client may name files of this machine and its network */
    int status;        /* of the reply; 0: 200, or 204 without one */
    json_t *reply;     /* owned; NULL: none, or: */
    char *bytes;       /* a reply that is no JSON; owned */
    size_t n_bytes;
    const char *type; /* of the bytes; static */
};

extern const struct request_ops job_ops;

static inline void free_box_p(struct bh_box **b)
{
    (void)bh_box_free(*b);
}
#define _cleanup_box_ __attribute__((cleanup(free_box_p)))

extern const struct jx_field job_no_fields[]; /* of a body without fields */

/* Decodes the body by a table, as jx_decode(). */
int job_decode(struct job *j, const struct jx_field *fields, void *out, struct err *e);
/* A parameter of the query that is a number; *ret is left alone if it is not there. */
int job_number(struct job *j, const char *name, int64_t min, int64_t max, int64_t *ret,
               struct err *e);
/* The reply; v NULL: out of memory. Takes v. */
int job_reply_take(struct job *j, json_t *v, struct err *e);
/* The reply is text that the library made; NULL is no JSON. Takes text. */
int job_reply_json_take(struct job *j, char *text, struct err *e);

/*
 * The box that the path names, by its name or id. bh_box_free() the handle. A box of an owner is not there for the
 * tokens of other owners.
 */
int job_box(struct job *j, struct bh_box **ret, struct err *e);
/* The same by a name or id. */
int job_find_seen_box(const struct request *q, struct bh_ctx *ctx, const char *name,
                      struct bh_box **ret, struct err *e);
/* Whoever asks: the caller checks the owner. */
int job_find_box(struct bh_ctx *ctx, const char *box, struct bh_box **ret, struct err *e);
/* Refuses a parameter that is not in the NULL-terminated list. */
int job_check_query(struct request *q, const char *const *known, struct err *e);
/* The same without a handle; also of a box that is destroyed and has a record. */
int job_check_box(struct job *j, struct err *e);
/* May the sender use this snapshot? Its owner is that of its box. One that is not there may pass. */
int job_check_snapshot(struct job *j, const char *name, struct err *e);
/* As contexts_error(). */
int job_fail(struct err *e, int r, const struct bh_error *error);
