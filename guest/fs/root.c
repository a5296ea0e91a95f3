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

#define OPENAT2_TRIES 8       /* it says EAGAIN when a rename ran meanwhile */
#define RESOLVE_MAX_DEPTH 256 /* directories below a root that are held open on the way */
#define LAST_FLAGS (O_NOCTTY | O_NONBLOCK)
#define PIECE_BYTES 4000 /* of a path in one call; PATH_MAX is 4096 */

struct fs_root {
    int fd;                 /* O_PATH */
    char *path;             /* real */
    bool is_whole;          /* "/" */
    struct fs_feeds *feeds; /* borrowed, or NULL */
};

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

/* ---- resolution, one component at a time: for kernels without openat2, and for absolute links */

/*
 * A ".." goes back to the descriptor that the walk came from, never to the disk's "..": a directory
 * that is moved out of the root meanwhile takes the walk nowhere. In the root "/" there is no
 * outside, so only the last descriptor is kept and depth is not bounded.
 */
struct walk {
    const struct fs_root *root;
    int stack[RESOLVE_MAX_DEPTH];
    int depth;  /* stack[depth - 1] is where the walk stands; 0: at the root */
    char *rest; /* owned: what is still to be resolved */
    char *at;   /* index into rest */
    int links;
};

static const char *skip_slashes_and_dots(const char *p)
{
    for (;;) {
        if (p[0] == '/')
            p++;
        else if (p[0] == '.' && p[1] == '/')
            p += 2;
        else if (p[0] == '.' && p[1] == '\0')
            p++;
        else
            return p;
    }
}

/* The part of an absolute path behind the root ("" for the root itself), pointing into path; NULL
 * if the path does not begin with the root. Lexical, so no check: the kernel resolves ".." in the
 * rest. */
static const char *root_relative(const struct fs_root *r, const char *path)
{
    const char *want = r->path;

    if (path[0] != '/')
        return NULL;
    for (;;) {
        size_t n;

        want = skip_slashes_and_dots(want);
        path = skip_slashes_and_dots(path);
        if (!*want)
            return path;
        n = strcspn(want, "/");
        if (strncmp(want, path, n) != 0 || (path[n] != '/' && path[n] != '\0'))
            return NULL;
        want += n;
        path += n;
    }
}

static int walk_here(const struct walk *w)
{
    return w->depth ? w->stack[w->depth - 1] : w->root->fd;
}

static void go_root(struct walk *w)
{
    while (w->depth)
        fd_close(w->stack[--w->depth]);
}

static int fail_sys(int sys)
{
    errno = sys;
    return -1;
}

static int walk_push_take(struct walk *w, int fd)
{
    if (w->root->is_whole)
        go_root(w);
    if (w->depth == RESOLVE_MAX_DEPTH) {
        fd_close(fd);
        return fail_sys(ENAMETOOLONG);
    }
    w->stack[w->depth++] = fd;
    return 0;
}

