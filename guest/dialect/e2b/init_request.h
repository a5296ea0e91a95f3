#pragma once
/*
 * init: what the control plane says and asks beside files and processes: POST /init, GET /envs, GET
 * /metrics.
 */
#include <jansson.h>
#include <stddef.h>

#include "common/err.h"

struct agent;

#define INIT_MAX_BYTES (1024 * 1024)

/*
 * The body of an /init (may be empty). -ERR_UNAUTHENTICATED: its token is not the one that is set.
 * Any failure: nothing has changed. One that is older than the newest seen is right, and ignored.
 * Blocks.
 */
int e2b_init(struct agent *a, const char *body, size_t len, struct err *e);
/* {"NAME":"value"}: what every command gets. */
int e2b_envs(struct agent *a, json_t **ret, struct err *e);
/* Blocks. */
int e2b_metrics(struct agent *a, json_t **ret, struct err *e);
