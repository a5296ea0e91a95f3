#pragma once
/*
 * unpack: a compressed stream as plain bytes, pulled. zlib reads gzip (libarchive ignores its
 * checksum), libarchive's filters read the others. One thread at a time.
 */
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "archive/format.h"
#include "common/err.h"

#define UNPACK_BLOCK_BYTES (128 * 1024)

/* Returns the length of a piece that stays valid until the next call; 0 at the end, or an error. */
typedef ssize_t (*unpack_source_fn)(void *arg, const void **ret_data, struct err *e);

struct unpack;

/* format: any but zip, which is not a stream. */
int unpack_new(const struct archive_format *format, unpack_source_fn source, void *arg,
               struct unpack **ret, struct err *e);
/* The same, of plain bytes. 0 also means that the stream's own checksums were right. */
ssize_t unpack_read(struct unpack *u, const void **ret_data, struct err *e);
/*
 * After the end of the plain bytes: reads the source to its end. -ERR_INVALID: more than zeros
 * comes after the stream, which nothing would look at.
 */
int unpack_finish(struct unpack *u, struct err *e);
struct unpack *unpack_free(struct unpack *u); /* accepts NULL; returns NULL */
