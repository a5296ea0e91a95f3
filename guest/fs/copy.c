#include "fs/copy.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/fs.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/io.h"
#include "common/str.h"
#include "fs/root.h"
#include "fs/open.h"
#include "fs/temp.h"
#include "fs/walk.h"

#define CHUNK_BYTES (256 * 1024)
#define RANGE_BYTES (64u << 20) /* of one copy_file_range: it can't be interrupted */
#define MAX_LEVELS (FS_COPY_MAX_DEPTH + 2)

/* ---- files with several names ----------------------------------------------------------------- */

struct link {
    dev_t dev;
    ino_t ino;
    char *name; /* NULL: a free slot */
};

/* Open addressing, at most half full. */
struct links {
    struct link *slots;
    size_t n;
    size_t cap; /* a power of two */
};

int links_new(struct links **ret, struct err *e)
{
    struct links *l = calloc(1, sizeof(*l));

    if (!l)
        return err_oom(e);
    *ret = l;
    return 0;
}

struct links *links_free(struct links *l)
{
    if (!l)
        return NULL;
    for (size_t i = 0; i < l->cap; i++)
        free(l->slots[i].name);
    free(l->slots);
    free(l);
    return NULL;
}

static struct link *links_find(struct link *slots, size_t cap, dev_t dev, ino_t ino)
{
    uint64_t h = ((uint64_t)ino ^ (uint64_t)dev << 32) * 0x9e3779b97f4a7c15ULL;
    size_t at = (size_t)(h >> 20) & (cap - 1);

    while (slots[at].name && (slots[at].dev != dev || slots[at].ino != ino))
        at = (at + 1) & (cap - 1);
    return &slots[at];
}

static int links_grow(struct links *l, struct err *e)
{
    size_t cap = l->cap ? l->cap * 2 : 256;
    struct link *slots = calloc(cap, sizeof(*slots));

    if (!slots)
        return err_oom(e);
    for (size_t i = 0; i < l->cap; i++)
        if (l->slots[i].name)
            *links_find(slots, cap, l->slots[i].dev, l->slots[i].ino) = l->slots[i];
    free(l->slots);
    l->slots = slots;
    l->cap = cap;
    return 0;
}

int links_see(struct links *l, dev_t dev, ino_t ino, const char *name, const char **ret_first,
              struct err *e)
{
    struct link *slot;
    int r;

    if (l->n >= LINKS_MAX)
        return err_set(e, ERR_EXHAUSTED, "more than %u files have several names", LINKS_MAX);
    r = l->n * 2 >= l->cap ? links_grow(l, e) : 0;
    if (r < 0)
        return r;
    slot = links_find(l->slots, l->cap, dev, ino);
    *ret_first = slot->name;
    if (slot->name)
        return 0;
    slot->name = strdup(name);
    if (!slot->name)
        return err_oom(e);
    slot->dev = dev;
    slot->ino = ino;
    l->n++;
    return 0;
}

/* ---- extended attributes --------------------------------------------------------------------- */

static bool xattr_must_arrive(const char *name)
{
    return str_has_prefix(name, "user.") || strcmp(name, "system.posix_acl_access") == 0;
}

static int copy_xattr(int from, int to, const char *name, char *value)
{
    ssize_t n = fgetxattr(from, name, value, FS_XATTR_VALUE_MAX);

    if (n < 0)
        return errno == ENODATA || !xattr_must_arrive(name) ? 0 : -1;
    if (fsetxattr(to, name, value, (size_t)n, 0) < 0 && xattr_must_arrive(name))
        return -1;
    return 0;
}

int fs_xattr_copy(int from, int to)
{
    ssize_t total = flistxattr(from, NULL, 0);
    _cleanup_free_ char *names = NULL;
    _cleanup_free_ char *value = NULL;

    if (total <= 0)
        return 0;
    names = malloc(FS_XATTR_LIST_MAX);
    value = malloc(FS_XATTR_VALUE_MAX);
    if (!names || !value) {
        errno = ENOMEM;
        return -1;
    }
    total = flistxattr(from, names, FS_XATTR_LIST_MAX);
    for (ssize_t at = 0; at < total; at += (ssize_t)strlen(names + at) + 1)
        if (strcmp(names + at, "security.capability") != 0 &&
            copy_xattr(from, to, names + at, value) < 0)
            return -1;
    return 0;
}

