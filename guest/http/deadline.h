#pragma once
/*
 * deadline: a timer of a request. It calls request_make_late() at the deadline that the client set
 * (Connect-Timeout-Ms), or request_wake() at the end of a bounded wait; the handler, which is woken, does
 * the rest. The timer runs in the loop.
 */
#include "common/err.h"
#include "http/request.h"

#define DEADLINE_MAX_MS INT64_C(9999999999) /* ten digits, as the Connect protocol has it */

struct deadline;

/* Call it on the request's thread, before the request parks. due is called on the loop's thread. */
int deadline_new(struct request *q, int64_t in_ms, void (*due)(struct request *q),
                 struct deadline **ret, struct err *e);
/* Call it when the request is over; accepts NULL. */
void deadline_drop(struct deadline *d);
