#pragma once
/* headers: what E2B's methods take out of a request's headers. */
#include "api/rpc.h"
#include "http/request.h"

#define E2B_REPLAY_HEADER "Bellhop-Replay" /* ours: what a command wrote before comes first */

/* *ret_user: the memory of call->user, the caller's to free. ERR_INVALID: a time that is none. */
int e2b_read_headers(struct request *q, struct rpc_call *call, char **ret_user, struct err *e);
