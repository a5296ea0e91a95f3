#include "lib/provider/layer_file.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/fs.h>
#include <nettle/sha2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/io.h"
#include "common/str.h"
#include "lib/util/socket.h"

#define BLOCK_BYTES 65536
#define PAGE_BYTES 4096
#define SPEND_STEP ((uint64_t)8 << 20)
#define ATTRIBUTE_BYTES 65536 /* the kernel's limit for a value, and for the list of the names */
#define FEW_BYTES 512         /* for the names of most files */
#define NOBODY 65534u
#define ID_RANGE 65536u

/* ---- the budget ---- */

int layer_budget_spend(struct layer_budget *b, int fd, uint64_t bytes, struct err *e)
{
    struct statvfs fs;

    b->unchecked += bytes;
    if (b->unchecked < SPEND_STEP)
        return 0;
    b->unchecked = 0;
    if (b->cancel_fd > 0 && socket_wait_canceled(b->cancel_fd, 0))
        return err_set(e, ERR_CANCELED, "canceled");
    if (b->deadline_mono_ms && clock_mono_ms() >= b->deadline_mono_ms)
        return err_set(e, ERR_DEADLINE, "the deadline passed");
    if (fd >= 0 && fstatvfs(fd, &fs) == 0 && fs.f_bavail * fs.f_frsize < LAYER_KEEP_FREE)
        return err_set(e, ERR_EXHAUSTED, "less than %u MiB are free on the disk",
                       LAYER_KEEP_FREE >> 20);
    return 0;
}

/* ---- content ---- */

struct file_pass {
    int from, to;
    bool is_cloned; /* `to` has the content already */
    struct layer_budget *budget;
    struct sha256_ctx sha;
    struct buf zeros; /* runs of blocks of zeros: first block and number, 8 bytes each */
    uint64_t first_zero, n_zeros;
};

static bool is_zero(const uint8_t *data, size_t len)
{
    return data[0] == 0 && memcmp(data, data + 1, len - 1) == 0;
}

static int end_zeros(struct file_pass *p, struct err *e)
{
    uint64_t run[2] = {htobe64(p->first_zero), htobe64(p->n_zeros)};

    if (!p->n_zeros)
        return 0;
    p->n_zeros = 0;
    return buf_add(&p->zeros, run, sizeof(run), e);
}

static int add_zeros(struct file_pass *p, uint64_t block, uint64_t n, struct err *e)
{
    int r = p->n_zeros && p->first_zero + p->n_zeros != block ? end_zeros(p, e) : 0;

    if (r < 0)
        return r;
    if (!p->n_zeros)
        p->first_zero = block;
    p->n_zeros += n;
    return 0;
}

/* A clone takes no room at first; it is bounded all the same: it does once its original is changed or removed. */
static int write_run(struct file_pass *p, const uint8_t *data, size_t len, off_t at, struct err *e)
{
    struct layer_budget *b = p->budget;

    if (b->max_copied && len > b->max_copied - b->copied - b->cloned)
        return err_set(e, ERR_EXHAUSTED, "more than %" PRIu64 " bytes would be copied",
                       b->max_copied);
    if (p->is_cloned)
        b->cloned += len;
    while (len && !p->is_cloned) {
        ssize_t n = pwrite(p->to, data, len, at);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_sys(e, errno, "write");
        b->copied += (uint64_t)n;
        data += n;
        len -= (size_t)n;
        at += n;
    }
    return 0;
}

/* A page of zeros stays a hole: the copy takes no more of the disk than the file. */
static int write_block(struct file_pass *p, const uint8_t *data, size_t len, off_t at,
                       struct err *e)
{
    size_t begin = 0; /* of the run of pages that have data */
    int r = 0;

    for (size_t i = 0; r == 0 && i < len; i += PAGE_BYTES) {
        size_t n = len - i < PAGE_BYTES ? len - i : PAGE_BYTES;
        bool is_hole = is_zero(data + i, n);

        if (begin < i && is_hole)
            r = write_run(p, data + begin, i - begin, at + (off_t)begin, e);
        if (is_hole)
            begin = i + n;
    }
    return r == 0 && begin < len ? write_run(p, data + begin, len - begin, at + (off_t)begin, e)
                                 : r;
}

