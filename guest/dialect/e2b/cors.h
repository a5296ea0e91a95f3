#pragma once
/*
 * cors: what lets the pages of a browser call E2B's routes (its SDK runs there): of an agent with a
 * token, and of an open one with --cors.
 */
#include "http/request.h"

/* Whether this asks what a page may do: it is answered before anything is checked. Then *ret is the
 * route that answers. */
bool cors_is_preflight(struct request *q, const char *verb, const struct route **ret);
/* The headers of every other reply, where there is an Origin. */
void cors_add_headers(struct request *q, struct MHD_Response *response);
