#include "lib/util/beneath.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/io.h"
#include "common/str.h"

static atomic_bool no_openat2;

void beneath_force_walk(bool on)
{
    atomic_store(&no_openat2, on);
}

/* ---- names ---- */

/* Returns the next component from *at (*ret_len bytes), or NULL at the end; moves *at behind
 * it. */
static const char *next_component(const char **at, size_t *ret_len)
{
    const char *name = *at + strspn(*at, "/");

    *ret_len = strcspn(name, "/");
    *at = name + *ret_len;
    return *ret_len ? name : NULL;
}

bool beneath_is_inside(const char *name)
{
    const char *at = name, *part;
    size_t n;

    if (*name == '/')
        return false;
    while ((part = next_component(&at, &n)))
        if (n == 2 && part[0] == '.' && part[1] == '.')
            return false;
    return true;
}

bool beneath_names_git(const char *name)
{
    const char *part;
    size_t n;

    while ((part = next_component(&name, &n))) {
        while (n > 4 && (part[n - 1] == '.' || part[n - 1] == ' '))
            n--;
        if (n == 4 && strncasecmp(part, ".git", 4) == 0)
            return true;
    }
    return false;
}

/* ---- opening ---- */

static int open_by_kernel(int root, const char *name, int flags)
{
    struct open_how how = {
        .flags = (uint64_t)(unsigned)flags,
        .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
    };

    if (atomic_load_explicit(&no_openat2, memory_order_relaxed)) {
        errno = ENOSYS;
        return -1;
    }
    return (int)syscall(SYS_openat2, root, *name ? name : ".", &how, sizeof(how));
}

static int open_by_walk(int root, const char *name, int flags)
{
    const int on_the_way = O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
    _cleanup_close_ int dir = -1;
    char last[NAME_MAX + 1] = ".";
    size_t n = strlen(name);
    const char *part;

    if (n && name[n - 1] == '/')
        flags |= O_DIRECTORY;
    while ((part = next_component(&name, &n))) {
        int next;

        if (n > NAME_MAX) {
            errno = ENAMETOOLONG;
            return -1;
        }
        next = openat(dir < 0 ? root : dir, last, on_the_way);
        if (next < 0)
            return -1;
        fd_close(dir);
        dir = next;
        memcpy(last, part, n);
        last[n] = '\0';
    }
    return openat(dir < 0 ? root : dir, last, flags);
}

int beneath_open(int root, const char *name, int flags)
{
    int fd;

    flags |= O_CLOEXEC | O_NOFOLLOW | (flags & O_PATH ? 0 : O_NOCTTY | O_NONBLOCK);
    if (!beneath_is_inside(name)) {
        errno = EXDEV;
        return -1;
    }
    fd = open_by_kernel(root, name, flags);
    /* EPERM: a seccomp filter that does not know openat2. The walk also takes names longer than
     * the kernel's limit. */
    if (fd < 0 && (errno == ENOSYS || errno == EPERM || errno == EAGAIN || errno == ENAMETOOLONG))
        fd = open_by_walk(root, name, flags);
    return fd;
}

int beneath_stat(int root, const char *name, struct stat *ret)
{
    _cleanup_close_ int fd = beneath_open(root, name, O_PATH);

    return fd < 0 ? -1 : fstat(fd, ret);
}

ssize_t beneath_readlink(int root, const char *name, char *out, size_t size)
{
    _cleanup_close_ int fd = beneath_open(root, name, O_PATH);
    ssize_t n = fd < 0 ? -1 : readlinkat(fd, "", out, size - 1);

    if (n >= 0)
        out[n] = '\0';
    else if (fd >= 0 && errno == ENOENT) /* readlinkat() says ENOENT for a file that is no link */
        errno = EINVAL;
    return n;
}

int beneath_read_file(int root, const char *name, size_t max, char **ret, size_t *ret_len,
                      struct err *e)
{
    _cleanup_close_ int fd = beneath_open(root, name, O_RDONLY);
    _cleanup_free_ char *data = NULL;
    struct stat st;
    size_t len;
    int r;

    if (fd < 0 || fstat(fd, &st) < 0)
        return err_sys(e, errno, "open '%s'", name);
    if (!S_ISREG(st.st_mode))
        return err_set(e, ERR_INVALID, "'%s' is not a regular file", name);
    if ((uint64_t)st.st_size > max)
        return err_set(e, ERR_EXHAUSTED, "'%s' has more than %zu bytes", name, max);
    data = malloc((size_t)st.st_size + 1);
    if (!data)
        return err_oom(e);
    r = io_read_full(fd, data, (size_t)st.st_size, &len, e);
    if (r < 0)
        return err_wrap(e, r, "'%s'", name);
    data[len] = '\0';
    *ret = TAKE(data);
    if (ret_len)
        *ret_len = len;
    return 0;
}

/* ---- modes ---- */

/* Goes through /proc: a file that its owner may not read cannot be opened, and fchmod() takes
 * no O_PATH. */
int beneath_chmod(int dir, const char *name, mode_t mode)
{
    _cleanup_close_ int fd = openat(dir, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    char self[sizeof("/proc/self/fd/") + 11];
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0)
        return -1;
    if (S_ISLNK(st.st_mode)) {
        errno = ELOOP;
        return -1;
    }
    (void)snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
    return chmod(self, mode);
}

/* ---- removal ---- */