/* One block; a last one is shorter. */
static int take_block(struct file_pass *p, const uint8_t *data, size_t len, off_t at, struct err *e)
{
    int r = layer_budget_spend(p->budget, p->is_cloned ? -1 : p->to, len, e);

    if (r < 0)
        return r;
    if (len == BLOCK_BYTES && is_zero(data, BLOCK_BYTES))
        return add_zeros(p, (uint64_t)at / BLOCK_BYTES, 1, e);
    sha256_update(&p->sha, len, data);
    return p->to < 0 ? 0 : write_block(p, data, len, at, e);
}

/* Skips what the file system knows to be zeros. *at is moved to the block that has data, or to the
 * last full block's end. */
static int skip_hole(struct file_pass *p, off_t *at, off_t size, struct err *e)
{
    off_t data = lseek(p->from, *at, SEEK_DATA);
    off_t to;

    if (data < 0 && errno != ENXIO)
        return 0; /* it cannot tell */
    to = (data < 0 ? size : data) / BLOCK_BYTES * BLOCK_BYTES;
    if (to <= *at)
        return 0;
    data = *at;
    *at = to;
    return add_zeros(p, (uint64_t)data / BLOCK_BYTES, (uint64_t)(to - data) / BLOCK_BYTES, e);
}

static int read_block(int fd, uint8_t *block, size_t want, off_t at, struct err *e)
{
    size_t got = 0;

    while (got < want) {
        ssize_t n = pread(fd, block + got, want - got, at + (off_t)got);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_sys(e, errno, "read");
        if (n == 0)
            return err_set(e, ERR_ABORTED, "the file became shorter while it was read");
        got += (size_t)n;
    }
    return 0;
}

static int pass_file(struct file_pass *p, off_t size, struct err *e)
{
    _cleanup_free_ uint8_t *block = malloc(BLOCK_BYTES);
    off_t at = 0;
    int r = block ? 0 : err_oom(e);

    while (r == 0 && at < size) {
        size_t want = size - at < BLOCK_BYTES ? (size_t)(size - at) : BLOCK_BYTES;

        if (want == BLOCK_BYTES && size > BLOCK_BYTES) {
            off_t before = at;

            r = skip_hole(p, &at, size, e);
            if (r < 0 || at != before)
                continue;
        }
        r = read_block(p->from, block, want, at, e);
        if (r == 0)
            r = take_block(p, block, want, at, e);
        at += (off_t)want;
    }
    return r;
}

int layer_file_digest(int from, int to, struct layer_budget *b, char hex[LAYER_HEX_BYTES],
                      struct err *e)
{
    struct file_pass p = {.from = from, .to = to, .budget = b};
    uint8_t digest[SHA256_DIGEST_SIZE];
    struct stat st;
    int r = 0;

    if (fstat(from, &st) < 0)
        return err_sys(e, errno, "stat");
    buf_init(&p.zeros, (size_t)64 << 20);
    sha256_init(&p.sha);
    if (to >= 0 && st.st_size)
        p.is_cloned = ioctl(to, FICLONE, from) == 0;
    if (p.is_cloned)
        p.from = to; /* the clone does not change */
    if (to >= 0 && !p.is_cloned && ftruncate(to, st.st_size) < 0)
        r = err_sys(e, errno, "make a file of %lld bytes", (long long)st.st_size);
    if (r == 0)
        r = pass_file(&p, st.st_size, e);
    if (r == 0)
        r = end_zeros(&p, e);
    if (r == 0 && p.zeros.len)
        sha256_update(&p.sha, p.zeros.len, (const uint8_t *)p.zeros.data);
    buf_done(&p.zeros);
    if (r < 0)
        return r;
    sha256_digest(&p.sha, sizeof(digest), digest);
    str_hex(digest, sizeof(digest), hex);
    return 0;
}

/* ---- ids ---- */

uint32_t layer_file_id(uint32_t base, uint32_t id)
{
    if (!base)
        return id;
    return id >= base && id - base < ID_RANGE ? id - base : NOBODY;
}

