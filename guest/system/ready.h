#pragma once
/*
 * ready: what System.Ready keeps between calls: the tools' answers, for READY_KEEP_MS and only
 * when all that is required worked, and what can be limited, which does not change. Thread-safe.
 */
#include "common/err.h"

#define READY_KEEP_MS 3000

struct ready_cache;

int ready_cache_new(struct ready_cache **ret, struct err *e);
struct ready_cache *ready_cache_free(struct ready_cache *c); /* accepts NULL; returns NULL */
