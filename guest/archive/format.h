#pragma once
/*
 * format: the archive formats, one row each: names, media type, magic bytes, and how libarchive
 * reads and writes them. A new format is a new row, a word in the schemas of the routes, docs and a
 * test.
 */
#include <stdbool.h>
#include <stddef.h>

#include "common/err.h"

#define ARCHIVE_MAGIC_BYTES 6 /* of an archive's start, for archive_format_detect() */

struct archive;

enum archive_reader {
    ARCHIVE_READ_PLAIN,  /* a tar without compression */
    ARCHIVE_READ_ZLIB,   /* libarchive ignores a gzip stream's checksum, zlib does not */
    ARCHIVE_READ_FILTER, /* through read_filter */
    ARCHIVE_READ_ZIP,    /* not a stream: its directory is at the end */
};

struct archive_format {
    const char *name;       /* on the wire */
    const char *short_name; /* accepted instead of it; or NULL */
    const char *media_type;
    struct {
        const char *bytes;
        size_t len;
    } magic[2]; /* the first bytes of such an archive are one of these */
    enum archive_reader reader;
    int (*read_filter)(struct archive *a);
    bool can_write;
    int (*write_filter)(struct archive *a); /* NULL: no compression */
    const char *timestamp_module;           /* writes the time of day unless its option is off */
};

/* The format that is created under this name; -ERR_INVALID with field "format". */
int archive_format_parse(const char *name, const struct archive_format **ret, struct err *e);

/* By an archive's first bytes, at least ARCHIVE_MAGIC_BYTES unless it is shorter. Plain tar if no
 * magic matches. */
const struct archive_format *archive_format_detect(const void *head, size_t len);