/* ---- attributes ---- */

#define FD_PATH_BYTES 32
#define ACL_HEAD_BYTES 4
#define ACL_ENTRY_BYTES 8
#define ACL_TAG_USER 0x02
#define ACL_TAG_GROUP 0x08
#define CAPABILITY_ROOT_AT 20 /* struct vfs_ns_cap_data: magic, 2 x 2 sets, rootid */
#define CAPABILITY_REVISION_2 0x02000000u
#define CAPABILITY_REVISION_3 0x03000000u
#define CAPABILITY_REVISION 0xff000000u

static bool is_kept_attribute(const char *name)
{
    return str_has_prefix(name, "user.") || str_eq(name, "system.posix_acl_access") ||
           str_eq(name, "system.posix_acl_default") || str_eq(name, "security.capability");
}

static uint32_t get_le32(const uint8_t *at)
{
    uint32_t v;

    memcpy(&v, at, sizeof(v));
    return le32toh(v);
}

static void put_le32(uint8_t *at, uint32_t v)
{
    v = htole32(v);
    memcpy(at, &v, sizeof(v));
}

struct attribute_pass {
    int from, to;
    uint32_t base;
    bool to_disk;    /* from a layer to a disk; else the other way */
    struct buf *out; /* NULL: the text is not wanted */
    uint8_t *value;  /* ATTRIBUTE_BYTES */
};

/* The ids within an ACL. */
static void shift_acl(const struct attribute_pass *p, size_t len)
{
    uint8_t *value = p->value;

    for (size_t at = ACL_HEAD_BYTES; at + ACL_ENTRY_BYTES <= len; at += ACL_ENTRY_BYTES) {
        unsigned tag = value[at] | (unsigned)value[at + 1] << 8;

        uint32_t id = get_le32(value + at + 4);

        if (tag == ACL_TAG_USER || tag == ACL_TAG_GROUP)
            put_le32(value + at + 4, p->to_disk ? p->base + id : layer_file_id(p->base, id));
    }
}

/* Capabilities that count for the box's root alone become those of root of whatever box has the
 * layer. */
static size_t shift_capability(uint8_t *value, size_t len, uint32_t base)
{
    uint32_t head;

    if (len < CAPABILITY_ROOT_AT + 4)
        return len;
    head = get_le32(value);
    if ((head & CAPABILITY_REVISION) != CAPABILITY_REVISION_3 ||
        get_le32(value + CAPABILITY_ROOT_AT) != base)
        return len;
    put_le32(value, (head & ~CAPABILITY_REVISION) | CAPABILITY_REVISION_2);
    return CAPABILITY_ROOT_AT;
}

/* The descriptor as a path, for what O_PATH does not allow. */
static const char *fd_path(int fd, char path[FD_PATH_BYTES])
{
    (void)snprintf(path, FD_PATH_BYTES, "/proc/self/fd/%d", fd);
    return path;
}

static ssize_t list_names(int fd, char *list, size_t n)
{
    char path[FD_PATH_BYTES];
    ssize_t len = flistxattr(fd, list, n);

    return len < 0 && errno == EBADF ? listxattr(fd_path(fd, path), list, n) : len;
}

static ssize_t get_attribute(int fd, const char *name, void *value, size_t n)
{
    char path[FD_PATH_BYTES];
    ssize_t len = fgetxattr(fd, name, value, n);

    return len < 0 && errno == EBADF ? getxattr(fd_path(fd, path), name, value, n) : len;
}

static int set_attribute(int fd, const char *name, const void *value, size_t n)
{
    char path[FD_PATH_BYTES];
    int r = fsetxattr(fd, name, value, n, 0);

    return r < 0 && errno == EBADF ? setxattr(fd_path(fd, path), name, value, n, 0) : r;
}

