#pragma once
/* handlers: what the routes do, one set of functions a route; see the file named beside each. */
#include "http/request.h"

extern const struct request_ops call_ops;          /* call.c: /bellhop.v1.Service/Method */
extern const struct request_ops inflow_ops;        /* inflow.c: those to which the client streams */
extern const struct request_ops health_ops;        /* ops.c */
extern const struct request_ops ready_ops;         /* ops.c */
extern const struct request_ops metrics_ops;       /* ops.c */
extern const struct request_ops openapi_ops;       /* openapi.c */
extern const struct request_ops file_get_ops;      /* file_get.c */
extern const struct request_ops file_put_ops;      /* file_put.c */
extern const struct request_ops file_delete_ops;   /* file_delete.c */
extern const struct request_ops file_options_ops;  /* file_delete.c */
extern const struct request_ops upload_look_ops;   /* uploads.c: GET, HEAD, DELETE */
extern const struct request_ops upload_append_ops; /* uploads.c: PATCH */
extern const struct request_ops archive_get_ops;   /* archive_get.c */
extern const struct request_ops archive_put_ops;   /* archive_put.c */
extern const struct request_ops proxy_ops;         /* proxy.c */
extern const struct request_ops tunnel_ops;        /* tunnel.c */
