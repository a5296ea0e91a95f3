#pragma once
/*
 * read: a whole archive from a pump into a stage, with every check that the stream itself
 * allows: compression checksums, the two zero blocks that end a tar, nothing but zeros after
 * them, a zip's central directory.
 */
#include <stdint.h>

#include "archive/stage.h"
#include "common/err.h"
#include "event/pump.h"

/*
 * Reads to the end. pool: for unpacking ahead, or NULL. *packed counts the bytes read (atomic).
 * *ret_format: a name of format.h. The identity must have been taken.
 */
int archive_read_stream(struct pump *in, struct pool *pool, struct stage *s, uint64_t *packed,
                        const char **ret_format, struct err *e);
