#pragma once
/* image_agents: the coding agents that a template bakes in, fetched as bootstrap would. */
#include "lib/image/template.h"

/*
 * Writes <dir>/agents: for each of t->agents a line "NAME VERSION TARBALL COMMAND...", the tarball a
 * checked file of the cache, the command what runs it in the box; and the same in each dir/from.
 */
int image_agents_write(struct bh_ctx *ctx, const struct template *t, const char *dir,
                       int64_t deadline_mono_ms, struct err *e);
