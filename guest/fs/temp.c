#include "fs/temp.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/fsuid.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/io.h"
#include "common/str.h"
#include "fs/sys.h"

#define MAX_TRIES 16

/* A new directory is not seen by a recovery before it is locked. */
static pthread_mutex_t new_dir_lock = PTHREAD_MUTEX_INITIALIZER;

static bool can_link; /* a nameless file gets its name through /proc */
static pthread_once_t can_link_once = PTHREAD_ONCE_INIT;

static void look_for_proc(void)
{
    struct stat st;

    can_link = stat("/proc/self/fd", &st) == 0;
}

void fs_temp_make_name(char out[FS_TEMP_NAME_BYTES])
{
    char nonce[17];

    /* Uniqueness is O_EXCL's and linkat's; a clock is enough where there is no randomness. */
    if (io_random_hex(8, nonce, NULL) < 0)
        (void)snprintf(nonce, sizeof(nonce), "%016llx", (unsigned long long)clock_mono_ns());
    (void)snprintf(out, FS_TEMP_NAME_BYTES, "%s%s", FS_TEMP_PREFIX, nonce);
}

bool fs_temp_is_name(const char *name)
{
    return str_has_prefix(name, FS_TEMP_PREFIX);
}

int fs_temp_refuse_name(const char *name, const char *field, struct err *e)
{
    if (!fs_temp_is_name(name))
        return 0;
    return err_field(e, ERR_INVALID, field, "names that begin with %s are the agent's own",
                     FS_TEMP_PREFIX);
}

static int open_named(int dirfd, struct fs_temp *ret)
{
    int fd = -1;

    for (int i = 0; i < MAX_TRIES; i++) {
        fs_temp_make_name(ret->name);
        fd = openat(dirfd, ret->name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (fd >= 0 || errno != EEXIST)
            break;
    }
    if (fd < 0)
        ret->name[0] = '\0';
    ret->fd = fd;
    return fd < 0 ? -1 : 0;
}

int fs_temp_open(int dirfd, struct fs_temp *ret)
{
    (void)pthread_once(&can_link_once, look_for_proc);
    *ret = (struct fs_temp){.fd = -1};
    if (can_link)
        ret->fd = openat(dirfd, ".", O_RDWR | O_TMPFILE | O_CLOEXEC, 0600);
    if (ret->fd >= 0)
        return 0;
    /* Disks without O_TMPFILE fail with different errors; a real error comes again below. */
    return open_named(dirfd, ret);
}

static int link_as(int dirfd, const struct fs_temp *t, const char *name)
{
    char self[40];

    (void)snprintf(self, sizeof(self), "/proc/self/fd/%d", t->fd);
    return linkat(AT_FDCWD, self, dirfd, name, AT_SYMLINK_FOLLOW);
}

int fs_temp_name_as(int dirfd, struct fs_temp *t, const char *name)
{
    if (link_as(dirfd, t, name) < 0)
        return -1;
    (void)snprintf(t->name, sizeof(t->name), "%s", name);
    return 0;
}

int fs_temp_name(int dirfd, struct fs_temp *t)
{
    char name[FS_TEMP_NAME_BYTES];

    if (t->name[0])
        return 0;
    for (int i = 0; i < MAX_TRIES; i++) {
        fs_temp_make_name(name);
        if (fs_temp_name_as(dirfd, t, name) == 0)
            return 0;
        if (errno != EEXIST)
            break;
    }
    return -1;
}

int fs_temp_publish_new(int dirfd, struct fs_temp *t, const char *name)
{
    if (!t->name[0])
        return link_as(dirfd, t, name);
    if (sys_renameat2(dirfd, t->name, dirfd, name, RENAME_NOREPLACE) < 0) {
        /* A disk without the flag: a hard link refuses an existing name just as well. */
        if (errno != EINVAL || linkat(dirfd, t->name, dirfd, name, 0) < 0)
            return -1;
        (void)unlinkat(dirfd, t->name, 0);
    }
    t->name[0] = '\0';
    return 0;
}

void fs_temp_drop(int dirfd, struct fs_temp *t)
{
    if (t->name[0])
        (void)unlinkat(dirfd, t->name, 0);
    t->name[0] = '\0';
    fd_close(t->fd);
    t->fd = -1;
}

/* ---- directories ----------------------------------------------------------------------------- */

bool fs_temp_is_ours(int fd)
{
    uid_t me = (uid_t)syscall(SYS_setfsuid, (uid_t)-1);
    struct stat st;

    return fstat(fd, &st) == 0 && st.st_uid == me && !(st.st_mode & 022);
}

/* On a disk without locks no recovery takes the directory, either. */
int fs_temp_make_dir(int dirfd, const char *name)
{
    _cleanup_unlock_ pthread_mutex_t *locked = mutex_lock(&new_dir_lock);
    int fd, why;

    if (mkdirat(dirfd, name, 0700) < 0)
        return -1;
    fd = fs_openat_nofollow(dirfd, name, O_RDONLY | O_DIRECTORY);
    if (fd >= 0) {
        (void)flock(fd, LOCK_EX | LOCK_NB);
        return fd;
    }
    why = errno;
    (void)unlinkat(dirfd, name, AT_REMOVEDIR);
    errno = why;
    return -1;
}

int fs_temp_take_dir(int dirfd, const char *name)
{
    _cleanup_unlock_ pthread_mutex_t *locked = mutex_lock(&new_dir_lock);
    _cleanup_close_ int fd = fs_openat_nofollow(dirfd, name, O_RDONLY | O_DIRECTORY);

    if (fd < 0 || !fs_temp_is_ours(fd) || flock(fd, LOCK_EX | LOCK_NB) < 0)
        return -1;
    return TAKE_FD(fd);
}