/* ---- one file -------------------------------------------------------------------------------- */

int fs_copy_bytes(int from, off_t from_at, int to, off_t to_at, uint64_t len, uint64_t *ret_len,
                  struct err *e)
{
    _cleanup_free_ char *data = NULL; /* once the kernel can't */
    uint64_t left = len;

    while (left) {
        size_t want = left < RANGE_BYTES ? (size_t)left : RANGE_BYTES;
        ssize_t n = data ? -1 : copy_file_range(from, &from_at, to, &to_at, want, 0);

        if (!data && n < 0 && errno == EINTR)
            continue;
        if (!data && n < 0 && (errno == ENOSPC || errno == EDQUOT || errno == EIO))
            return err_sys(e, errno, "copy");
        if (n <= 0) {
            if (!data && !(data = malloc(CHUNK_BYTES)))
                return err_oom(e);
            n = pread(from, data, want < CHUNK_BYTES ? want : CHUNK_BYTES, from_at);
            if (n < 0 && errno == EINTR)
                continue;
            if (n < 0)
                return err_sys(e, errno, "read");
            if (n == 0)
                break;
            n = pwrite(to, data, (size_t)n, to_at);
            if (n < 0 && errno == EINTR)
                continue;
            if (n < 0)
                return err_sys(e, errno, "write");
            from_at += n;
            to_at += n;
        }
        left -= (uint64_t)n;
    }
    *ret_len = len - left;
    return 0;
}

static int copy_content(int from, int to, off_t size, const char *path, struct err *e)
{
    uint64_t copied; /* fewer: it shrank */
    off_t at = 0;
    int r;

    if (size == 0 || ioctl(to, FICLONE, from) == 0)
        return 0;
    while (at < size) {
        off_t data = lseek(from, at, SEEK_DATA);
        off_t hole;

        if (data < 0 && errno == ENXIO)
            break; /* a hole up to the end */
        if (data < 0)
            data = at;
        hole = lseek(from, data, SEEK_HOLE);
        if (hole < 0 || hole > size)
            hole = size;
        r = fs_copy_bytes(from, data, to, data, (uint64_t)(hole - data), &copied, e);
        if (r < 0)
            return err_wrap(e, r, "'%s'", path);
        at = hole;
    }
    return ftruncate(to, size) < 0 ? err_sys(e, errno, "set the size of '%s'", path) : 0;
}

/* Copies a file of /proc or /sys to its end: its size says nothing. */
static int copy_made_up(int from, int to, off_t *ret_size, const char *path, struct err *e)
{
    _cleanup_free_ char *data = malloc(CHUNK_BYTES);
    const struct fs_file f = {.fd = from};
    uint64_t total = 0;
    size_t n = 0;
    int r;

    if (!data)
        return err_oom(e);
    while ((r = fs_file_read(&f, data, CHUNK_BYTES, &n, e)) == 0 && n) {
        total += n;
        if (total > FS_MADE_UP_MAX)
            return err_set(e, ERR_EXHAUSTED, "'%s' does not end", path);
        r = io_write_all(to, data, n, e);
        if (r < 0)
            break;
    }
    *ret_size = (off_t)total;
    return r < 0 ? err_wrap(e, r, "'%s'", path) : 0;
}

/* The owner goes first: a change of owner clears the set-id bits. */
static int copy_attrs(int from, int to, const struct stat *st, const struct fs_copy_how *how,
                      const char *path, struct err *e)
{
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, st->st_mtim};
    mode_t mode = st->st_mode & 07777;

    if (how->keep_owner && fchown(to, st->st_uid, st->st_gid) < 0)
        return err_sys(e, errno, "chown '%s'", path);
    if (!how->keep_owner)
        mode &= ~(mode_t)(S_ISUID | S_ISGID);
    if (fs_xattr_copy(from, to) < 0 && errno != EOPNOTSUPP)
        return err_sys(e, errno, "copy the attributes of '%s'", path);
    if (fchmod(to, mode) < 0 || futimens(to, times) < 0)
        return err_sys(e, errno, "set the mode of '%s'", path);
    return 0;
}

