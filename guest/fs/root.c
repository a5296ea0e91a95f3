#include "fs/root.h"

#include <errno.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/path.h"
#include "fs/resolve.h"

#define OPENAT2_TRIES 8 /* it says EAGAIN when a rename ran meanwhile */

static atomic_bool no_openat2;

void fs_root_force_walk(bool on)
{
    atomic_store(&no_openat2, on);
}

int fs_root_new(const char *dir, struct fs_root **ret, struct err *e)
{
    _cleanup_free_ char *real = realpath(dir, NULL);
    _cleanup_close_ int fd = -1;
    struct fs_root *r;

    if (!real)
        return err_sys(e, errno, "root '%s'", dir);
    fd = open(real, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return err_sys(e, errno, "root '%s'", dir);
    r = calloc(1, sizeof(*r));
    if (!r)
        return err_oom(e);
    r->fd = TAKE_FD(fd);
    r->path = TAKE(real);
    r->is_whole = strcmp(r->path, "/") == 0;
    *ret = r;
    return 0;
}

struct fs_root *fs_root_free(struct fs_root *r)
{
    if (!r)
        return NULL;
    fd_close(r->fd);
    free(r->path);
    free(r);
    return NULL;
}

const char *fs_root_path(const struct fs_root *r)
{
    return r->path;
}

void fs_root_set_feeds(struct fs_root *r, struct fs_feeds *feeds)
{
    r->feeds = feeds;
}

struct fs_feeds *fs_root_feeds(const struct fs_root *r)
{
    return r->feeds;
}

int fs_caller_new(struct fs_root *root, const char *user, const char *base, struct fs_caller **ret,
                  struct err *e)
{
    struct fs_caller *c = calloc(1, sizeof(*c));
    int r;

    if (!c)
        return err_oom(e);
    c->root = root;
    c->refs = 1;
    r = fs_actor_init(&c->actor, user, e);
    if (r < 0) {
        free(c);
        return r;
    }
    if (base && !path_is_absolute(base))
        r = err_field(e, ERR_INVALID, "cwd", "'%s' is not an absolute path", base);
    else if (!base)
        base = fs_root_relative(root, c->actor.user.home) ? c->actor.user.home : root->path;
    if (r == 0 && !(c->base = strdup(base)))
        r = err_oom(e);
    if (r < 0) {
        fs_caller_unref(c);
        return r;
    }
    *ret = c;
    return 0;
}

struct fs_caller *fs_caller_ref(struct fs_caller *c)
{
    (void)__atomic_add_fetch(&c->refs, 1, __ATOMIC_RELAXED);
    return c;
}

struct fs_caller *fs_caller_unref(struct fs_caller *c)
{
    if (!c || __atomic_sub_fetch(&c->refs, 1, __ATOMIC_ACQ_REL) > 0)
        return NULL;
    fs_actor_done(&c->actor);
    free(c->base);
    free(c);
    return NULL;
}

int fs_caller_path(const struct fs_caller *c, const char *path, char **ret, struct err *e)
{
    bool is_home = path[0] == '~' && (path[1] == '\0' || path[1] == '/');
    char *joined;

    if (!path[0])
        return err_field(e, ERR_INVALID, "path", "a path must not be empty");
    if (strlen(path) > FS_PATH_MAX)
        return err_field(e, ERR_INVALID, "path", "a path has at most %d bytes", FS_PATH_MAX);
    if (is_home)
        joined = path[1] && path[2] ? path_join(c->actor.user.home, path + 2)
                                    : strdup(c->actor.user.home);
    else
        joined = path_join(c->base, path);
    if (!joined)
        return err_oom(e);
    *ret = joined;
    return 0;
}

/* -1 with errno; EXDEV and ENOSYS mean that the walk has to decide. */
static int open_by_kernel(const struct fs_root *root, const char *path, int flags, mode_t mode)
{
    struct open_how how = {
        .flags = (uint64_t)(unsigned)flags,
        .mode = flags & O_CREAT ? mode & 07777 : 0,
        .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS,
    };
    const char *rest = fs_root_relative(root, path);

    if (!rest) {
        errno = EXDEV;
        return -1;
    }
    if (root->is_whole)
        return open(path, flags, mode);
    if (atomic_load_explicit(&no_openat2, memory_order_relaxed)) {
        errno = ENOSYS;
        return -1;
    }
    for (int i = 0; i < OPENAT2_TRIES; i++) {
        int fd = (int)syscall(SYS_openat2, root->fd, *rest ? rest : ".", &how, sizeof(how));

        if (fd >= 0 || errno != EAGAIN)
            return fd;
    }
    errno = ENOSYS;
    return -1;
}

int fs_open(const struct fs_caller *c, const char *path, int flags, mode_t mode, int *ret_fd,
            struct err *e)
{
    _cleanup_free_ char *full = NULL;
    int fd, r;

    r = fs_caller_path(c, path, &full, e);
    if (r < 0)
        return r;
    flags |= O_CLOEXEC | (flags & O_PATH ? 0 : O_NOCTTY | O_NONBLOCK);
    fd = open_by_kernel(c->root, full, flags, mode);
    if (fd < 0 && (errno == EXDEV || errno == ENOSYS || errno == ENAMETOOLONG))
        fd = fs_resolve_walk(c->root, full, flags, mode);
    if (fd < 0 && errno == EXDEV)
        return err_field(e, ERR_DENIED, "path", "'%s' is outside the root '%s'", path,
                         c->root->path);
    if (fd < 0)
        return err_at(e, err_sys(e, errno, "open '%s'", path), "path");
    *ret_fd = fd;
    return 0;
}

/* Splits path into its last component and the part before it. */
static int split_last(const struct fs_caller *c, const char *path, char **ret_dir, char **ret_name,
                      struct err *e)
{
    _cleanup_free_ char *full = NULL;
    const char *name;
    size_t n;
    int r;

    r = fs_caller_path(c, path, &full, e);
    if (r < 0)
        return r;
    n = strlen(full);
    while (n > 1 && full[n - 1] == '/')
        full[--n] = '\0';
    name = path_name(full);
    if (!name[0] || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return err_field(e, ERR_INVALID, "path", "'%s' has no name in its last place", path);
    if (strlen(name) > NAME_MAX)
        return err_field(e, ERR_INVALID, "path", "a name in '%.100s...' has more than %d bytes",
                         path, NAME_MAX);
    if (!c->root->is_whole && fs_root_relative(c->root, full) &&
        !fs_root_relative(c->root, full)[0])
        return err_field(e, ERR_INVALID, "path", "'%s' is the root itself", path);
    *ret_name = strdup(name);
    *ret_dir = path_dir(full);
    if (!*ret_name || !*ret_dir) {
        free(*ret_name);
        free(*ret_dir);
        return err_oom(e);
    }
    return 0;
}

int fs_open_parent(const struct fs_caller *c, const char *path, int *ret_dirfd, char **ret_name,
                   struct err *e)
{
    _cleanup_free_ char *dir = NULL;
    _cleanup_free_ char *name = NULL;
    int r;

    r = split_last(c, path, &dir, &name, e);
    if (r < 0)
        return r;
    r = fs_open(c, dir, O_PATH | O_DIRECTORY, 0, ret_dirfd, e);
    if (r < 0)
        return r;
    *ret_name = TAKE(name);
    return 0;
}

/* Replaces *path by the target of the link that it names, relative to the link's directory. */
static int root_follow(char **path, const char *target, struct err *e)
{
    _cleanup_free_ char *dir = path_dir(*path);
    char *next = dir ? path_join(dir, target) : NULL;

    if (!next)
        return err_oom(e);
    free(*path);
    *path = next;
    return 0;
}

int fs_open_target(const struct fs_caller *c, const char *path, int *ret_dirfd, char **ret_name,
                   struct err *e)
{
    _cleanup_free_ char *at = NULL;
    int r;

    r = fs_caller_path(c, path, &at, e);
    if (r < 0)
        return r;
    for (int links = 0; links <= FS_MAX_LINKS; links++) {
        _cleanup_close_ int dirfd = -1;
        _cleanup_free_ char *name = NULL;
        char target[PATH_MAX];
        ssize_t n;

        r = fs_open_parent(c, at, &dirfd, &name, e);
        if (r < 0)
            return r;
        n = readlinkat(dirfd, name, target, sizeof(target) - 1);
        if (n < 0) {
            *ret_dirfd = TAKE_FD(dirfd);
            *ret_name = TAKE(name);
            return 0;
        }
        target[n] = '\0';
        r = root_follow(&at, target, e);
        if (r < 0)
            return r;
    }
    return err_at(e, err_sys(e, ELOOP, "open '%s'", path), "path");
}

/* Makes and opens one missing directory below dirfd. The mode is exact: no umask. */
static int make_parent(int dirfd, const char *name, mode_t mode, int *ret_fd, int *made,
                       struct err *e)
{
    _cleanup_close_ int fd = -1;
    bool is_new = mkdirat(dirfd, name, mode | 0700) == 0;

    if (!is_new && errno != EEXIST)
        return err_sys(e, errno, "mkdir '%s'", name);
    *made += is_new;
    if (is_new) {
        fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0 || fchmod(fd, mode) < 0)
            return err_sys(e, errno, "mkdir '%s'", name);
    }
    *ret_fd = openat(dirfd, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (*ret_fd < 0)
        return err_sys(e, errno, "open '%s'", name);
    return 0;
}

/* Opens the longest prefix of `full` that exists, and points behind it. */
static int open_existing(const struct fs_caller *c, const char *full, int *ret_fd,
                         const char **ret_rest, struct err *e)
{
    _cleanup_free_ char *prefix = strdup(full);
    struct err inner = {0};
    size_t n = strlen(full);
    int r;

    if (!prefix)
        return err_oom(e);
    for (;;) {
        r = fs_open(c, prefix, O_PATH | O_DIRECTORY, 0, ret_fd, &inner);
        if (r == 0)
            break;
        if (inner.sys != ENOENT || n <= 1)
            break;
        while (n > 1 && prefix[n - 1] == '/')
            n--;
        while (n > 1 && prefix[n - 1] != '/')
            n--;
        prefix[n] = '\0';
    }
    if (r < 0) {
        if (e)
            *e = inner;
        return r;
    }
    *ret_rest = full + n;
    return 0;
}

int fs_make_dirs(const struct fs_caller *c, const char *path, mode_t mode, int *ret_fd,
                 int *ret_made, struct err *e)
{
    _cleanup_free_ char *full = NULL;
    _cleanup_close_ int fd = -1;
    const char *rest;
    int made = 0;
    int r;

    r = fs_caller_path(c, path, &full, e);
    if (r < 0)
        return r;
    r = open_existing(c, full, &fd, &rest, e);
    if (r < 0)
        return r;
    while (*rest) {
        char name[NAME_MAX + 1];
        size_t n = strcspn(rest, "/");
        int next;

        if (n > NAME_MAX)
            return err_at(e, err_sys(e, ENAMETOOLONG, "mkdir '%s'", path), "path");
        (void)snprintf(name, sizeof(name), "%.*s", (int)n, rest);
        rest += n + strspn(rest + n, "/");
        if (!name[0] || strcmp(name, ".") == 0)
            continue;
        if (strcmp(name, "..") == 0)
            return err_field(e, ERR_INVALID, "path", "'..' behind what is missing in '%s'", path);
        r = make_parent(fd, name, mode, &next, &made, e);
        if (ret_made)
            *ret_made = made;
        if (r < 0)
            return err_at(e, err_wrap(e, r, "'%s'", path), "path");
        fd_close(fd);
        fd = next;
    }
    if (ret_made)
        *ret_made = made;
    *ret_fd = TAKE_FD(fd);
    return 0;
}

int fs_openat_nofollow(int dirfd, const char *name, int flags)
{
    return openat(dirfd, name, flags | O_NOFOLLOW | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
}
