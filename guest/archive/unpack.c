#include "archive/unpack.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

struct unpack {
    const struct archive_format *format;
    unpack_source_fn source;
    void *arg;
    struct err source_err; /* of the source, when it failed below libarchive */

    struct archive *raw; /* bzip2, xz, zstd */
    uint64_t raw_bytes;  /* given to it */
    uint64_t raw_zeros;  /* how many of the last of these are zero */

    z_stream z; /* gzip */
    bool z_open;
    bool z_in_member;
    bool is_eof;
    uint8_t *out; /* UNPACK_BLOCK_BYTES */
};

/* ---- gzip ------------------------------------------------------------------------------------ */

static int gzip_open(struct unpack *u, struct err *e)
{
    u->out = malloc(UNPACK_BLOCK_BYTES);
    if (!u->out || inflateInit2(&u->z, 15 + 16) != Z_OK)
        return err_oom(e);
    u->z_open = true;
    u->z_in_member = true;
    return 0;
}

/* 1: there is input; 0: the source is at its end. */
static int gzip_fill(struct unpack *u, struct err *e)
{
    const void *data;
    ssize_t n;

    if (u->z.avail_in)
        return 1;
    n = u->is_eof ? 0 : u->source(u->arg, &data, e);
    if (n < 0)
        return (int)n;
    if (n == 0) {
        u->is_eof = true;
        return 0;
    }
    u->z.next_in = (z_const Bytef *)data;
    u->z.avail_in = (uInt)n;
    return 1;
}

/* Between two members: zeros may pad the end, anything else has to be another member. */
static int gzip_next_member(struct unpack *u, struct err *e)
{
    for (;;) {
        int r = gzip_fill(u, e);

        if (r <= 0)
            return r;
        if (*u->z.next_in)
            break;
        u->z.next_in++;
        u->z.avail_in--;
    }
    if (inflateReset(&u->z) != Z_OK)
        return err_set(e, ERR_INTERNAL, "zlib can't start again");
    u->z_in_member = true;
    return 1;
}

static ssize_t gzip_read(struct unpack *u, const void **ret_data, struct err *e)
{
    int r, z;

    u->z.next_out = u->out;
    u->z.avail_out = UNPACK_BLOCK_BYTES;
    while (u->z.avail_out) {
        r = u->z_in_member ? gzip_fill(u, e) : gzip_next_member(u, e);
        if (r < 0)
            return r;
        if (r == 0 && u->z_in_member)
            return err_set(e, ERR_INVALID, "the gzip stream is cut short");
        if (r == 0)
            break;
        z = inflate(&u->z, Z_NO_FLUSH);
        if (z == Z_MEM_ERROR)
            return err_oom(e);
        if (z != Z_OK && z != Z_STREAM_END && z != Z_BUF_ERROR)
            return err_set(e, ERR_INVALID, "the gzip stream is damaged: %s",
                           u->z.msg ? u->z.msg : "bad data");
        if (z == Z_STREAM_END)
            u->z_in_member = false;
    }
    *ret_data = u->out;
    return (ssize_t)(UNPACK_BLOCK_BYTES - u->z.avail_out);
}

/* ---- libarchive's filters -------------------------------------------------------------------- */

static ssize_t raw_next(struct unpack *u, const void **ret_data, struct err *e)
{
    ssize_t n = u->source(u->arg, ret_data, e);
    const char *end = n > 0 ? (const char *)*ret_data + n : NULL;
    size_t zeros = 0;

    if (n <= 0)
        return n;
    while (zeros < (size_t)n && end[-1 - (ssize_t)zeros] == 0)
        zeros++;
    u->raw_zeros = zeros == (size_t)n ? u->raw_zeros + zeros : zeros;
    u->raw_bytes += (uint64_t)n;
    return n;
}

