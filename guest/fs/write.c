#include "fs/write_own.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/io.h"
#include "common/path.h"
#include "fs/open.h"
#include "fs/sys.h"

#define RESERVE_FROM (1u << 20) /* smaller files are not worth a system call */

/* ---- begin ----------------------------------------------------------------------------------- */

static int write_take_options(struct fs_write *w, const struct fs_write_options *o, struct err *e)
{
    w->o = *o;
    if (o->condition.if_match)
        w->if_match = strdup(o->condition.if_match);
    if (o->condition.if_none_match)
        w->if_none_match = strdup(o->condition.if_none_match);
    if ((o->condition.if_match && !w->if_match) ||
        (o->condition.if_none_match && !w->if_none_match))
        return err_oom(e);
    w->o.condition = (struct fs_condition){w->if_match, w->if_none_match};
    if (o->sha256) {
        (void)memcpy(w->want_sha256, o->sha256, sizeof(w->want_sha256));
        w->o.sha256 = w->want_sha256;
        w->has_sha = true;
        sha256_init(&w->sha);
    }
    if (!w->o.mode && !w->o.set_mode)
        w->o.mode = FS_NEW_FILE_MODE;
    w->o.mode &= 07777;
    return 0;
}

static int open_directory(struct fs_write *w, struct err *e)
{
    _cleanup_free_ char *dir = NULL;
    struct err inner = {0};
    int fd, r;

    r = fs_open_target(w->caller, w->path, &w->dirfd, &w->name, &inner);
    if (r < 0 && inner.sys == ENOENT && !w->o.no_parents) {
        dir = path_dir(w->path);
        if (!dir)
            return err_oom(e);
        r = fs_make_dirs(w->caller, dir, FS_NEW_DIR_MODE, &fd, &w->n_made, e);
        if (r < 0)
            return r;
        fd_close(fd);
        return fs_open_target(w->caller, w->path, &w->dirfd, &w->name, e);
    }
    if (r < 0 && e)
        *e = inner;
    return r;
}

/*
 * Does not try to open: opening a file of an overlay's lower directory for writing copies it up,
 * which changes its ctime and so its tag.
 */
static bool may_write(const struct fs_write *w)
{
    int fd;

    if (sys_may_write(w->dirfd, w->name) == 0)
        return true;
    if (errno != ENOSYS && errno != EPERM) /* some seccomp filters fail it with EPERM */
        return false;
    fd = fs_openat_nofollow(w->dirfd, w->name, O_WRONLY);
    fd_close(fd);
    return fd >= 0 || errno == ETXTBSY; /* a program that runs can be replaced, not written */
}

int fs_write_open_old(const struct fs_write *w, int *ret_fd, struct stat *ret_st, struct err *e)
{
    _cleanup_close_ int fd = fs_openat_nofollow(w->dirfd, w->name, O_PATH);
    int r;

    *ret_fd = -1;
    if (fd < 0 && errno == ENOENT)
        return 0;
    if (fd < 0 || fstat(fd, ret_st) < 0)
        return err_at(e, err_sys(e, errno, "stat '%s'", w->path), "path");
    r = fs_refuse_special(w->path, ret_st->st_mode, e);
    if (r < 0)
        return r;
    if (!may_write(w))
        return err_at(e, err_sys(e, errno, "open '%s' for writing", w->path), "path");
    *ret_fd = TAKE_FD(fd);
    return 0;
}

/* The directory can't take a new file, but the old one may be written: keep the bytes elsewhere. */
static int spool_elsewhere(struct fs_write *w, struct err *e)
{
    static const char *const places[] = {"/tmp", "/var/tmp", "/dev/shm"};
    int sys = errno;

    for (size_t i = 0; i < N_ELEMENTS(places); i++) {
        w->temp.fd = open(places[i], O_RDWR | O_TMPFILE | O_CLOEXEC, 0600);
        if (w->temp.fd >= 0) {
            w->spooled_elsewhere = true;
            return 0;
        }
    }
    return err_at(e, err_sys(e, sys, "make a file beside '%s'", w->path), "path");
}

static int open_temp(struct fs_write *w, struct err *e)
{
    _cleanup_close_ int old = -1;
    struct stat st;
    int r;

    r = fs_write_open_old(w, &old, &st, e);
    if (r < 0)
        return r;
    if (fs_temp_open(w->dirfd, &w->temp) == 0)
        return 0;
    /* /proc fails with ENOENT. */
    if (old >= 0 && (errno == EACCES || errno == EPERM || errno == EROFS || errno == ENOENT))
        return spool_elsewhere(w, e);
    return err_at(e, err_sys(e, errno, "make a file in the directory of '%s'", w->path), "path");
}

