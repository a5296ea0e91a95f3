#include "fs/resolve.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cleanup.h"

/*
 * A ".." goes back to the descriptor that the walk came from, never to the disk's "..": a directory
 * that is moved out of the root meanwhile takes the walk nowhere. In the root "/" there is no
 * outside, so only the last descriptor is kept and depth is not bounded.
 */
struct walk {
    const struct fs_root *root;
    int stack[FS_RESOLVE_MAX_DEPTH];
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

const char *fs_root_relative(const struct fs_root *r, const char *path)
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
    if (w->depth == FS_RESOLVE_MAX_DEPTH) {
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
        from = fs_root_relative(w->root, target);
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

int fs_resolve_walk(const struct fs_root *root, const char *path, int flags, mode_t mode)
{
    struct walk w = {.root = root};
    const char *rest = fs_root_relative(root, path);
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
