#include "archive/read.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "archive/format.h"
#include "common/cleanup.h"
#include "common/io.h"
#include "fs/temp.h"

#define BLOCK 512
#define TRAILER_BYTES (2 * BLOCK)
#define ZIP_READ_BYTES (64 * 1024)
#define ZIP_END_BYTES 22
#define UNPACK_BLOCK_BYTES (128 * 1024)
#define PLAIN_BYTES (1024 * 1024) /* unpacked and not yet written */
/* A bzip2 block, the largest unit of all formats: 900,000 bytes grow by 1 % at most. */
#define UNPACK_AHEAD_BYTES (1024 * 1024)

/*
 * A compressed stream as plain bytes, pulled. zlib reads gzip (libarchive ignores its checksum), libarchive's
 * filters read the others.
 *
 * Unpacking takes about as long as writing the files. While the upload is fast enough, a second
 * pool job unpacks ahead of the tar reader, as far as the plain pump has room. It starts only
 * when UNPACK_AHEAD_BYTES of the archive are there, which no step of any format exceeds, so it
 * never waits for the client. Of a slower upload the tar reader's own thread unpacks. The job
 * touches no file.
 */
struct unpack {
    const struct archive_format *format;
    struct pump *in;       /* packed; borrowed */
    struct err source_err; /* of `in`, when it failed below libarchive */

    struct archive *raw; /* bzip2, xz, zstd */
    uint64_t raw_bytes;  /* given to it */
    uint64_t raw_zeros;  /* how many of the last of these are zero */

    z_stream z; /* gzip */
    bool z_open;
    bool z_in_member;
    bool is_eof;
    uint8_t *out; /* UNPACK_BLOCK_BYTES */