static la_ssize_t raw_source(struct archive *a, void *arg, const void **ret_data)
{
    struct unpack *u = arg;
    ssize_t n = raw_next(u, ret_data, &u->source_err);

    if (n < 0) {
        archive_set_error(a, EIO, "%s", u->source_err.message);
        return ARCHIVE_FATAL;
    }
    return n;
}

static int raw_fail(struct unpack *u, struct err *e)
{
    const char *why = archive_error_string(u->raw);

    if (u->source_err.code) {
        if (e)
            *e = u->source_err;
        return -u->source_err.code;
    }
    return err_set(e, ERR_INVALID, "the compressed stream is damaged: %s", why ? why : "bad data");
}

static int raw_open(struct unpack *u, struct err *e)
{
    struct archive_entry *entry;
    int r;

    u->raw = archive_read_new();
    if (!u->raw)
        return err_oom(e);
    if (u->format->read_filter(u->raw) != ARCHIVE_OK)
        return err_set(e, ERR_UNIMPLEMENTED, "this build can't read that compression");
    (void)archive_read_support_format_raw(u->raw);
    if (archive_read_open(u->raw, u, NULL, raw_source, NULL) != ARCHIVE_OK)
        return raw_fail(u, e);
    r = archive_read_next_header(u->raw, &entry);
    if (r == ARCHIVE_EOF)
        u->is_eof = true;
    else if (r != ARCHIVE_OK)
        return raw_fail(u, e);
    return 0;
}

static ssize_t raw_read(struct unpack *u, const void **ret_data, struct err *e)
{
    la_int64_t offset;
    size_t n = 0;
    int r = ARCHIVE_OK;

    while (!u->is_eof && r == ARCHIVE_OK && n == 0)
        r = archive_read_data_block(u->raw, ret_data, &n, &offset);
    if (r == ARCHIVE_EOF)
        u->is_eof = true;
    else if (r != ARCHIVE_OK)
        return raw_fail(u, e);
    return u->is_eof ? 0 : (ssize_t)n;
}

/*
 * libarchive ignores bytes after the end of a bzip2 stream. Zeros pad the end of a tape, as after
 * gzip.
 */
static int raw_finish(struct unpack *u, struct err *e)
{
    uint64_t used = (uint64_t)archive_filter_bytes(u->raw, -1); /* -1: of the source */
    const void *data;
    ssize_t n;

    while (u->raw_zeros >= u->raw_bytes - used)
        if ((n = raw_next(u, &data, e)) <= 0)
            return (int)n;
    return err_set(e, ERR_INVALID, "there are bytes after the archive's end");
}

/* ---- all ------------------------------------------------------------------------------------- */

int unpack_new(const struct archive_format *format, unpack_source_fn source, void *arg,
               struct unpack **ret, struct err *e)
{
    struct unpack *u = calloc(1, sizeof(*u));
    int r = 0;

    if (!u)
        return err_oom(e);
    u->format = format;
    u->source = source;
    u->arg = arg;
    if (format->reader == ARCHIVE_READ_ZLIB)
        r = gzip_open(u, e);
    else if (format->reader == ARCHIVE_READ_FILTER)
        r = raw_open(u, e);
    if (r < 0) {
        unpack_free(u);
        return r;
    }
    *ret = u;
    return 0;
}

ssize_t unpack_read(struct unpack *u, const void **ret_data, struct err *e)
{
    if (u->format->reader == ARCHIVE_READ_PLAIN)
        return u->source(u->arg, ret_data, e);
    return u->format->reader == ARCHIVE_READ_ZLIB ? gzip_read(u, ret_data, e)
                                                  : raw_read(u, ret_data, e);
}

int unpack_finish(struct unpack *u, struct err *e)
{
    return u->raw ? raw_finish(u, e) : 0;
}

struct unpack *unpack_free(struct unpack *u)
{
    if (!u)
        return NULL;
    if (u->raw)
        (void)archive_read_free(u->raw);
    if (u->z_open)
        (void)inflateEnd(&u->z);
    free(u->out);
    free(u);
    return NULL;
}
