#pragma once
/*
 * gate: what every request passes once its headers are there, one line a check, before a byte of
 * its body is read. On failure *ret_status is the HTTP status when it is not the code's own.
 */
#include "common/err.h"
#include "http/request.h"

/* Finds the route, and fills verb, path, query, rest, declared and the rest of the request. */
int gate_check(struct request *q, const char *verb, const char *version, int *ret_status,
               struct err *e);

/* The error for a body over the route's bound. */
int gate_too_large(const struct request *q, struct err *e);

#define GATE_TOO_LARGE_STATUS 413
