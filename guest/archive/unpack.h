#pragma once
/*
 * unpack: a compressed stream as plain bytes, pulled. The kind is told by the first bytes. gzip
 * is read through zlib (libarchive does not look at its checksum), the others through libarchive's
 * filters. One thread.
 */
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/err.h"

#define UNPACK_BLOCK_BYTES (128 * 1024)

/* Gives a piece that stays valid until the next call: its length, 0 at the end, or negative. */
typedef ssize_t (*unpack_source_fn)(void *arg, const void **ret_data, struct err *e);

enum unpack_kind {
    UNPACK_NONE, /* not compressed: tar, or nothing we know */
    UNPACK_GZIP,
    UNPACK_BZIP2,
    UNPACK_XZ,
    UNPACK_ZSTD,
    UNPACK_ZIP, /* not a stream: for the caller to spool */
};

#define UNPACK_MAGIC_BYTES 6
enum unpack_kind unpack_detect(const void *head, size_t len);

struct unpack;

int unpack_new(enum unpack_kind kind, unpack_source_fn source, void *arg, struct unpack **ret,
               struct err *e);
/* As the source's, but of plain bytes. At the end the stream's own checksums were right. */
ssize_t unpack_read(struct unpack *u, const void **ret_data, struct err *e);
struct unpack *unpack_free(struct unpack *u); /* accepts NULL; returns NULL */
