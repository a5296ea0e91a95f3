#include "fs/dir_names.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/buf.h"
#include "common/cleanup.h"
#include "fs/temp.h"

#define DENTS_BYTES (32 * 1024)

/* An entry as getdents64(2) writes it. musl has no struct for it. */
struct dent {
    uint64_t ino;
    int64_t off;
    uint16_t reclen;
    uint8_t type;
    char name[];
};

static bool is_wanted_name(const char *name, bool with_temps)
{
    if (name[0] != '.')
        return true;
    if (name[1] == '\0' || (name[1] == '.' && name[2] == '\0'))
        return false;
    return with_temps || !fs_temp_is_name(name);
}

/* Appends the type and the name to the block. */
static int add_dent(const struct dent *d, struct buf *block, size_t *n, struct err *e)
{
    size_t len = strlen(d->name) + 1;
    int r = buf_reserve(block, len + 1, e);

    if (r < 0)
        return err_wrap(e, r, "a directory with more than %zu names", *n);
    if (*n == FS_WALK_MAX_NAMES)
        return err_set(e, ERR_EXHAUSTED, "a directory has more than %u names", FS_WALK_MAX_NAMES);
    block->data[block->len] = (char)d->type;
    (void)memcpy(block->data + block->len + 1, d->name, len);
    block->len += len + 1;
    *n += 1;
    return 0;
}

static int read_dents(int fd, bool with_temps, struct buf *block, size_t *n, struct err *e)
{
    _cleanup_free_ char *dents = malloc(DENTS_BYTES);
    int r = 0;

    if (!dents)
        return err_oom(e);
    for (;;) {
        long got = syscall(SYS_getdents64, fd, dents, DENTS_BYTES);

        if (got < 0)
            return err_sys(e, errno, "read a directory");
        if (got == 0)
            return 0;
        for (long at = 0; at < got;) {
            const struct dent *d = (const void *)(dents + at);

            at += d->reclen;
            if (is_wanted_name(d->name, with_temps))
                r = add_dent(d, block, n, e);
            if (r < 0)
                return r;
        }
    }
}

int fs_names_read(int fd, bool with_temps, struct fs_names *ret, struct err *e)
{
    _cleanup_buf_ struct buf block;
    size_t n = 0;
    char *p;
    int r;

    *ret = (struct fs_names){0};
    buf_init(&block, FS_WALK_MAX_NAME_BYTES);
    r = read_dents(fd, with_temps, &block, &n, e);
    if (!n)
        return r;
    ret->v = malloc(n * sizeof(*ret->v));
    if (!ret->v)
        return err_oom(e);
    ret->n = n;
    ret->block = p = buf_take(&block);
    for (size_t i = 0; i < n; i++) {
        ret->v[i] = p + 1;
        p += strlen(p + 1) + 2;
    }
    return r;
}

static int names_by_bytes(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

void fs_names_sort(struct fs_names *n)
{
    if (n->n)
        qsort(n->v, n->n, sizeof(*n->v), names_by_bytes);
}

int fs_dir_names(int fd, bool with_temps, struct fs_names *ret, struct err *e)
{
    struct fs_names names;
    int r = fs_names_read(fd, with_temps, &names, e);

    if (r < 0) {
        fs_names_done(&names);
        return r;
    }
    fs_names_sort(&names);
    *ret = names;
    return 0;
}

void fs_names_done(struct fs_names *n)
{
    free(n->block);
    free(n->v);
    *n = (struct fs_names){0};
}
