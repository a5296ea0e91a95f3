#pragma once
/*
 * read: a whole archive from a pump into a stage, with every check that the stream itself
 * allows: compression checksums, nothing but zeros after a compressed stream, the two zero blocks that end a tar, nothing but zeros after
 * them, a zip's central directory.
 */
#include <stdint.h>

#include "archive/stage.h"
#include "common/err.h"
#include "event/pump.h"

/*
 * Reads to the end. pool: for unpacking ahead, or NULL.
 * *ret_format: a name of format.h. The identity must have been taken.
 */
int archive_read_stream(struct pump *in, struct pool *pool, struct stage *s,
                        const char **ret_format, struct err *e);
