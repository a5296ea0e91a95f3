#pragma once
/*
 * deadline: a request that must be over by a time of its client's choosing (Connect-Timeout-Ms).
 * When the time comes, request_is_late() is true from then on and the request is woken; whoever
 * waits on its behalf ends it. The clock is the loop's.
 */
#include "common/err.h"
#include "server/request.h"

#define DEADLINE_MAX_MS INT64_C(9999999999) /* ten digits, as the Connect protocol has it */

struct deadline;

/* On the request's thread, before it parks. */
int deadline_new(struct request *q, int64_t in_ms, struct deadline **ret, struct err *e);
/* When the request is over; accepts NULL. */
void deadline_drop(struct deadline *d);

/* Sets the error of a request that is late: deadline_exceeded. */
int deadline_error(struct err *e);
