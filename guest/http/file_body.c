#include "http/file_body.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/io.h"
#include "http/body.h"
#include "http/respond.h"

#define BOUNDARY_BYTES 24
#define PART_HEAD_BYTES 256

static bool is_local_disk(int fd)
{
    static const long types[] = {
        EXT4_SUPER_MAGIC, TMPFS_MAGIC,          OVERLAYFS_SUPER_MAGIC,
        XFS_SUPER_MAGIC,  BTRFS_SUPER_MAGIC,    RAMFS_MAGIC,
        SQUASHFS_MAGIC,   EROFS_SUPER_MAGIC_V1, F2FS_SUPER_MAGIC,
    };
    struct statfs st;

    if (fstatfs(fd, &st) < 0)
        return false;
    for (size_t i = 0; i < N_ELEMENTS(types); i++)
        if ((long)st.f_type == types[i])
            return true;
    return false;
}

int file_body_read(int fd, void *data, size_t size, size_t *ret_len, struct err *e)
{
    ssize_t n;

    do {
        n = read(fd, data, size);
    } while (n < 0 && errno == EINTR);
    if (n < 0 && errno != EAGAIN)
        return err_at(e, err_sys(e, errno, "read"), "path");
    *ret_len = n < 0 ? 0 : (size_t)n;
    return 0;
}

/* Reads the start of a made-up file: most such files are then read to the end, and a read error comes before the reply. */
static int read_head(struct file_body *b, struct err *e)
{
    int r;

    b->head = malloc(FILE_BODY_HEAD_BYTES);
    if (!b->head)
        return err_oom(e);
    while (b->head_len < FILE_BODY_HEAD_BYTES) {
        size_t n = 0;

        r = file_body_read(b->fd, b->head + b->head_len, FILE_BODY_HEAD_BYTES - b->head_len, &n, e);
        if (r < 0 && e->sys == EIO && !b->head_len)
            return err_field(e, ERR_PRECONDITION, "path", "there is nothing to read at its start");
        if (r < 0)
            return r;
        if (!n) {
            b->head_is_all = true;
            return 0;
        }
        b->head_len += n;
    }
    return 0;
}

int file_body_init_take(struct file_body *b, int fd, uint64_t size, const char *type, struct err *e)
{
    *b = (struct file_body){.fd = fd,
                            .is_sized = size != UINT64_MAX,
                            .size = size,
                            .is_local = is_local_disk(fd),
                            .type = type};
    return b->is_sized ? 0 : read_head(b, e);
}

void file_body_done(struct file_body *b)
{
    fd_close(TAKE_FD(b->fd));
    free(TAKE(b->head));
}

uint64_t file_body_size(const struct file_body *b)
{
    if (b->is_sized)
        return b->size;
    return b->head_is_all ? b->head_len : UINT64_MAX;
}

/* ---- read by a worker ------------------------------------------------------------------------ */

/* Text, then bytes of the file. */
struct part {
    char *text;
    size_t text_len;
    size_t text_at;
    struct range range; /* the bytes that are still to be read */
};

struct reader {
    int fd;
    bool is_sized;
    uint64_t streamed; /* of a made-up file */
    size_t n;
    size_t at;
    struct part v[RANGE_MAX_PARTS + 1];
};

static int read_range(struct reader *r, struct range *range, void *data, size_t size, size_t *ret,
                      struct err *e)
{
    ssize_t n =
        pread(r->fd, data, range->len < size ? (size_t)range->len : size, (off_t)range->first);

    if (n < 0)
        return err_sys(e, errno, "read");
    if (!n)
        return err_set(e, ERR_DATA_LOSS, "the file has become shorter");
    range->first += (uint64_t)n;
    range->len -= (uint64_t)n;
    *ret = (size_t)n;
    return 0;
}

static int read_stream(struct reader *r, void *data, size_t size, size_t *ret, struct err *e)
{
    int result = file_body_read(r->fd, data, size, ret, e);

    if (result < 0)
        return result;
    r->streamed += *ret;
    return r->streamed > FILE_BODY_MADE_UP_MAX ? err_set(e, ERR_EXHAUSTED, "it does not end") : 0;
}

static int read_parts(void *from, void *data, size_t size, size_t *ret_len, struct err *e)
{
    struct reader *r = from;

    *ret_len = 0;
    for (; r->at < r->n; r->at++) {
        struct part *p = &r->v[r->at];
        size_t n = p->text_len - p->text_at < size ? p->text_len - p->text_at : size;

        if (n) {
            (void)memcpy(data, p->text + p->text_at, n);
            p->text_at += n;
            *ret_len = n;
            return 0;
        }
        if (p->range.len)
            return read_range(r, &p->range, data, size, ret_len, e);
    }
    return r->is_sized ? 0 : read_stream(r, data, size, ret_len, e);
}

static void close_reader(void *from)
{
    struct reader *r = from;

    for (size_t i = 0; i < r->n; i++)
        free(r->v[i].text);
    fd_close(r->fd);
    free(r);
}

static const struct feed_ops reader_ops = {.pump = {.read = read_parts, .close = close_reader}};