static int copy_file(int from_dirfd, const char *name, int to_dirfd, const char *to_name,
                     const struct fs_copy_how *how, const char *path, struct err *e)
{
    _cleanup_close_ int from = fs_openat_nofollow(from_dirfd, name, O_RDONLY);
    _cleanup_close_ int to = -1;
    struct stat st;
    int r;

    if (from < 0 || fstat(from, &st) < 0)
        return err_sys(e, errno, "open '%s'", path);
    if (!S_ISREG(st.st_mode))
        return err_set(e, ERR_ABORTED, "'%s' became something else meanwhile", path);
    to = openat(to_dirfd, to_name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (to < 0)
        return err_sys(e, errno, "create '%s'", to_name);
    if (fs_is_made_up(from, st.st_size))
        r = copy_made_up(from, to, &st.st_size, path, e);
    else
        r = copy_content(from, to, st.st_size, path, e);
    if (r == 0)
        r = copy_attrs(from, to, &st, how, path, e);
    how->counts->bytes += (uint64_t)st.st_size;
    return r;
}

/* ---- other kinds ----------------------------------------------------------------------------- */

static int copy_symlink(int from_dirfd, const char *name, int to_dirfd, const char *to_name,
                        const char *path, struct err *e)
{
    char target[PATH_MAX];
    ssize_t n = readlinkat(from_dirfd, name, target, sizeof(target) - 1);

    if (n < 0)
        return err_sys(e, errno, "read the link '%s'", path);
    target[n] = '\0';
    if (symlinkat(target, to_dirfd, to_name) < 0)
        return err_sys(e, errno, "link '%s'", to_name);
    return 0;
}

/* For links and FIFOs, which have no descriptor. */
static int copy_attrs_by_name(int to_dirfd, const char *to_name, const struct stat *st,
                              const struct fs_copy_how *how, const char *path, struct err *e)
{
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, st->st_mtim};

    if (how->keep_owner &&
        fchownat(to_dirfd, to_name, st->st_uid, st->st_gid, AT_SYMLINK_NOFOLLOW) < 0)
        return err_sys(e, errno, "chown '%s'", path);
    if (utimensat(to_dirfd, to_name, times, AT_SYMLINK_NOFOLLOW) < 0)
        return err_sys(e, errno, "set the time of '%s'", path);
    return 0;
}

static int copy_other(int from_dirfd, const char *name, int to_dirfd, const char *to_name,
                      const struct stat *st, const struct fs_copy_how *how, const char *path,
                      struct err *e)
{
    int r = 0;

    if (S_ISREG(st->st_mode))
        return copy_file(from_dirfd, name, to_dirfd, to_name, how, path, e);
    if (S_ISLNK(st->st_mode))
        r = copy_symlink(from_dirfd, name, to_dirfd, to_name, path, e);
    else if (S_ISFIFO(st->st_mode) && mkfifoat(to_dirfd, to_name, st->st_mode & 0777) < 0)
        r = err_sys(e, errno, "make the FIFO '%s'", to_name);
    else if (!S_ISFIFO(st->st_mode))
        r = err_field(e, ERR_PRECONDITION, "from", "'%s' is a device or a socket", path);
    return r < 0 ? r : copy_attrs_by_name(to_dirfd, to_name, st, how, path, e);
}

/* ---- trees ----------------------------------------------------------------------------------- */

struct levels {
    int fd[MAX_LEVELS]; /* the copies of the directories that the walk is in, readable */
    unsigned n;
    struct links *links; /* files with several names: the path of the first copy */
};

static int enter_copy(struct levels *l, int dirfd, const char *name, struct err *e)
{
    int fd;

    if (l->n == MAX_LEVELS)
        return err_set(e, ERR_EXHAUSTED, "deeper than %d directories", MAX_LEVELS);
    if (mkdirat(dirfd, name, 0700) < 0)
        return err_sys(e, errno, "mkdir '%s'", name);
    fd = fs_openat_nofollow(dirfd, name, O_RDONLY | O_DIRECTORY);
    if (fd < 0)
        return err_sys(e, errno, "open '%s'", name);
    l->fd[l->n++] = fd;
    return 0;
}

