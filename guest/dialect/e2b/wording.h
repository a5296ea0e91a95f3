#pragma once
/* wording: errors in the two shapes that E2B's clients know. NULL: out of memory. */
#include <jansson.h>

#include "common/err.h"

/* Of the REST routes: {"code":404,"message":"..."}. */
json_t *wording_new_rest_error(const struct err *error, int status);
/* Of the methods: code and message are all that Connect has; drops the rest. */
void wording_make_rpc_error(struct err *error);
/* A deadline that the client set is over: in Connect's own words. */
int wording_deadline(struct err *e);
