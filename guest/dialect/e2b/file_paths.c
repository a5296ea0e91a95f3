#include "dialect/e2b/file_paths.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent.h"
#include "common/cleanup.h"
#include "common/path.h"
#include "dialect/e2b/account.h"
#include "fs/write.h"

/* ---- errors ----------------------------------------------------------------------------------- */

__attribute__((format(printf, 4, 0))) static int fault_vsys(struct err *e, enum err_code code,
                                                            int sys, const char *fmt, va_list ap)
{
    (void)err_vsys(e, sys, fmt, ap);
    if (e)
        e->code = (int)code;
    return -(int)code;
}

int fault_sys(struct err *e, enum err_code code, int sys, const char *fmt, ...)
{
    va_list ap;
    int r;

    va_start(ap, fmt);
    r = fault_vsys(e, code, sys, fmt, ap);
    va_end(ap);
    return r;
}

int fault_of(struct err *e, enum err_code code, const struct err *inner, const char *fmt, ...)
{
    va_list ap;
    int r;

    if (e)
        *e = *inner;
    if (!inner->sys)
        return -inner->code;
    va_start(ap, fmt);
    r = fault_vsys(e, code, inner->sys, fmt, ap);
    va_end(ap);
    return r;
}

/* ---- the request ------------------------------------------------------------------------------ */

static int files_caller_init(struct files_call *f, struct err *e)
{
    f->owner = (struct owner){f->user.uid, f->user.gid};
    return fs_caller_new(f->agent->root, NULL, fs_root_path(f->agent->root), &f->caller, e);
}

int files_call_init(struct files_call *f, const struct agent *a, const char *user, const char *path,
                    struct err *e)
{
    int r;

    f->agent = a;
    r = account_authenticate(a, user, &f->user, e);
    if (r == 0)
        r = files_caller_init(f, e);
    if (r == 0)
        r = files_call_path(f, path, &f->path, e);
    return r;
}

int files_rest_init(struct files_call *f, const struct agent *a, const char *user, struct err *e)
{
    int r;

    f->agent = a;
    r = account_look_up(a, user, &f->user, e);
    return r < 0 ? r : files_caller_init(f, e);
}

void files_call_done(struct files_call *f)
{
    user_done(&f->user);
    fs_caller_unref(f->caller);
    free(f->path);
}

int files_call_path(const struct files_call *f, const char *path, char **ret, struct err *e)
{
    return account_path(f->agent, &f->user, path, ret, e);
}

/* ---- missing directories ---------------------------------------------------------------------- */

/* Opens the first `len` bytes of the path. 0: there is nothing (*ret_fd is -1) or a directory. */
static int try_open(const struct fs_caller *c, const char *path, size_t len, int *ret_fd,
                    struct err *e)
{
    _cleanup_free_ char *part = strndup(path, len);
    _cleanup_close_ int fd = -1;
    struct err inner = {0};
    struct stat st;
    int r;

    if (!part)
        return err_oom(e);
    *ret_fd = -1;
    r = fs_open(c, part, O_PATH, 0, &fd, &inner);
    if (r < 0 && (inner.sys == ENOENT || inner.sys == ENOTDIR))
        return 0;
    if (r < 0)
        return fault_of(e, ERR_INTERNAL, &inner, "failed to stat directory: stat %s", part);
    if (fstat(fd, &st) == 0 && !S_ISDIR(st.st_mode))
        return err_set(e, ERR_INTERNAL, "path is a file: %s", part);
    *ret_fd = TAKE_FD(fd);
    return 0;
}

/* The end of the component that holds byte `at`, or begins there. */
static size_t end_of(const char *path, size_t at)
{
    at += strspn(path + at, "/");
    return at + strcspn(path + at, "/");
}

/* Finds the longest prefix of the path that exists, by bisection: a path may have thousands of
 * components. */