/* It has a duplicate of the body's descriptor. */
static struct reader *reader_new(struct file_body *b)
{
    struct reader *r = calloc(1, sizeof(*r));

    if (!r)
        return NULL;
    r->is_sized = b->is_sized;
    r->fd = fcntl(b->fd, F_DUPFD_CLOEXEC, 3);
    if (r->fd >= 0)
        return r;
    free(r);
    return NULL;
}

static int worker_body(struct request *q, struct file_body *b, const struct range *range,
                       struct reply **ret, struct err *e)
{
    struct reader *r = reader_new(b);

    if (!r)
        return err_oom(e);
    r->n = 1;
    if (b->is_sized) {
        r->v[0].range = *range;
        return feed_response_take(q, range->len, &reader_ops, r, ret, e);
    }
    r->v[0].text = TAKE(b->head);
    r->v[0].text_len = b->head_len;
    return feed_response_take(q, REPLY_SIZE_UNKNOWN, &reader_ops, r, ret, e);
}

/* ---- bodies ---------------------------------------------------------------------------------- */

static int buffer_body(struct request *q, const char *data, size_t len, struct reply **ret,
                       struct err *e)
{
    *ret = reply_new_copy(data, len);
    if (*ret && q->verb != VERB_HEAD)
        q->bytes_out += len;
    return *ret ? 0 : err_oom(e);
}

static int one_range(struct request *q, struct file_body *b, const struct range *range,
                     struct reply **ret, struct err *e)
{
    int fd;

    if (b->is_sized && !range->len)
        return buffer_body(q, "", 0, ret, e);
    if (!b->is_sized || !b->is_local)
        return worker_body(q, b, range, ret, e);
    fd = fcntl(b->fd, F_DUPFD_CLOEXEC, 3);
    if (fd < 0)
        return err_sys(e, errno, "dup");
    *ret = reply_new_fd(fd, range->first, range->len);
    if (!*ret) {
        fd_close(fd);
        return err_oom(e);
    }
    request_expect_sent(q, range->len);
    if (q->verb != VERB_HEAD) /* bytes that a worker reads are counted as they are read */
        q->bytes_out += range->len;
    return 0;
}

int file_body_whole(struct request *q, struct file_body *b, struct reply **ret, struct err *e)
{
    const struct range all = {.first = 0, .len = b->size};

    if (!b->is_sized && b->head_is_all)
        return buffer_body(q, b->head, b->head_len, ret, e);
    return one_range(q, b, &all, ret, e);
}

static int add_part(struct reader *r, const char *boundary, const char *type,
                    const struct range *range, uint64_t size)
{
    struct part *p = &r->v[r->n];
    int n;

    p->text = malloc(PART_HEAD_BYTES);
    if (!p->text)
        return -1;
    r->n++;
    if (range) {
        p->range = *range;
        n = snprintf(p->text, PART_HEAD_BYTES,
                     "\r\n--%s\r\nContent-Type: %s\r\nContent-Range: bytes %" PRIu64 "-%" PRIu64
                     "/%" PRIu64 "\r\n\r\n",
                     boundary, type, range->first, range->first + range->len - 1, size);
    } else {
        n = snprintf(p->text, PART_HEAD_BYTES, "\r\n--%s--\r\n", boundary);
    }
    p->text_len = (size_t)n;
    return 0;
}

static int several_ranges(struct request *q, struct file_body *b, const struct range_set *set,
                          struct reply **ret, struct err *e)
{
    char boundary[2 * BOUNDARY_BYTES + 1], type[128];
    struct reader *r = reader_new(b);
    uint64_t len = 0;
    int result = r ? io_random_hex(BOUNDARY_BYTES, boundary, e) : err_oom(e);

    for (size_t i = 0; i <= set->n && result == 0; i++)
        if (add_part(r, boundary, b->type, i < set->n ? &set->v[i] : NULL, file_body_size(b)) < 0)
            result = err_oom(e);
    if (result < 0) {
        if (r)
            close_reader(r);
        return result;
    }
    for (size_t i = 0; i < r->n; i++)
        len += r->v[i].text_len + r->v[i].range.len;
    result = feed_response_take(q, len, &reader_ops, r, ret, e);
    if (result < 0)
        return result;
    (void)snprintf(type, sizeof(type), "multipart/byteranges; boundary=%s", boundary);
    reply_add_header(*ret, "Content-Type", type);
    return 0;
}

int file_body_ranges(struct request *q, struct file_body *b, const struct range_set *set,
                     struct reply **ret, struct err *e)
{
    char text[96];
    int r;

    if (set->n > 1)
        return several_ranges(q, b, set, ret, e);
    r = one_range(q, b, &set->v[0], ret, e);
    if (r < 0)
        return r;
    (void)snprintf(text, sizeof(text), "bytes %" PRIu64 "-%" PRIu64 "/%" PRIu64, set->v[0].first,
                   set->v[0].first + set->v[0].len - 1, file_body_size(b));
    reply_add_header(*ret, "Content-Range", text);
    return 0;
}
