#pragma once
/*
 * route: request targets, and the table of routes: each row maps verbs of a path to a handler. Several rows may have
 * one path: a verb takes the first of them that lists it. Pure functions.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"

enum verb {
    VERB_NONE = 0,
    VERB_GET = 1 << 0,
    VERB_HEAD = 1 << 1,
    VERB_POST = 1 << 2,
    VERB_PUT = 1 << 3,
    VERB_PATCH = 1 << 4,
    VERB_DELETE = 1 << 5,
    VERB_OPTIONS = 1 << 6,
    VERB_OTHER = 1 << 7,
};
#define VERB_ANY 0xffu /* the handler decides */

#define ROUTE_OPEN (1u << 0)      /* needs no token */
#define ROUTE_RESERVE (1u << 1)   /* answers on the connections kept in reserve */
#define ROUTE_QUIET (1u << 2)     /* does not count as use */
#define ROUTE_REST (1u << 3)      /* the row's path is a prefix */
#define ROUTE_CHANGES (1u << 4)   /* changes something: refused by a service that is read-only */
#define ROUTE_SLOW_BODY (1u << 5) /* its body has no stall timeout */
#define ROUTE_PAGES (1u << 6) /* made for web pages too: an Origin header is no reason to refuse */
#define ROUTE_OWN_PAGES (1u << 7) /* pages that it has served may call it */
#define ROUTE_RELAYS (1u << 8)    /* passes Authorization on: it may be for another server */

struct request_ops;

struct route {
    const char *name; /* for the metrics */
    const char *path;
    unsigned verbs;
    unsigned flags;
    uint64_t max_body_bytes; /* UINT64_MAX: bounded by the handler */
    const struct request_ops *ops;
    const char *summary; /* for the OpenAPI document */
};

/* The result of a lookup. */
struct route_match {
    const struct route *route; /* NULL: nothing has this path */
    const char *rest;          /* raw, behind the path of a row with ROUTE_REST; or NULL */
    unsigned verbs;            /* all that the path has */
    /* The service's; http keeps them in the request and never looks at them: */
    const void *group;  /* the table of the row */
    const void *method; /* the remote call behind the path; NULL: none */
    int counter;        /* of its metrics */
};

/*
 * Returns the row for a raw path and a verb, and sets match->rest and match->verbs. If no row of the path
 * has the verb, the first row of the path. NULL: no row has the path.
 */
const struct route *route_find(const struct route *routes, size_t n, const char *path, size_t len,
                               enum verb verb, struct route_match *match);

enum verb verb_parse(const char *name);
/* Named verb i, in the order of the Allow header; VERB_NONE past the last. */
enum verb verb_at(size_t i, const char **ret_name);
/* Writes "GET, HEAD", for the Allow header. */
void route_allow(unsigned verbs, char *out, size_t size);

/* ---- request targets, raw as they came on the wire: split first, then decode ---- */

#define URI_MAX_BYTES (16 * 1024)

/* How long "http://" or "https://" is at the start of a target in absolute form; 0: it is in none. */
size_t uri_scheme_len(const char *target);

/* Decodes %XX in s[0..len); a NUL, bare or encoded, is refused. *ret is the caller's. */
int uri_decode(const char *s, size_t len, char **ret, struct err *e);

/* The decoded value of a parameter in a raw query ("a=1&b=x%20y"; '+' is a space), or NULL when
 * it is absent. A parameter that comes twice is refused. */
int uri_query_get(const char *query, const char *name, char **ret, struct err *e);

/* All of its values, in order, for one that may come several times: NULL-terminated, owned
 * (strv_free()); NULL when there is none. */
int uri_query_all(const char *query, const char *name, size_t max, char ***ret, struct err *e);

/* The first parameter whose name is not in the NULL-terminated list, decoded, or NULL. */
int uri_query_unknown(const char *query, const char *const *known, char **ret, struct err *e);
