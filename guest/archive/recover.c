#include "archive/recover.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/fsuid.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/io.h"
#include "fs/place.h"
#include "fs/temp.h"
#include "fs/change.h"
#include "fs/walk.h"

void recover_lock(int stage_fd)
{
    (void)flock(stage_fd, LOCK_EX | LOCK_NB);
}

/* A list that another user could have written must not move files. */
static bool is_ours(int fd)
{
    uid_t me = (uid_t)syscall(SYS_setfsuid, (uid_t)-1);
    struct stat st;

    return fstat(fd, &st) == 0 && st.st_uid == me && !(st.st_mode & 022);
}

static void take_back(int stage, int target)
{
    _cleanup_close_ int trash =
        fs_openat_nofollow(stage, RECOVER_TRASH_NAME, O_RDONLY | O_DIRECTORY);
    struct fs_records *undo = NULL;

    if (fs_records_open(stage, RECOVER_LIST_NAME, &undo, NULL) < 0)
        return;
    fs_place_undo(stage, target, trash, undo);
    fs_records_free(undo);
}

static void recover_one(int dirfd, const char *name)
{
    _cleanup_close_ int stage = fs_openat_nofollow(dirfd, name, O_RDONLY | O_DIRECTORY);
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_nsec = UTIME_OMIT}};
    struct stat st;

    if (stage < 0 || !is_ours(stage) || flock(stage, LOCK_EX | LOCK_NB) < 0)
        return;
    if (fstatat(stage, RECOVER_TIME_NAME, &st, AT_SYMLINK_NOFOLLOW) == 0)
        times[1] = st.st_mtim;
    take_back(stage, dirfd);
    (void)fs_remove_tree(dirfd, name, true, NULL, NULL);
    (void)futimens(dirfd, times);
}

void recover_dir(int dirfd)
{
    _cleanup_close_ int fd = fs_openat_nofollow(dirfd, ".", O_RDONLY | O_DIRECTORY);
    struct fs_names names;

    if (fd < 0 || fs_dir_names(fd, true, &names, NULL) < 0)
        return;
    for (size_t i = 0; i < names.n; i++)
        if (fs_temp_is_name(names.v[i]))
            recover_one(fd, names.v[i]);
    fs_names_done(&names);
}

/* ---- the registry ---------------------------------------------------------------------------- */

/* A file in it has the staging directory's name, and in it "UID PATH": PATH is of the directory
 * that holds the staging directory, UID "-" for the agent itself. */
#define ENTRY_MAX_BYTES (64 + PATH_MAX)

struct stage_registry {
    char *dir; /* set once, before threads start */
    pthread_mutex_t lock;
    int fd; /* guarded by lock until it is set; -1: not there yet */
};

static struct stage_registry staged_dirs = {.lock = PTHREAD_MUTEX_INITIALIZER, .fd = -1};

/* -1: there is none, or it is not ours alone. */
static int open_registry(bool make)
{
    int fd;

    (void)pthread_mutex_lock(&staged_dirs.lock);
    if (staged_dirs.fd < 0 && staged_dirs.dir &&
        (!make || io_mkdir_p(staged_dirs.dir, 0700, NULL) == 0)) {
        fd = open(staged_dirs.dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (fd >= 0 && is_ours(fd))
            staged_dirs.fd = fd;
        else
            fd_close(fd);
    }
    fd = staged_dirs.fd;
    (void)pthread_mutex_unlock(&staged_dirs.lock);
    return fd;
}

int recover_use_registry(const char *dir, struct err *e)
{
    staged_dirs.dir = strdup(dir);
    return staged_dirs.dir ? 0 : err_oom(e);
}

void recover_register(int home_fd, const char *stage_name, const struct fs_actor *actor)
{
    char link[64], home[PATH_MAX], text[ENTRY_MAX_BYTES], uid[32] = "-";
    ssize_t n;
    int len;

    (void)snprintf(link, sizeof(link), "/proc/self/fd/%d", home_fd);
    n = open_registry(true) < 0 ? -1 : readlink(link, home, sizeof(home));
    if (n <= 0 || (size_t)n >= sizeof(home))
        return;
    if (!actor->is_self)
        (void)snprintf(uid, sizeof(uid), "%u", (unsigned)actor->user.uid);
    len = snprintf(text, sizeof(text), "%s %.*s", uid, (int)n, home);
    if (len > 0 && (size_t)len < sizeof(text))
        (void)io_write_file(staged_dirs.fd, stage_name, text, (size_t)len, 0600, false, NULL);
}

void recover_unregister(const char *stage_name)
{
    if (open_registry(false) >= 0)
        (void)unlinkat(staged_dirs.fd, stage_name, 0);
}

/* Whether the staging directory has gone: it was taken back, or was not there any more. */
static bool recover_entry(const char *stage_name, const char *uid, const char *home)
{
    struct fs_actor actor = {0};
    bool is_gone = false;
    struct stat st;
    int fd;

    if (fs_actor_init(&actor, strcmp(uid, "-") == 0 ? NULL : uid, NULL) < 0)
        return false;
    if (fs_actor_enter(&actor, NULL) == 0) {
        fd = open(home, O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (fd >= 0)
            recover_dir(fd);
        is_gone = fd < 0 ? errno == ENOENT
                         : fstatat(fd, stage_name, &st, AT_SYMLINK_NOFOLLOW) < 0 && errno == ENOENT;
        fd_close(fd);
        fs_actor_leave(&actor);
    }
    fs_actor_done(&actor);
    return is_gone;
}

static bool recover_registered(const char *stage_name)
{
    _cleanup_free_ char *text = NULL;
    size_t len;
    char *space;

    if (io_read_file(staged_dirs.fd, stage_name, ENTRY_MAX_BYTES, &text, &len, NULL) < 0)
        return false;
    space = strchr(text, ' ');
    if (!space || strlen(text) != len)
        return true; /* cut short by a crash: nothing was put in place yet */
    *space = '\0';
    return recover_entry(stage_name, text, space + 1);
}

unsigned recover_all(void)
{
    struct fs_names names;
    unsigned n = 0;

    if (open_registry(false) < 0 || lseek(staged_dirs.fd, 0, SEEK_SET) < 0 ||
        fs_dir_names(staged_dirs.fd, true, &names, NULL) < 0)
        return 0;
    for (size_t i = 0; i < names.n; i++) {
        if (!fs_temp_is_name(names.v[i]) || !recover_registered(names.v[i]))
            continue;
        recover_unregister(names.v[i]);
        n++;
    }
    fs_names_done(&names);
    return n;
}
