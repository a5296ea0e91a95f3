#pragma once
/*
 * route: rows of a table that says what answers which verbs of which path. A path that several rows
 * have is one resource: each verb takes the first row that lists it.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum verb {
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
#define ROUTE_REST (1u << 3)      /* the path goes on behind the row's */
#define ROUTE_CHANGES (1u << 4)   /* changes something: refused by a service that is read-only */
#define ROUTE_SLOW_BODY (1u << 5) /* its body may pause for as long as it likes */
#define ROUTE_PAGES (1u << 6) /* made for web pages too: an Origin header alone refuses nothing */
#define ROUTE_OWN_PAGES (1u << 7) /* of these the pages that it has served may call */

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

/* What a request target leads to. */
struct route_match {
    const struct route *route; /* NULL: nothing has this path */
    const char *rest;          /* raw, behind the path of a row with ROUTE_REST; or NULL */
    unsigned verbs;            /* all that the path has */
    /* The service's; http keeps them in the request and never looks at them: */
    const void *group;  /* the table that the row is of */
    const void *method; /* the remote call behind the path; NULL: none */
    int counter;        /* of its metrics */
};

/*
 * The row for a raw path and a verb, and match->rest and match->verbs. No row has the verb: the first
 * that has the path. NULL: none has.
 */
const struct route *route_find(const struct route *routes, size_t n, const char *path, size_t len,
                               enum verb verb, struct route_match *match);

enum verb verb_parse(const char *name);
/* Verb i of those that have a name, and 0 past the last: in the order of the Allow header. */
enum verb verb_at(size_t i, const char **ret_name);
/* "GET, HEAD" for the Allow header. */
void route_allow(unsigned verbs, char *out, size_t size);
