#pragma once
/*
 * read: a whole archive from a stream into a stage, with every check that the stream itself
 * allows: compression checksums, the two zero blocks that end a tar, nothing but zeros after
 * them, a zip's central directory. One thread.
 */
#include <stdint.h>

#include "archive/pipe.h"
#include "archive/stage.h"
#include "common/err.h"

/* *ret_format: a name of format.h. The identity must have been taken. */
int archive_read_stream(struct pipe_ring *in, struct stage *s, const char **ret_format,
                        struct err *e);
