/* write_keep: a write whose temporary file outlives the process. See write.h. */
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
#include "common/path.h"
#include "common/str.h"
#include "fs/write_own.h"

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
    struct fs_write *w = fs_write_new(c, k->path, e);
    int r;

    if (!w)
        return -ERR_EXHAUSTED;
    r = fs_write_take_options(w, o, e);
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
