#pragma once
/*
 * upload_stream: a list of files as a tar.zst, pulled piece by piece with bounded memory. A small
 * file is read whole before its header is written, a large one is sent in pieces.
 */
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"
#include "lib/util/context.h"
#include "lib/project/gitfiles.h"

#define UPLOAD_SMALL_BYTES (1024 * 1024)
/* produced and not yet taken: a piece and zstd's window */
#define UPLOAD_OUT_BYTES (8 * 1024 * 1024)

struct upload_stream;

/* Borrows files, which must be at its beginning. */
int upload_stream_new(struct bh_ctx *ctx, struct gitfiles *files, struct upload_stream **ret,
                      struct err *e);
struct upload_stream *upload_stream_free(struct upload_stream *s); /* accepts NULL */

/* For client_put_archive(): at most max bytes, 0 at the end, a negative error. ERR_ABORTED
 * names a file that became shorter while it was read. A vanished file is skipped. */
int64_t upload_stream_read(void *stream, char *out, size_t max, struct err *e);
