#pragma once
/*
 * agents: connections to the guest agents of the boxes, for requests that are passed through. The first request for a
 * box looks it up, wakes it, checks that its agent listens, and holds it (bh_hold) on a worker, once for all requests
 * that wait. The ones after it connect at once. The hold ends AGENTS_LINGER_MS after the last of them. An
 * event of the box makes the next request look again.
 */
#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"

#define AGENTS_LINGER_MS 5000
#define AGENTS_WAKE_MS 90000 /* a request waits so long for its box */

struct agents;
struct daemon;
struct deadline;
struct known_agent;
struct request;

int agents_new(struct daemon *d, struct agents **ret, struct err *e);
/* Something happened to the box. From any thread. */
void agents_forget(struct agents *a, const char *box_id);
void agents_sweep(struct agents *a, int64_t now_ms); /* every second */
/* When no worker and no request is left. Accepts NULL; returns NULL. */
struct agents *agents_free(struct agents *a);

/* A request's use of an agent. Embedded in its state; zeroed. */
struct agent_use {
    struct request *request;
    struct known_agent *agent;
    struct deadline *deadline;
    unsigned n_tries;
    bool is_waiting; /* guarded by the lock of the agents, and the next */
    struct agent_use *next;
};

/*
 * As request_ops.begin: connects to the agent of the box with this name or id. REQUEST_PARKED: call it again.
 * *ret_fd is the caller's. ERR_NOT_FOUND with the detail "gone": the box is destroyed. ERR_DEADLINE: AGENTS_WAKE_MS.
 */
int agents_connect(struct request *q, struct agent_use *u, const char *box, int *ret_fd,
                   struct err *e);
/* After it: */
const char *agents_token(const struct agent_use *u);
const char *agents_box_id(const struct agent_use *u);
/* The request is over. */
void agents_leave(struct agent_use *u);
