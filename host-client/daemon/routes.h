#pragma once
/*
 * routes: the REST API as a table (routes.def): a path with the names of its variable segments in braces, the verb,
 * who may call it, and the function that answers. The OpenAPI document and the tests of scopes come from the same rows.
 */
#include <stdbool.h>
#include <stddef.h>

#include "common/err.h"
#include "http/route.h"

struct job;
struct request;

/* The rights of a token; each has those before it. */
enum scope {
    SCOPE_OPEN,  /* needs no token */
    SCOPE_READ,  /* look at boxes and events */
    SCOPE_USE,   /* run commands in boxes, change their files and states */
    SCOPE_ADMIN, /* make and remove boxes of all owners, tokens, settings */
};

#define ROUTE_MAX_PARAMS 3

struct api_route {
    struct route route; /* .ops says how the body and the reply travel */
    const char *path;   /* "/v1/boxes/{box}/pause"; "{path...}" at the end takes all that follows */
    enum scope scope;
    const char *const *query; /* with job_ops: the parameters that it takes, NULL-terminated */
    /*
     * With gateway_ops: the path at the box's agent, which takes the place of all that stands between the box and the
     * next variable. NULL: the daemon answers.
     */
    const char *guest_path;
    /* With job_ops: the function that answers. */
    int (*answer)(struct job *j, struct err *e);
};

/* The row for a raw path and a verb; ret->verbs: all that the path has. As route_find(). */
const struct api_route *routes_find(const char *path, size_t len, enum verb verb,
                                    struct route_match *ret);
const struct api_route *routes_at(size_t i); /* NULL past the last */

/* Decodes the variable segments of a raw path, in order; each is owned. The rest is left out. */
int routes_params(const struct api_route *row, const char *path, char *ret[ROUTE_MAX_PARAMS],
                  struct err *e);