static int find_existing(const struct fs_caller *c, const char *path, size_t *ret_len, int *ret_fd,
                         struct err *e)
{
    const char *root = fs_root_path(c->root);
    size_t low = path_is_within(path, root) ? strlen(root) : 1; /* exists; `high` does not */
    size_t high = strlen(path);
    _cleanup_close_ int found = -1;
    int r = try_open(c, path, high, &found, e);

    if (r == 0 && found >= 0)
        low = high;
    while (r == 0 && low < high) {
        size_t end = end_of(path, low + (high - low) / 2);
        int fd = -1;

        if (end >= high)
            end = end_of(path, low);
        if (end >= high)
            break;
        r = try_open(c, path, end, &fd, e);
        if (fd < 0) {
            high = end;
            continue;
        }
        fd_close(found);
        found = fd;
        low = end;
    }
    if (r == 0 && found < 0)
        r = try_open(c, path, low, &found, e);
    if (r < 0)
        return r;
    *ret_len = low;
    *ret_fd = TAKE_FD(found);
    return 0;
}

/* Changes the owner also if another request has just made it and has not come to that yet. */
static int make_one(int dirfd, const char *name, const char *path, const struct owner *o,
                    int *ret_fd, struct err *e)
{
    if (mkdirat(dirfd, name, FS_NEW_DIR_MODE) < 0 && errno != EEXIST)
        return fault_sys(e, ERR_INTERNAL, errno, "failed to create directory: mkdir %s", path);
    if (fchownat(dirfd, name, o->uid, o->gid, AT_SYMLINK_NOFOLLOW) < 0)
        return fault_sys(e, ERR_INTERNAL, errno, "failed to chown directory: chown %s", path);
    *ret_fd = fs_openat_nofollow(dirfd, name, O_PATH | O_DIRECTORY);
    return *ret_fd < 0
               ? fault_sys(e, ERR_INTERNAL, errno, "failed to create directory: open %s", path)
               : 0;
}

/* Of a path without "//" and a '/' at its end. */
static bool has_dotdot(const char *path)
{
    for (const char *p = path; (p = strstr(p, "..")); p += 2)
        if ((p == path || p[-1] == '/') && (!p[2] || p[2] == '/'))
            return true;
    return false;
}

/*
 * The kernel resolves "..": behind a missing component it leads nowhere, and nothing is made
 * (*ret_made false).
 */
static int make_missing(const struct fs_caller *c, const char *path, const struct owner *o,
                        bool *ret_made, struct err *e)
{
    _cleanup_free_ char *full = path_squeeze(path);
    _cleanup_close_ int fd = -1;
    size_t len = 0;
    int r = full ? find_existing(c, full, &len, &fd, e) : err_oom(e);

    *ret_made = false;
    if (r == 0 && fd < 0)
        return fault_sys(e, ERR_INTERNAL, ENOENT, "failed to stat directory: stat %s", full);
    if (r < 0 || has_dotdot(full + len))
        return r;
    *ret_made = true;
    while (r == 0 && full[len]) {
        _cleanup_free_ char *name = NULL;
        size_t begin = len + strspn(full + len, "/");
        int next = -1;

        len = end_of(full, len);
        name = strndup(full + begin, len - begin);
        r = name ? make_one(fd, name, full, o, &next, e) : err_oom(e);
        fd_close(fd);
        fd = next;
    }
    return r;
}

int dirs_make(const struct fs_caller *c, const char *path, const struct owner *o, struct err *e)
{
    bool made;
    int r = make_missing(c, path, o, &made, e);

    return r < 0 || made
               ? r
               : fault_sys(e, ERR_INTERNAL, ENOENT, "failed to create directory: mkdir %s", path);
}

/* If that fails, the operation that needs the directory fails with its own error. */
int dirs_make_parents(const struct fs_caller *c, const char *path, const struct owner *o,
                      struct err *e)
{
    _cleanup_free_ char *dir = path_dir(path);
    bool made;

    return dir ? make_missing(c, dir, o, &made, e) : err_oom(e);
}