    struct pump *plain; /* unpacked ahead; NULL: not packed, or no pool */
    const void *rest;   /* unpacked, and not yet in the plain pump */
    size_t n_rest;
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
    n = u->is_eof ? 0 : pump_read(u->in, &data, e);
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
    ssize_t n = pump_read(u->in, ret_data, e);
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

/* ---- a stream as plain bytes ----------------------------------------------------------------- */

/* Returns the length of a piece that stays valid until the next call; 0 at the end, when the stream's own checksums
 * were right; or an error. */
static ssize_t unpack_piece(struct unpack *u, const void **ret_data, struct err *e)
{
    if (u->format->reader == ARCHIVE_READ_PLAIN)
        return pump_read(u->in, ret_data, e);
    return u->format->reader == ARCHIVE_READ_ZLIB ? gzip_read(u, ret_data, e)
                                                  : raw_read(u, ret_data, e);
}

static int unpack_ahead(void *job, void *data, size_t size, size_t *ret_len, struct err *e)
{
    struct unpack *u = job;

    if (!u->n_rest) {
        ssize_t n;

        if (pump_available(u->in) < UNPACK_AHEAD_BYTES)
            return PUMP_IDLE;
        n = unpack_piece(u, &u->rest, e);
        if (n <= 0)
            return (int)n; /* 0: the end, with *ret_len still 0 */
        u->n_rest = (size_t)n;
    }
    if (size > u->n_rest)
        size = u->n_rest;
    (void)memcpy(data, u->rest, size);
    u->rest = (const char *)u->rest + size;
    u->n_rest -= size;
    *ret_len = size;
    return 0;
}

static const struct pump_ops unpack_ops = {.read = unpack_ahead};

/* u: only format and in are set. */
static int unpack_init(struct unpack *u, struct pool *pool, struct err *e)
{
    const struct pump_options o = {
        .pool = pool, .ops = &unpack_ops, .job = u, .max_bytes = PLAIN_BYTES};
    int r;

    if (u->format->reader == ARCHIVE_READ_PLAIN)
        return 0;
    r = u->format->reader == ARCHIVE_READ_ZLIB ? gzip_open(u, e) : raw_open(u, e);
    return r < 0 || !pool ? r : pump_new(&o, &u->plain, e);
}

static void unpack_done(struct unpack *u)
{
    pump_stop(u->plain);
    if (u->raw)
        (void)archive_read_free(u->raw);
    if (u->z_open)
        (void)inflateEnd(&u->z);
    free(u->out);
}

static ssize_t unpack_read(struct unpack *u, const void **ret_data, struct err *e)
{
    size_t n;

    if (!u->plain)
        return unpack_piece(u, ret_data, e);
    n = pump_await_job(u->plain);
    if (!n && pump_available(u->in) >= UNPACK_AHEAD_BYTES && pump_start(u->plain, NULL) == 0)
        n = pump_await_job(u->plain);
    if (n)
        return pump_read(u->plain, ret_data, e);
    /* Unpacked by this thread. */
    n = u->n_rest;
    if (!n)
        return unpack_piece(u, ret_data, e);
    *ret_data = u->rest;
    u->n_rest = 0;
    return (ssize_t)n;
}

/* ---- entries --------------------------------------------------------------------------------- */

/* The plain bytes on their way to libarchive's tar reader, counted. */
struct tar_feed {
    struct unpack *unpack;
    uint64_t bytes;
    uint64_t zeros; /* how many of the last bytes are zero */
    struct err err;
};

static void feed_count(struct tar_feed *f, const unsigned char *data, size_t n)
{
    size_t zeros = 0;

    while (zeros < n && data[n - 1 - zeros] == 0)
        zeros++;
    f->zeros = zeros == n ? f->zeros + n : zeros;
    f->bytes += n;
}

static la_ssize_t feed_tar(struct archive *a, void *arg, const void **ret_data)
{
    struct tar_feed *f = arg;
    ssize_t n = unpack_read(f->unpack, ret_data, &f->err);

    if (n < 0) {
        archive_set_error(a, EIO, "%s", f->err.message);
        return ARCHIVE_FATAL;
    }
    if (n > 0)
        feed_count(f, *ret_data, (size_t)n);
    return n;
}

static int read_damaged(struct archive *a, const char *what, struct err *e)
{
    const char *why = archive_error_string(a);

    return err_set(e, ERR_INVALID, "%s: %.300s", what, why ? why : "bad data");
}

/* A warning is an error, unless it is about a name in another character set: its bytes are taken as
 * they are. */
static bool is_about_names(struct archive *a)
{
    const char *why = archive_error_string(a);

    return why && strstr(why, "can't be converted");
}

static int read_entries(struct archive *a, struct stage *s, struct err *e)
{
    struct archive_entry *entry;

    for (;;) {
        int got = archive_read_next_header(a, &entry);
        int r;

        if (got == ARCHIVE_EOF)
            return 0;
        if (got != ARCHIVE_OK && !(got == ARCHIVE_WARN && is_about_names(a)))
            return read_damaged(a,
                                s->entries ? "the archive is damaged or cut short"
                                           : "this is not a tar or zip archive",
                                e);
        r = stage_entry(s, a, entry, e);
        if (r < 0)
            return r;
    }
}

/* ---- tar ------------------------------------------------------------------------------------- */

/* Reads on to the very end, so that the compression's checksum is looked at too. */
static int check_trailer(struct tar_feed *f, uint64_t trailer_at, struct err *e)
{
    const void *data;
    ssize_t n;

    while ((n = unpack_read(f->unpack, &data, e)) > 0)
        feed_count(f, data, (size_t)n);
    if (n < 0)
        return (int)n;
    if (f->bytes < trailer_at + TRAILER_BYTES)
        return err_set(e, ERR_INVALID, "the archive is cut short: its end mark is missing");
    if (f->zeros < f->bytes - trailer_at)
        return err_set(e, ERR_INVALID, "there are bytes after the archive's end mark");
    return 0;
}

static int read_tar(struct unpack *u, struct stage *s, struct err *e)
{
    struct archive *a = archive_read_new();
    struct tar_feed f = {.unpack = u};
    int r;

    if (!a)
        return err_oom(e);
    (void)archive_read_support_format_tar(a);
    if (archive_read_open(a, &f, NULL, feed_tar, NULL) != ARCHIVE_OK)
        r = read_damaged(a, "this is not a tar or zip archive", e);
    else
        r = read_entries(a, s, e);
    if (r == 0)
        r = check_trailer(&f, (uint64_t)archive_read_header_position(a), e);
    if (r == 0)
        r = u->raw ? raw_finish(u, e) : 0;
    if (r < 0 && f.err.code) {
        if (e)
            *e = f.err;
        r = -f.err.code;
    }
    (void)archive_read_free(a);
    return r;
}

/* ---- zip ------------------------------------------------------------------------------------- */

/* The directory of a zip is at its end, so the whole file must be there first. */
static int zip_spool(struct pump *in, struct stage *s, int fd, struct err *e)
{
    uint64_t total = 0;
    const void *data;
    ssize_t n;
    int r;

    while ((n = pump_read(in, &data, e)) > 0) {
        total += (uint64_t)n;
        if (total > s->limits.max_bytes)
            return err_sys(e, EFBIG, "the archive has more than %llu bytes",
                           (unsigned long long)s->limits.max_bytes);
        r = io_write_all(fd, data, (size_t)n, e);
        if (r < 0)
            return r;
    }
    return n < 0 ? (int)n : 0;
}

struct zip_file {
    int fd;
    char *data; /* ZIP_READ_BYTES */
};

static la_ssize_t zip_read(struct archive *a, void *arg, const void **ret_data)
{
    struct zip_file *f = arg;
    ssize_t n;

    do
        n = read(f->fd, f->data, ZIP_READ_BYTES);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        archive_set_error(a, errno, "read the spooled archive");
    *ret_data = f->data;
    return n;
}

static la_int64_t zip_seek(struct archive *a, void *arg, la_int64_t offset, int whence)
{
    const struct zip_file *f = arg;
    off_t at = lseek(f->fd, offset, whence);

    if (at < 0) {
        archive_set_error(a, errno, "seek in the spooled archive");
        return ARCHIVE_FATAL;
    }
    return at;
}

/* An empty zip is its end record alone, which libarchive does not recognise. */
static bool is_empty_zip(int fd)
{
    static const char start[20] = {'P', 'K', 5, 6};
    unsigned char end[ZIP_END_BYTES];
    struct stat st;

    return pread(fd, end, sizeof(end), 0) == (ssize_t)sizeof(end) &&
           memcmp(end, start, sizeof(start)) == 0 && fstat(fd, &st) == 0 &&
           st.st_size == ZIP_END_BYTES + end[20] + 256 * end[21];
}

static int read_spooled(int fd, struct stage *s, struct err *e)
{
    _cleanup_free_ char *data = malloc(ZIP_READ_BYTES);
    struct zip_file f = {.fd = fd, .data = data};
    struct archive *a = data ? archive_read_new() : NULL;
    int r;

    if (!a)
        return err_oom(e);
    (void)archive_read_support_format_zip_seekable(a);
    (void)archive_read_set_read_callback(a, zip_read);
    (void)archive_read_set_seek_callback(a, zip_seek);
    (void)archive_read_set_callback_data(a, &f);
    if (archive_read_open1(a) != ARCHIVE_OK)
        r = read_damaged(a, "the zip archive is damaged or cut short", e);
    else
        r = read_entries(a, s, e);
    (void)archive_read_free(a);
    return r;
}

static int read_zip(struct pump *in, struct stage *s, struct err *e)
{
    struct fs_temp t;
    int r;

    if (fs_temp_open(s->fd, &t) < 0)
        return err_sys(e, errno, "make a file for the archive");
    if (t.name[0])
        (void)unlinkat(s->fd, t.name, 0);
    t.name[0] = '\0';
    r = zip_spool(in, s, t.fd, e);
    if (r == 0 && lseek(t.fd, 0, SEEK_SET) < 0)
        r = err_sys(e, errno, "seek");
    if (r == 0 && !is_empty_zip(t.fd))
        r = read_spooled(t.fd, s, e);
    fs_temp_drop(s->fd, &t);
    return r;
}

/* ---- all ------------------------------------------------------------------------------------- */

static int read_any(struct pump *in, struct pool *pool, struct stage *s, const char **ret_format,
                    struct err *e)
{
    _cleanup_(unpack_done) struct unpack u = {.in = in};
    const void *head;
    ssize_t n;
    int r;

    n = pump_peek(in, ARCHIVE_MAGIC_BYTES, &head, e);
    if (n < 0)
        return (int)n;
    if (n == 0)
        return err_set(e, ERR_INVALID, "the archive is empty: not one byte");
    u.format = archive_format_detect(head, (size_t)n);
    *ret_format = u.format->name;
    if (u.format->reader == ARCHIVE_READ_ZIP)
        return read_zip(in, s, e);
    r = unpack_init(&u, pool, e);
    return r < 0 ? r : read_tar(&u, s, e);
}

int archive_read_stream(struct pump *in, struct pool *pool, struct stage *s,
                        const char **ret_format, struct err *e)
{
    /* libarchive converts names to the thread's character set: one that changes nothing. */
    locale_t utf8 = newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0);
    locale_t before = utf8 ? uselocale(utf8) : (locale_t)0;
    int r = read_any(in, pool, s, ret_format, e);

    if (utf8) {
        (void)uselocale(before);
        freelocale(utf8);
    }
    return r;
}
