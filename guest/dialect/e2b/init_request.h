#pragma once
/*
 * init_request: the routes of envd for the control plane: POST /init, GET /envs, GET /metrics.
 */
#include <jansson.h>
#include <stddef.h>

#include "common/err.h"

struct agent;

#define INIT_MAX_BYTES (1024 * 1024)

/*
 * Runs an /init; its body may be empty. -ERR_UNAUTHENTICATED: its token is not the one that is set. On failure nothing
 * has changed. An /init that is older than the newest one seen succeeds and is ignored. Blocks.
 */
int e2b_init(struct agent *a, const char *body, size_t len, struct err *e);
/* {"NAME":"value"}: the environment of every command. */
int e2b_envs(struct agent *a, json_t **ret, struct err *e);
/* Blocks. */
int e2b_metrics(struct agent *a, json_t **ret, struct err *e);
