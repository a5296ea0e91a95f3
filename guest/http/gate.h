#pragma once
/*
 * gate: the checks of every request, when its headers are there and before its body is read. On failure
 * *ret_status is the HTTP status if it differs from that of the error's code.
 */
#include "common/err.h"
#include "http/request.h"

/* Finds the route, and fills verb, path, query, rest, declared and the rest of the request. */
int gate_check(struct request *q, const char *verb, const char *version, int *ret_status,
               struct err *e);

/* Sets the error for a body that exceeds the route's bound. */
int gate_too_large(const struct request *q, struct err *e);

#define GATE_TOO_LARGE_STATUS 413
