#include "archive/format.h"

#include <archive.h>
#include <string.h>

#include "common/buf.h"
#include "common/cleanup.h"

#define NAMES_MAX_BYTES 256

/* The first row is plain tar. */
static const struct archive_format archive_formats[] = {
    {
        .name = "tar",
        .media_type = "application/x-tar",
        .reader = ARCHIVE_READ_PLAIN,
        .can_write = true,
    },
    {
        .name = "tar.gz",
        .short_name = "tgz",
        .media_type = "application/gzip",
        .magic = {{"\x1f\x8b", 2}},
        .reader = ARCHIVE_READ_ZLIB,
        .can_write = true,
        .write_filter = archive_write_add_filter_gzip,
        .timestamp_module = "gzip",
    },
    {
        .name = "tar.bz2",
        .media_type = "application/x-bzip2",
        .magic = {{"BZh", 3}},
        .reader = ARCHIVE_READ_FILTER,
        .read_filter = archive_read_support_filter_bzip2,
    },
    {
        .name = "tar.xz",
        .media_type = "application/x-xz",
        .magic = {{"\xfd\x37zXZ\0", 6}},
        .reader = ARCHIVE_READ_FILTER,
        .read_filter = archive_read_support_filter_xz,
    },
    {
        .name = "tar.zst",
        .short_name = "tzst",
        .media_type = "application/zstd",
        .magic = {{"\x28\xb5\x2f\xfd", 4}},
        .reader = ARCHIVE_READ_FILTER,
        .read_filter = archive_read_support_filter_zstd,
        .can_write = true,
        .write_filter = archive_write_add_filter_zstd,
    },
    {
        .name = "zip",
        .media_type = "application/zip",
        .magic = {{"PK\x03\x04", 4}, {"PK\x05\x06", 4}},
        .reader = ARCHIVE_READ_ZIP,
    },
};

static int format_refuse(const char *name, struct err *e)
{
    _cleanup_buf_ struct buf known;

    buf_init(&known, NAMES_MAX_BYTES);
    for (size_t i = 0; i < N_ELEMENTS(archive_formats); i++)
        if (archive_formats[i].can_write)
            (void)buf_addf(&known, NULL, "%s%s", known.len ? ", " : "", archive_formats[i].name);
    return err_field(e, ERR_INVALID, "format", "format '%.32s' is none of %s", name, known.data);
}

int archive_format_parse(const char *name, const struct archive_format **ret, struct err *e)
{
    for (size_t i = 0; i < N_ELEMENTS(archive_formats); i++) {
        const struct archive_format *f = &archive_formats[i];

        if (f->can_write &&
            (strcmp(f->name, name) == 0 || (f->short_name && strcmp(f->short_name, name) == 0))) {
            *ret = f;
            return 0;
        }
    }
    return format_refuse(name, e);
}

const struct archive_format *archive_format_detect(const void *head, size_t len)
{
    for (size_t i = 0; i < N_ELEMENTS(archive_formats); i++) {
        const struct archive_format *f = &archive_formats[i];

        for (size_t k = 0; k < N_ELEMENTS(f->magic); k++)
            if (f->magic[k].len && len >= f->magic[k].len &&
                memcmp(head, f->magic[k].bytes, f->magic[k].len) == 0)
                return f;
    }
    return &archive_formats[0];
}
