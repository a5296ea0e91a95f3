#pragma once
/*
 * contexts: contexts of libbellhop, which one thread at a time may use, for the jobs of the pool. A few that are not
 * in use stay open: to open one reads the store's schema. Thread-safe.
 */
#include "bellhop/bellhop.h"
#include "common/err.h"

#define CONTEXTS_KEPT 8

struct contexts;

/* options: kept by the caller; its strings too. */
int contexts_new(const struct bh_options *options, struct contexts **ret, struct err *e);
struct contexts *
contexts_free(struct contexts *c); /* all were given back; accepts NULL; returns NULL */

/* actor: the author of the events that the job causes. Blocks. */
int contexts_take(struct contexts *c, const char *actor, struct bh_ctx **ret, struct err *e);
void contexts_give(struct contexts *c, struct bh_ctx *ctx); /* accepts NULL */

/* Sets the error to one of libbellhop; returns r. */
int contexts_error(struct err *e, int r, const struct bh_error *error);