static int write_reserve(struct fs_write *w, struct err *e)
{
    if (w->o.max_bytes && w->o.expected > w->o.max_bytes)
        return err_sys(e, EFBIG, "'%s' would have %llu bytes", w->path,
                       (unsigned long long)w->o.expected);
    if (w->o.expected < RESERVE_FROM || w->o.expected > INT64_MAX)
        return 0;
    if (fallocate(w->temp.fd, FALLOC_FL_KEEP_SIZE, 0, (off_t)w->o.expected) < 0 &&
        (errno == ENOSPC || errno == EDQUOT || errno == EFBIG))
        return err_sys(e, errno, "reserve %llu bytes for '%s'", (unsigned long long)w->o.expected,
                       w->path);
    return 0;
}

static int write_begin(struct fs_write *w, const struct fs_write_options *o, struct err *e)
{
    _fs_acting_ const struct fs_actor *acting = NULL;
    size_t n = strlen(w->path);
    int r;

    if (n && w->path[n - 1] == '/')
        return err_field(e, ERR_INVALID, "path", "'%s' ends like a directory", w->path);
    r = write_take_options(w, o, e);
    if (r == 0)
        r = fs_act(&w->caller->actor, &acting, e);
    if (r == 0)
        r = open_directory(w, e);
    if (r == 0)
        r = fs_temp_refuse_name(w->name, "path", e);
    if (r == 0)
        r = open_temp(w, e);
    if (r == 0)
        r = write_reserve(w, e);
    return r;
}

/* An empty write; NULL: out of memory. */
static struct fs_write *write_alloc(struct fs_caller *c, const char *path, struct err *e)
{
    struct fs_write *w = calloc(1, sizeof(*w));

    if (w)
        w->path = strdup(path);
    if (!w || !w->path) {
        free(w);
        (void)err_oom(e);
        return NULL;
    }
    w->caller = fs_caller_ref(c);
    w->dirfd = -1;
    w->temp.fd = -1;
    w->data.fd = -1;
    return w;
}

int fs_write_begin(struct fs_caller *c, const char *path, const struct fs_write_options *o,
                   struct fs_write **ret, struct err *e)
{
    struct fs_write *w = write_alloc(c, path, e);
    int r;

    if (!w)
        return -ERR_EXHAUSTED;
    r = write_begin(w, o, e);
    if (r < 0) {
        fs_write_free(w);
        return r;
    }
    *ret = w;
    return 0;
}

int fs_write_data(struct fs_write *w, const void *data, size_t len, struct err *e)
{
    int r;

    if (w->o.max_bytes && len > w->o.max_bytes - w->bytes)
        return err_sys(e, EFBIG, "'%s' may have at most %llu bytes", w->path,
                       (unsigned long long)w->o.max_bytes);
    r = io_write_all(w->temp.fd, data, len, e);
    if (r < 0) {
        /* Cuts off a partial write: the caller may go on from fs_write_offset(). */
        (void)ftruncate(w->temp.fd, (off_t)w->bytes);
        (void)lseek(w->temp.fd, (off_t)w->bytes, SEEK_SET);
        return err_wrap(e, r, "'%s'", w->path);
    }
    if (w->has_sha)
        sha256_update(&w->sha, len, data);
    w->bytes += len;
    return 0;
}

uint64_t fs_write_offset(const struct fs_write *w)
{
    return w->bytes;
}

int fs_write_cut(struct fs_write *w, uint64_t offset, struct err *e)
{
    if (offset >= w->bytes)
        return 0;
    if (ftruncate(w->temp.fd, (off_t)offset) < 0 ||
        lseek(w->temp.fd, (off_t)offset, SEEK_SET) != (off_t)offset)
        return err_sys(e, errno, "cut '%s' back", w->path);
    w->bytes = offset;
    w->has_sha = false;
    return 0;
}

void fs_write_expect(struct fs_write *w, const uint8_t sha256[32])
{
    (void)memcpy(w->want_sha256, sha256, sizeof(w->want_sha256));
    w->o.sha256 = w->want_sha256;
}

/* ---- free ------------------------------------------------------------------------------------ */

/* Removes the directories that begin made, innermost first, as long as they are empty. */
static void unmake_parents(struct fs_write *w)
{
    _cleanup_free_ char *at = strdup(w->path);

    while (at && w->n_made-- > 0) {
        _cleanup_close_ int dirfd = -1;
        _cleanup_free_ char *name = NULL;
        char *up = path_dir(at);

        free(at);
        at = up;
        if (!at || fs_open_parent(w->caller, at, &dirfd, &name, NULL) < 0 ||
            unlinkat(dirfd, name, AT_REMOVEDIR) < 0)
            return;
    }
}

struct fs_write *fs_write_free(struct fs_write *w)
{
    _fs_acting_ const struct fs_actor *acting = NULL;

    if (!w)
        return NULL;
    if (fs_act(&w->caller->actor, &acting, NULL) == 0) {
        fs_temp_drop(w->dirfd, &w->temp);
        fs_temp_drop(w->dirfd, &w->data);
        if (!w->is_committed && w->n_made)
            unmake_parents(w);
    }
    fd_close(w->temp.fd);
    fd_close(w->data.fd);
    fd_close(w->dirfd);
    if (acting)
        fs_actor_leave(acting);
    acting = NULL;
    fs_caller_unref(w->caller);
    free(w->name);
    free(w->path);
    free(w->if_match);
    free(w->if_none_match);
    free(w);
    return NULL;
}

