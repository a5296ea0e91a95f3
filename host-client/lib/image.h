#pragma once
/* image: from what was asked for (a name, or a directory) to the directory with rootfs/ in it. */
#include "common/err.h"
#include "lib/context.h"

/* The real path, so that a box stays with the image that it was made from when the name moves
 * on to a newer one. free() it. */
int image_resolve(const struct bh_ctx *ctx, const char *image, char **ret_dir, struct err *e);