/*
 * A box can make trees deeper than any path or stack. Nothing recurses: each round unlinks a
 * directory's files and moves its directories up to the top one, until that is empty.
 */
struct remover {
    int top;
    unsigned n_moved;
    bool found; /* this round found an entry */
};

static bool is_dots(const char *name)
{
    return str_eq(name, ".") || str_eq(name, "..");
}

/* Removes a file, a link or an empty directory. */
static bool remove_simple(int dir, const char *name)
{
    return unlinkat(dir, name, 0) == 0 || errno == ENOENT || unlinkat(dir, name, AT_REMOVEDIR) == 0;
}

/* Opens a directory, also one that its owner made unreadable. */
static int open_dir(int dir, const char *name)
{
    const int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
    int fd = openat(dir, name, flags);

    if (fd < 0 && errno == EACCES && beneath_chmod(dir, name, 0700) == 0)
        fd = openat(dir, name, flags);
    if (fd >= 0)
        (void)fchmod(fd, 0700);
    return fd;
}

/* Empties the directory `fd` (closed here) into the top one. */
static int empty_dir(struct remover *rm, int fd, struct err *e)
{
    _cleanup_closedir_ DIR *d = fdopendir(fd);

    if (!d) {
        fd_close(fd);
        return err_sys(e, errno, "open a directory");
    }
    for (struct dirent *de; (de = readdir(d));) {
        char name[32];
        int r;

        if (is_dots(de->d_name) || remove_simple(dirfd(d), de->d_name))
            continue;
        (void)beneath_chmod(dirfd(d), de->d_name, 0700); /* moving a directory writes its '..' */
        do /* skip the names of an interrupted removal */
            (void)snprintf(name, sizeof(name), ".bellhop-rm-%u", rm->n_moved++);
        while ((r = renameat(dirfd(d), de->d_name, rm->top, name)) < 0 &&
               (errno == ENOTEMPTY || errno == EEXIST || errno == ENOTDIR));
        if (r < 0)
            return err_sys(e, errno, "remove '%s'", de->d_name);
    }
    return 0;
}

/* Handles every entry of the top directory once. */
static int remove_round(struct remover *rm, struct err *e)
{
    int fd = openat(rm->top, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    _cleanup_closedir_ DIR *d = fd < 0 ? NULL : fdopendir(fd);
    int r = 0;

    if (!d)
        return err_sys(e, errno, "open a directory");
    rm->found = false;
    for (struct dirent *de; r == 0 && (de = readdir(d));) {
        int sub;

        if (is_dots(de->d_name))
            continue;
        rm->found = true;
        if (remove_simple(rm->top, de->d_name))
            continue;
        sub = open_dir(rm->top, de->d_name);
        if (sub < 0)
            return err_sys(e, errno, "remove '%s'", de->d_name);
        r = empty_dir(rm, sub, e);
        if (r == 0 && !remove_simple(rm->top, de->d_name))
            r = err_sys(e, errno, "remove '%s'", de->d_name);
    }
    return r;
}

int dirtree_remove(const char *path, struct err *e)
{
    _cleanup_close_ int top = open_dir(AT_FDCWD, path);
    struct remover rm = {.top = top, .found = true};
    int r = 0;

    if (top < 0)
        return errno == ENOENT ? 0 : err_sys(e, errno, "open '%s'", path);
    while (r == 0 && rm.found)
        r = remove_round(&rm, e);
    if (r < 0)
        return err_wrap(e, r, "removing '%s'", path);
    if (rmdir(path) < 0 && errno != ENOENT)
        return err_sys(e, errno, "remove '%s'", path);
    return 0;
}

/* ---- measuring ---- */

struct measure {
    int top;
    struct strv_list dirs;
    size_t n_entries, max_entries;
    uint64_t bytes;
};

static int measure_dir(struct measure *m, const char *name, struct err *e)
{
    int fd = beneath_open(m->top, name, O_RDONLY | O_DIRECTORY);
    _cleanup_closedir_ DIR *d = fd < 0 ? NULL : fdopendir(fd);

    if (!d) {
        fd_close(fd);
        return err_sys(e, errno, "open a directory");
    }
    for (struct dirent *de; (de = readdir(d));) {
        _cleanup_free_ char *sub = NULL;
        struct stat st;
        int r;

        if (is_dots(de->d_name) || fstatat(dirfd(d), de->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
            continue;
        if (m->n_entries++ == m->max_entries)
            return err_set(e, ERR_EXHAUSTED, "there are too many entries");
        m->bytes += (uint64_t)st.st_blocks * 512;
        if (!S_ISDIR(st.st_mode))
            continue;
        if (asprintf(&sub, "%s%s%s", name, *name ? "/" : "", de->d_name) < 0)
            return err_oom(e);
        r = strv_list_add(&m->dirs, sub, e);
        if (r < 0)
            return r;
    }
    return 0;
}

bool dirtree_measure(const char *path, size_t max_entries, uint64_t *ret_bytes)
{
    _cleanup_close_ int top = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct measure m = {.top = top, .max_entries = max_entries};
    bool is_whole = top >= 0 && measure_dir(&m, "", NULL) == 0;

    for (size_t i = 0; is_whole && i < m.dirs.n; i++)
        is_whole = measure_dir(&m, m.dirs.v[i], NULL) == 0;
    (void)strv_free(m.dirs.v);
    *ret_bytes = m.bytes;
    return is_whole;
}
