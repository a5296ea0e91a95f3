#include "fs/records.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "fs/temp.h"

struct fs_records {
    int fd;
    off_t end;
};

#define FOOTER_MAGIC 0x31306862u /* another layout, another number */

/* On disk: the path, then this. */
struct footer {
    struct fs_record r;
    uint32_t path_len;
    uint32_t magic;
};

static int records_take_fd(int fd, off_t end, struct fs_records **ret, struct err *e)
{
    struct fs_records *l = calloc(1, sizeof(*l));

    if (!l) {
        fd_close(fd);
        return err_oom(e);
    }
    l->fd = fd;
    l->end = end;
    *ret = l;
    return 0;
}

int fs_records_new(int dirfd, const char *name, struct fs_records **ret, struct err *e)
{
    struct fs_temp t = {.fd = -1};

    if (name)
        t.fd = openat(dirfd, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    else if (fs_temp_open(dirfd, &t) == 0 && t.name[0])
        (void)unlinkat(dirfd, t.name, 0);
    if (t.fd < 0)
        return err_sys(e, errno, "make a list beside the staged files");
    return records_take_fd(t.fd, 0, ret, e);
}

int fs_records_open(int dirfd, const char *name, struct fs_records **ret, struct err *e)
{
    int fd = openat(dirfd, name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0) {
        int sys = errno;

        fd_close(fd);
        return err_sys(e, sys, "open '%s'", name);
    }
    return records_take_fd(fd, st.st_size, ret, e);
}

int fs_records_clear(struct fs_records *l, struct err *e)
{
    if (ftruncate(l->fd, 0) < 0)
        return err_sys(e, errno, "clear the list of staged files");
    l->end = 0;
    return 0;
}

struct fs_records *fs_records_free(struct fs_records *l)
{
    if (!l)
        return NULL;
    fd_close(l->fd);
    free(l);
    return NULL;
}

int fs_records_add(struct fs_records *l, const struct fs_record *r, const char *path, struct err *e)
{
    struct footer f;
    size_t n = strlen(path);
    struct iovec iov[2] = {{(void *)(uintptr_t)path, n}, {&f, sizeof(f)}};
    ssize_t done;

    (void)memset(&f, 0, sizeof(f)); /* no padding of the stack on the disk */
    f.r = *r;
    f.path_len = (uint32_t)n;
    f.magic = FOOTER_MAGIC;
    done = pwritev(l->fd, iov, 2, l->end);
    if (done != (ssize_t)(n + sizeof(f)))
        return err_sys(e, done < 0 ? errno : ENOSPC, "write the list of staged files");
    l->end += done;
    return 0;
}

int fs_records_pop(struct fs_records *l, struct fs_record *ret, char **ret_path, struct err *e)
{
    struct footer f;
    char *path;

    if (l->end == 0)
        return 0;
    if (pread(l->fd, &f, sizeof(f), l->end - (off_t)sizeof(f)) != (ssize_t)sizeof(f) ||
        f.magic != FOOTER_MAGIC || (off_t)f.path_len + (off_t)sizeof(f) > l->end)
        return err_set(e, ERR_INTERNAL, "the list of staged files can't be read");
    path = malloc((size_t)f.path_len + 1);
    if (!path)
        return err_oom(e);
    l->end -= (off_t)sizeof(f) + (off_t)f.path_len;
    if (pread(l->fd, path, f.path_len, l->end) != (ssize_t)f.path_len) {
        free(path);
        return err_set(e, ERR_INTERNAL, "the list of staged files can't be read");
    }
    path[f.path_len] = '\0';
    *ret = f.r;
    *ret_path = path;
    return 1;
}
