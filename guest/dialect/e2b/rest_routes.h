#pragma once
/* rest_routes: the handlers of E2B's REST routes; see the file named beside each. */
#include "http/request.h"

#define COMPOSE_MAX_BYTES (1024 * 1024) /* of a request to compose */

/* request_ops.body of a route that ignores its body, as envd does. The route bounds it. */
int e2b_drop_body(struct request *q, const char *data, size_t *len, struct err *e);

extern const struct request_ops e2b_health_ops; /* rest_routes.c */
extern const struct request_ops e2b_init_ops;
extern const struct request_ops e2b_envs_ops;
extern const struct request_ops e2b_metrics_ops;
extern const struct request_ops e2b_unknown_ops;
extern const struct request_ops e2b_compose_ops;   /* compose.c */
extern const struct request_ops e2b_file_get_ops;  /* file_download.c */
extern const struct request_ops e2b_file_post_ops; /* file_post.c */
