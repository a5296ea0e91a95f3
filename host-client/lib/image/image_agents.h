#pragma once
/* image_agents: fetches the coding agents that a template bakes in, as the bootstrap would. */
#include "lib/image/template.h"

/*
 * Writes <dir>/agents with a line "NAME VERSION TARBALL COMMAND..." for each of t->agents: TARBALL
 * is a verified file of the cache, COMMAND runs the agent in the box. Does the same for each
 * dir/from.
 */
int image_agents_write(struct bh_ctx *ctx, const struct template *t, const char *dir,
                       int64_t deadline_mono_ms, struct err *e);