/* ---- a write whose temporary file outlives the process ----------------------------------------- */

/* The directory's own path, so that no link on the way can lead elsewhere later. */
static char *real_path(const struct fs_write *w)
{
    char self[40], dir[PATH_MAX];
    ssize_t n;

    (void)snprintf(self, sizeof(self), "/proc/self/fd/%d", w->dirfd);
    n = readlink(self, dir, sizeof(dir));
    if (n <= 0 || (size_t)n >= sizeof(dir) || dir[0] != '/')
        return NULL;
    dir[n] = '\0';
    return path_join(dir, w->name);
}

int fs_write_plan(const struct fs_write *w, struct fs_write_kept *ret, struct err *e)
{
    struct fs_write_kept k = {.n_made = (uint32_t)w->n_made};
    struct stat st;

    if (w->spooled_elsewhere || fstat(w->temp.fd, &st) < 0)
        return err_set(e, ERR_UNIMPLEMENTED, "'%s' has no file beside it", w->path);
    k.inode = st.st_ino;
    (void)snprintf(k.name, sizeof(k.name), "%s", w->temp.name);
    if (!k.name[0])
        fs_temp_make_name(k.name);
    k.path = real_path(w);
    if (!k.path)
        return err_set(e, ERR_UNIMPLEMENTED, "the directory of '%s' has no path", w->path);
    *ret = k;
    return 0;
}

int fs_write_keep(struct fs_write *w, const struct fs_write_kept *k, struct err *e)
{
    _fs_acting_ const struct fs_actor *acting = NULL;
    int r;

    r = fs_act(&w->caller->actor, &acting, e);
    if (r < 0)
        return r;
    if (flock(w->temp.fd, LOCK_EX | LOCK_NB) < 0)
        return err_sys(e, errno, "lock the new '%s'", w->path);
    if (!w->temp.name[0] && fs_temp_name_as(w->dirfd, &w->temp, k->name) < 0)
        return err_sys(e, errno, "name the new '%s'", w->path);
    w->is_kept = true;
    return 0;
}

static int open_kept(struct fs_write *w, const struct fs_write_kept *k, struct err *e)
{
    struct stat st;
    int r;

    if (!fs_temp_is_name(k->name) || strchr(k->name, '/'))
        return err_set(e, ERR_INVALID, "'%s' is no name of ours", k->name);
    r = fs_open_parent(w->caller, w->path, &w->dirfd, &w->name, e);
    if (r < 0)
        return r;
    w->temp.fd = fs_openat_nofollow(w->dirfd, k->name, O_RDWR);
    if (w->temp.fd < 0 || fstat(w->temp.fd, &st) < 0)
        return err_sys(e, errno, "what was kept of '%s'", w->path);
    /* After a crash during the commit, the name may be that of the replaced file. */
    if (!S_ISREG(st.st_mode) || st.st_ino != k->inode || st.st_nlink != 1)
        return err_set(e, ERR_NOT_FOUND, "what was kept of '%s' is something else", w->path);
    if (flock(w->temp.fd, LOCK_EX | LOCK_NB) < 0)
        return err_set(e, ERR_UNAVAILABLE, "another process has what was kept of '%s'", w->path);
    if (lseek(w->temp.fd, 0, SEEK_END) != st.st_size)
        return err_sys(e, EIO, "what was kept of '%s'", w->path);
    w->bytes = (uint64_t)st.st_size;
    (void)snprintf(w->temp.name, sizeof(w->temp.name), "%s", k->name);
    w->n_made = (int)k->n_made;
    w->has_sha = false; /* the bytes of the earlier process were not hashed here */
    w->is_kept = true;
    return 0;
}

int fs_write_again(struct fs_caller *c, const struct fs_write_kept *k,
                   const struct fs_write_options *o, struct fs_write **ret, struct err *e)
{
    _fs_acting_ const struct fs_actor *acting = NULL;
    struct fs_write *w = write_alloc(c, k->path, e);
    int r;

    if (!w)
        return -ERR_EXHAUSTED;
    r = write_take_options(w, o, e);
    if (r == 0)
        r = fs_act(&c->actor, &acting, e);
    if (r == 0)
        r = open_kept(w, k, e);
    if (acting)
        fs_actor_leave(acting);
    acting = NULL;
    if (r < 0) {
        fs_write_free(w); /* has no name yet, so the file stays */
        return r;
    }
    *ret = w;
    return 0;
}

struct fs_write *fs_write_leave(struct fs_write *w)
{
    if (w && w->is_kept) {
        w->temp.name[0] = '\0';
        w->n_made = 0;
    }
    return fs_write_free(w);
}

const struct fs_write_options *fs_write_options_of(const struct fs_write *w)
{
    return &w->o;
}
