#pragma once
/* service: the daemon as http sees it: routes, access, error bodies. */
#include <jansson.h>

#include "common/err.h"
#include "daemon/routes.h"
#include "http/server.h"

extern const struct http_service daemon_service; /* its owner: struct daemon */
extern const struct request_ops health_ops;

const struct api_route *request_row(const struct request *q);
struct daemon *request_daemon(const struct request *q);

/* Does the client have the scope of an administrator? */
bool request_is_admin(const struct request *q);