static int go_up(struct walk *w)
{
    int fd;

    if (!w->depth)
        return w->root->is_whole ? 0 : fail_sys(EXDEV);
    if (!w->root->is_whole) {
        fd_close(w->stack[--w->depth]);
        return 0;
    }
    fd = openat(walk_here(w), "..", O_PATH | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 ? -1 : walk_push_take(w, fd);
}

/* The link's text goes before the rest; an absolute one starts again at the root. */
static int splice_link(struct walk *w, const char *target)
{
    const char *from = target;
    char *next;

    if (++w->links > FS_MAX_LINKS)
        return fail_sys(ELOOP);
    if (!target[0])
        return fail_sys(ENOENT);
    if (target[0] == '/') {
        from = root_relative(w->root, target);
        if (!from)
            return fail_sys(EXDEV);
        go_root(w);
    }
    if (strlen(from) + strlen(w->at) > FS_PATH_MAX)
        return fail_sys(ENAMETOOLONG);
    if (asprintf(&next, "%s%s%s", from, *w->at ? "/" : "", w->at) < 0)
        return fail_sys(ENOMEM);
    free(w->rest);
    w->rest = w->at = next;
    return 0;
}

static int walk_enter(struct walk *w, const char *name)
{
    int fd = openat(walk_here(w), name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    char target[PATH_MAX];
    struct stat st;
    ssize_t n;

    if (fd < 0)
        return -1;
    if (fstat(fd, &st) < 0) {
        fd_close(fd);
        return -1;
    }
    if (S_ISDIR(st.st_mode))
        return walk_push_take(w, fd);
    n = S_ISLNK(st.st_mode) ? readlinkat(fd, "", target, sizeof(target) - 1) : fail_sys(ENOTDIR);
    fd_close(fd);
    if (n < 0)
        return -1;
    target[n] = '\0';
    return splice_link(w, target);
}

/* 0: a link was followed, go on; 1: *ret_fd is set; -1 with errno. */
static int open_last(struct walk *w, const char *name, int flags, mode_t mode, int *ret_fd)
{
    char target[PATH_MAX];
    ssize_t n;

    if (!(flags & O_NOFOLLOW) && (flags & (O_CREAT | O_EXCL)) != (O_CREAT | O_EXCL)) {
        n = readlinkat(walk_here(w), name, target, sizeof(target) - 1);
        if (n >= 0) {
            target[n] = '\0';
            return splice_link(w, target);
        }
    }
    *ret_fd = openat(walk_here(w), name, flags | O_NOFOLLOW, mode);
    return *ret_fd < 0 ? -1 : 1;
}

/* Takes the next component off the rest. False at the end. `more`: something follows, if only a
 * slash, so that the component has to be a directory. */
static bool next_component(struct walk *w, char name[NAME_MAX + 2], bool *more)
{
    size_t n;

    w->at += strspn(w->at, "/");
    n = strcspn(w->at, "/");
    if (!n)
        return false;
    (void)snprintf(name, NAME_MAX + 2, "%.*s", (int)(n > NAME_MAX ? NAME_MAX + 1 : n), w->at);
    w->at += n;
    *more = w->at[0] == '/';
    w->at += strspn(w->at, "/");
    return true;
}

static int walk_run(struct walk *w, int flags, mode_t mode)
{
    char name[NAME_MAX + 2];
    int fd = -1;
    bool more;

    while (next_component(w, name, &more)) {
        int r;

        if (strlen(name) > NAME_MAX)
            return fail_sys(ENAMETOOLONG);
        if (strcmp(name, ".") == 0)
            continue;
        if (strcmp(name, "..") == 0)
            r = go_up(w);
        else if (more)
            r = walk_enter(w, name);
        else
            r = open_last(w, name, flags, mode, &fd);
        if (r < 0 || fd >= 0)
            return r < 0 ? -1 : fd;
    }
    /* The path ended in a directory that stands open already. */
    return flags & O_CREAT ? fail_sys(EISDIR) : openat(walk_here(w), ".", flags);
}

/* Descriptor, or -1 with errno; EXDEV: outside the root. */
static int resolve_walk(const struct fs_root *root, const char *path, int flags, mode_t mode)
{
    struct walk w = {.root = root};
    const char *rest = root_relative(root, path);
    int fd, saved;

    if (!rest)
        return fail_sys(EXDEV);
    w.rest = w.at = strdup(rest);
    if (!w.rest)
        return fail_sys(ENOMEM);
    fd = walk_run(&w, flags, mode);
    saved = errno;
    go_root(&w);
    free(w.rest);
    errno = saved;
    return fd;
}

/* ---- callers --------------------------------------------------------------------------------- */

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
        base = root_relative(root, c->actor.user.home) ? c->actor.user.home : root->path;
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

/* ---- paths ----------------------------------------------------------------------------------- */

/* -1 with errno; EXDEV and ENOSYS mean that the walk has to decide. */
static int open_by_kernel(const struct fs_root *root, const char *path, int flags, mode_t mode)
{
    struct open_how how = {
        .flags = (uint64_t)(unsigned)flags,
        .mode = flags & O_CREAT ? mode & 07777 : 0,
        .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS,
    };
    const char *rest = root_relative(root, path);

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
        fd = resolve_walk(c->root, full, flags, mode);
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
    if (!c->root->is_whole && root_relative(c->root, full) && !root_relative(c->root, full)[0])
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

/* ---- below a directory that is open ---------------------------------------------------------- */

static int step_into(int *fd, const char *name, bool make, struct err *e)
{
    int next;

    if (make && mkdirat(*fd, name, FS_BELOW_DIR_MODE) < 0 && errno != EEXIST)
        return err_sys(e, errno, "mkdir '%.200s'", name);
    next = openat(*fd, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (next < 0 && (errno == ELOOP || errno == ENOTDIR))
        return err_set(e, ERR_INVALID, "'%.200s' on the way is a link or a file", name);
    if (next < 0)
        return err_sys(e, errno, "open '%.200s'", name);
    fd_close(*fd);
    *fd = next;
    return 0;
}

int fs_open_below(int base, const char *dir, bool make, int *ret_fd, struct err *e)
{
    _cleanup_close_ int fd = fcntl(base, F_DUPFD_CLOEXEC, 3);
    int r;

    if (fd < 0)
        return err_sys(e, errno, "open '%.200s'", dir);
    while (*dir) {
        char name[NAME_MAX + 1];
        size_t n = strcspn(dir, "/");

        if (n > NAME_MAX)
            return err_sys(e, ENAMETOOLONG, "open '%.200s'", dir);
        (void)memcpy(name, dir, n);
        name[n] = '\0';
        if (strcmp(name, "..") == 0)
            return err_set(e, ERR_INVALID, "'..' in '%.200s'", dir);
        r = step_into(&fd, name, make, e);
        if (r < 0)
            return r;
        dir += n + (dir[n] == '/');
    }
    *ret_fd = TAKE_FD(fd);
    return 0;
}

char *fs_below_parent(const char *path, const char **ret_name)
{
    const char *name = path_name(path);

    *ret_name = name;
    return strndup(path, (size_t)(name > path ? name - path - 1 : 0));
}

static int openat2_beneath(int dirfd, const char *piece, int flags)
{
    struct open_how how = {
        .flags = (uint64_t)(unsigned)(flags | O_CLOEXEC),
        .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
    };
    long fd = syscall(SYS_openat2, dirfd, piece, &how, sizeof(how));

    return fd < 0 ? -errno : (int)fd;
}

/* The end of the longest run of whole components of at most max bytes (at least one component). */
static size_t path_piece_len(const char *path, size_t max)
{
    size_t end = strcspn(path, "/");

    while (path[end]) {
        size_t next = end + 1 + strcspn(path + end + 1, "/");

        if (next > max)
            break;
        end = next;
    }
    return end;
}

/* max: how much of the path goes to the kernel at once; 0 for one component (no openat2). */
static int open_in_pieces(int dirfd, const char *path, int flags, size_t max)
{
    _cleanup_close_ int held = -1;
    char piece[PATH_MAX];

    for (;;) {
        size_t n = path_piece_len(path, max);
        bool last = path[n] == '\0';
        int fd, how = last ? flags | LAST_FLAGS : O_PATH | O_DIRECTORY; /* O_PATH takes no more */

        if (n >= sizeof(piece))
            return -ENAMETOOLONG;
        memcpy(piece, path, n);
        piece[n] = '\0';
        if (max)
            fd = openat2_beneath(held < 0 ? dirfd : held, piece, how);
        else
            fd = openat(held < 0 ? dirfd : held, piece, how | O_CLOEXEC | O_NOFOLLOW);
        if (fd < 0)
            return max ? fd : -errno;
        if (last)
            return fd;
        fd_close(held);
        held = fd;
        path += n + 1;
    }
}

int fs_openat_below(int dirfd, const char *path, int flags)
{
    int fd = open_in_pieces(dirfd, path, flags | O_NOFOLLOW, PIECE_BYTES);

    if (fd == -ENOSYS || fd == -EPERM || fd == -EAGAIN) /* an old kernel, or a seccomp filter */
        fd = open_in_pieces(dirfd, path, flags, 0);
    return fd;
}
