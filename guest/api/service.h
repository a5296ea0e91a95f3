#pragma once
/* service: the agent as http sees it, and what the handlers of its routes find in a request. */
#include <jansson.h>

#include "agent.h"
#include "api/dialect.h"
#include "http/request.h"

extern const struct http_service agent_service; /* its owner: struct agent */

struct agent *request_agent(const struct request *q);
/* Of the route; of a request without one the first dialect's. */
const struct dialect *request_dialect(const struct request *q);
const struct rpc_method *request_method(const struct request *q);
const struct codec *request_codec(const struct request *q);

int respond_json(struct request *q, int status, const json_t *body, struct err *e);
/* The error as {"code","message","field"}, or an RFC 9457 problem with these beside its members. */
int service_write_json_error(const struct request *q, const struct err *error,
                             struct error_reply *ret, struct err *e);
