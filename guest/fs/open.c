#include "fs/open.h"

#include <errno.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "fs/stat.h"

#define MAGIC_CGROUP 0x27e0eb
#define MAGIC_CONFIGFS 0x62656570
#define MAGIC_FUSE 0x65735546

bool fs_is_made_up(int fd, off_t size)
{
    struct statfs fs;

    if (fstatfs(fd, &fs) < 0)
        return false;
    switch ((unsigned long)fs.f_type) {
    case PROC_SUPER_MAGIC:
    case SYSFS_MAGIC:
    case DEBUGFS_MAGIC:
    case TRACEFS_MAGIC:
    case SECURITYFS_MAGIC:
    case CGROUP2_SUPER_MAGIC:
    case MAGIC_CGROUP:
    case MAGIC_CONFIGFS:
        return true;
    case MAGIC_FUSE:
        return size == 0;
    default:
        return false;
    }
}

int fs_refuse_special(const char *path, mode_t mode, struct err *e)
{
    if (S_ISREG(mode))
        return 0;
    if (S_ISDIR(mode))
        return err_field(e, ERR_PRECONDITION, "path", "'%s' is a directory", path);
    return err_field(e, ERR_PRECONDITION, "path", "'%s' is not a regular file but a %s", path,
                     fs_type_name(mode));
}

/* Looks before it opens: opening a device can already do something. */
static int file_look(struct fs_caller *c, const char *path, struct err *e)
{
    _cleanup_close_ int fd = -1;
    struct stat st;
    int r;

    r = fs_open(c, path, O_PATH, 0, &fd, e);
    if (r < 0)
        return r;
    if (fstat(fd, &st) < 0)
        return err_at(e, err_sys(e, errno, "stat '%s'", path), "path");
    return fs_refuse_special(path, st.st_mode, e);
}

static int open_regular(struct fs_caller *c, const char *path, int *ret_fd, struct stat *ret_st,
                        struct err *e)
{
    _cleanup_close_ int fd = -1;
    int r;

    r = file_look(c, path, e);
    if (r == 0)
        r = fs_open(c, path, O_RDONLY, 0, &fd, e);
    if (r < 0)
        return r;
    if (fstat(fd, ret_st) < 0)
        return err_at(e, err_sys(e, errno, "stat '%s'", path), "path");
    r = fs_refuse_special(path, ret_st->st_mode, e); /* may have changed since */
    if (r < 0)
        return r;
    *ret_fd = TAKE_FD(fd);
    return 0;
}

int fs_file_open_acting(struct fs_caller *c, const char *path, bool with_etag, struct fs_file *ret,
                        struct err *e)
{
    struct fs_file f = {.fd = -1};
    int r;

    r = open_regular(c, path, &f.fd, &f.st, e);
    if (r < 0)
        return r;
    f.is_sized = !fs_is_made_up(f.fd, f.st.st_size);
    if (f.is_sized)
        (void)fcntl(f.fd, F_SETFL, fcntl(f.fd, F_GETFL) & ~O_NONBLOCK);
    if (with_etag && f.is_sized)
        r = fs_etag(f.fd, &f.st, f.etag, e);
    if (r < 0) {
        fs_file_done(&f);
        return err_at(e, r, "path");
    }
    *ret = f;
    return 0;
}

int fs_file_open(struct fs_caller *c, const char *path, bool with_etag, struct fs_file *ret,
                 struct err *e)
{
    _fs_acting_ const struct fs_actor *acting = NULL;
    int r = fs_act(&c->actor, &acting, e);

    return r < 0 ? r : fs_file_open_acting(c, path, with_etag, ret, e);
}

int fs_file_read(const struct fs_file *f, void *data, size_t size, size_t *ret_len, struct err *e)
{
    ssize_t n;

    do {
        n = read(f->fd, data, size);
    } while (n < 0 && errno == EINTR);
    if (n < 0 && errno != EAGAIN)
        return err_at(e, err_sys(e, errno, "read"), "path");
    *ret_len = n < 0 ? 0 : (size_t)n;
    return 0;
}

void fs_file_done(struct fs_file *f)
{
    if (!f)
        return;
    fd_close(f->fd);
    f->fd = -1;
}

int fs_check_condition(struct fs_caller *c, const char *path, const struct fs_condition *cond,
                       char current[FS_ETAG_BYTES], struct err *e)
{
    struct fs_file f = {.fd = -1};
    struct err inner = {0};
    bool exists;
    int r;

    current[0] = '\0';
    if (!cond->if_match && !cond->if_none_match)
        return 0;
    r = fs_file_open(c, path, true, &f, &inner);
    exists = r == 0 || (r == -ERR_PRECONDITION && strcmp(inner.field, "path") == 0);
    if (!exists && inner.sys != ENOENT) {
        if (e)
            *e = inner;
        return r;
    }
    if (r == 0) {
        (void)memcpy(current, f.etag, FS_ETAG_BYTES);
        fs_file_done(&f);
    }
    return fs_check_tag(cond, exists, current, e);
}