static int take_attribute(const struct attribute_pass *p, const char *name, struct err *e)
{
    static const char digits[] = "0123456789abcdef";
    ssize_t n = get_attribute(p->from, name, p->value, ATTRIBUTE_BYTES);
    size_t len = (size_t)n;
    int r;

    if (n < 0)
        return errno == ENODATA || errno == ENOTSUP ? 0 : err_sys(e, errno, "read '%s'", name);
    if (str_eq(name, "security.capability"))
        len = shift_capability(p->value, len, p->base);
    else if (str_has_prefix(name, "system."))
        shift_acl(p, len);
    if (p->to >= 0 && set_attribute(p->to, name, p->value, len) < 0)
        return err_sys(e, errno, "set '%s'", name);
    if (!p->out)
        return 0;
    r = buf_adds(p->out, "\t", e);
    for (const char *c = name; r == 0 && *c; c++)
        r = (unsigned char)*c <= ' ' || *c == '\\' || *c == 0x7f
                ? buf_addf(p->out, e, "\\x%02x", (unsigned char)*c)
                : buf_add(p->out, c, 1, e);
    if (r == 0)
        r = buf_adds(p->out, "=", e);
    for (size_t i = 0; r == 0 && i < len; i++) {
        const char hex[2] = {digits[p->value[i] >> 4], digits[p->value[i] & 15]};

        r = buf_add(p->out, hex, 2, e);
    }
    return r;
}

static int compare_attributes(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int take_attributes(struct attribute_pass *p, char *list, size_t len, struct err *e)
{
    size_t n = 0;
    const char **names;
    int r = 0;

    for (size_t i = 0; i < len; i += strlen(list + i) + 1)
        n += is_kept_attribute(list + i);
    if (!n)
        return 0;
    names = reallocarray(NULL, n, sizeof(*names));
    p->value = malloc(ATTRIBUTE_BYTES);
    if (!names || !p->value)
        r = err_oom(e);
    n = 0;
    for (size_t i = 0; r == 0 && i < len; i += strlen(list + i) + 1)
        if (is_kept_attribute(list + i))
            names[n++] = list + i;
    if (r == 0)
        qsort(names, n, sizeof(*names), compare_attributes);
    for (size_t i = 0; r == 0 && i < n; i++)
        r = take_attribute(p, names[i], e);
    free(names);
    free(p->value);
    return r;
}

/* The names of a file's attributes, each with its NUL; in `few`, or in memory at *ret_list. */
static ssize_t list_attributes(int fd, char few[FEW_BYTES], char **ret_list, struct err *e)
{
    ssize_t n = list_names(fd, few, FEW_BYTES);

    if (n < 0 && errno == ERANGE) {
        *ret_list = malloc(ATTRIBUTE_BYTES);
        if (!*ret_list)
            return err_oom(e);
        n = list_names(fd, *ret_list, ATTRIBUTE_BYTES);
    }
    return n < 0 && errno == ENOTSUP ? 0 : n < 0 ? err_sys(e, errno, "list the attributes") : n;
}

static int run_attributes(struct attribute_pass *p, struct err *e)
{
    _cleanup_free_ char *list = NULL;
    char few[FEW_BYTES];
    ssize_t n = list_attributes(p->from, few, &list, e);

    return n < 0 ? (int)n : take_attributes(p, list ? list : few, (size_t)n, e);
}

int layer_file_attributes(int from, int to, uint32_t base, struct buf *out, struct err *e)
{
    return run_attributes(
        &(struct attribute_pass){.from = from, .to = to, .base = base, .out = out}, e);
}

int layer_file_attributes_to_disk(int from, int to, uint32_t base, struct err *e)
{
    return run_attributes(
        &(struct attribute_pass){.from = from, .to = to, .base = base, .to_disk = true}, e);
}

int layer_file_clear_attributes(int fd, struct err *e)
{
    _cleanup_free_ char *list = NULL;
    char few[FEW_BYTES];
    ssize_t n = list_attributes(fd, few, &list, e);
    const char *names = list ? list : few;

    for (ssize_t i = 0; i < n; i += (ssize_t)strlen(names + i) + 1)
        if ((is_kept_attribute(names + i) || str_has_prefix(names + i, "trusted.overlay.")) &&
            fremovexattr(fd, names + i) < 0 && errno != ENODATA)
            return err_sys(e, errno, "remove '%s'", names + i);
    return n < 0 ? (int)n : 0;
}