static int leave_copy(struct levels *l, const struct fs_walk_item *it,
                      const struct fs_copy_how *how, struct err *e)
{
    _cleanup_close_ int to = l->fd[--l->n];
    _cleanup_close_ int from = fs_openat_nofollow(it->dirfd, it->name, O_RDONLY | O_DIRECTORY);

    if (from < 0)
        return err_sys(e, errno, "open '%s'", it->path);
    return copy_attrs(from, to, &it->st, how, it->path, e);
}

/* 1: the file has a copy already, which now has this name too. 0: it has to be copied. */
static int copy_name(struct levels *l, const struct fs_walk_item *it, struct err *e)
{
    _cleanup_close_ int dirfd = -1;
    _cleanup_free_ char *dir = NULL;
    const char *first = NULL, *name;
    int r;

    if (!S_ISREG(it->st.st_mode) || it->st.st_nlink < 2)
        return 0;
    r = links_see(l->links, it->st.st_dev, it->st.st_ino, it->path, &first, e);
    if (r < 0 || !first)
        return r;
    dir = fs_below_parent(first, &name);
    if (!dir)
        return err_oom(e);
    /* A disk without hard links, or with few, gets one more copy. */
    return fs_open_below(l->fd[0], dir, false, &dirfd, NULL) == 0 &&
           linkat(dirfd, name, l->fd[l->n - 1], it->name, 0) == 0;
}

static int copy_item(struct levels *l, const struct fs_walk_item *it, const struct fs_copy_how *how,
                     struct err *e)
{
    int r;

    if (it->kind == FS_WALK_ERROR)
        return err_set(e, (enum err_code)it->error.code, "%s", it->error.message);
    if (it->kind == FS_WALK_LEAVE)
        return leave_copy(l, it, how, e);
    if (it->depth == 0)
        return 0; /* fs_copy_entry() made it */
    how->counts->entries++;
    if (S_ISDIR(it->st.st_mode))
        return enter_copy(l, l->fd[l->n - 1], it->name, e);
    r = copy_name(l, it, e);
    if (r != 0)
        return r < 0 ? r : 0;
    return copy_other(it->dirfd, it->name, l->fd[l->n - 1], it->name, &it->st, how, it->path, e);
}

/* The directory of the whole copy. */
static int enter_top(struct levels *l, int dirfd, const char *name, int *ret_lock_fd, struct err *e)
{
    int fd = fs_temp_make_dir(dirfd, name);

    if (fd < 0)
        return err_sys(e, errno, "mkdir '%s'", name);
    l->fd[l->n++] = fd;
    *ret_lock_fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    return *ret_lock_fd < 0 ? err_sys(e, errno, "open '%s'", name) : 0;
}

static int copy_tree(int from_dirfd, const char *name, int to_dirfd, const char *to_name,
                     const struct fs_copy_how *how, struct err *e)
{
    struct fs_walk_options o = {.max_depth = FS_COPY_MAX_DEPTH, .deep_is_error = true};
    int from = fs_openat_nofollow(from_dirfd, name, O_RDONLY | O_DIRECTORY);
    const struct fs_walk_item *it;
    struct fs_walk *w = NULL;
    struct levels l = {0};
    int r;

    if (from < 0)
        return err_sys(e, errno, "open '%s'", name);
    r = fs_walk_new_take(from, &o, &w, e);
    if (r == 0)
        r = links_new(&l.links, e);
    if (r == 0)
        r = enter_top(&l, to_dirfd, to_name, how->ret_lock_fd, e);
    while (r == 0) {
        r = fs_walk_next(w, &it, e);
        if (r <= 0)
            break;
        r = copy_item(&l, it, how, e);
    }
    fs_walk_free(w);
    links_free(l.links);
    while (l.n)
        fd_close(l.fd[--l.n]);
    return r;
}

int fs_copy_entry(int from_dirfd, const char *name, int to_dirfd, const char *to_name,
                  const struct fs_copy_how *how, struct err *e)
{
    struct stat st;

    if (fstatat(from_dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return err_sys(e, errno, "stat '%s'", name);
    how->counts->entries++;
    if (S_ISDIR(st.st_mode))
        return copy_tree(from_dirfd, name, to_dirfd, to_name, how, e);
    return copy_other(from_dirfd, name, to_dirfd, to_name, &st, how, name, e);
}
