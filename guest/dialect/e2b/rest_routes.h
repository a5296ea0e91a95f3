#pragma once
/* handlers: what E2B's routes do; see the file named beside each. */
#include "http/request.h"

/* request_ops.body for those that a body tells nothing, as envd takes it with a GET. (ops.c) */
int e2b_drop_body(struct request *q, const char *data, size_t *len, struct err *e);

extern const struct request_ops e2b_health_ops;    /* ops.c */
extern const struct request_ops e2b_init_ops;      /* ops.c */
extern const struct request_ops e2b_envs_ops;      /* ops.c */
extern const struct request_ops e2b_metrics_ops;   /* ops.c */
extern const struct request_ops e2b_unknown_ops;   /* ops.c */
extern const struct request_ops e2b_preflight_ops; /* cors.c */
extern const struct request_ops e2b_files_ops;     /* files.c: by verb: */
extern const struct request_ops e2b_file_get_ops;  /* file_get.c */
extern const struct request_ops e2b_file_post_ops; /* file_post.c */
extern const struct request_ops e2b_compose_ops;   /* compose.c */
