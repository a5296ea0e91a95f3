#pragma once
/*
 * deadline: something that is to happen to a request at a time: request_make_late() where it must be
 * over by a time of its client's choosing (Connect-Timeout-Ms), request_wake() where it has waited
 * long enough. Whoever waits on its behalf sees to the rest. The clock is the loop's.
 */
#include "common/err.h"
#include "http/request.h"

#define DEADLINE_MAX_MS INT64_C(9999999999) /* ten digits, as the Connect protocol has it */

struct deadline;

/* On the request's thread, before it parks. due is called on the loop's. */
int deadline_new(struct request *q, int64_t in_ms, void (*due)(struct request *q),
                 struct deadline **ret, struct err *e);
/* When the request is over; accepts NULL. */
void deadline_drop(struct deadline *d);
