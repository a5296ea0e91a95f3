#pragma once
/* compose: POST /files/compose: several files become one, in their order, and are gone. Blocks. */
#include <jansson.h>
#include <stddef.h>

#include "common/err.h"

#define COMPOSE_MAX_BYTES (1024 * 1024) /* of the request */
#define COMPOSE_MAX_SOURCES 10000

struct agent;

/*
 * text: {"source_paths":[...],"destination":...,"username"?:...}. The destination is complete or
 * unchanged; the sources are removed only after success. *ret: {"path","name","type"}, the
 * caller's. Errors in the words of envd; for want of room -ERR_EXHAUSTED with e->sys ENOSPC.
 */
int compose_files(const struct agent *a, const char *text, size_t len, json_t **ret, struct err *e);
