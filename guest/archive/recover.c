#include "archive/recover.h"

#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/fsuid.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "fs/place.h"
#include "fs/temp.h"
#include "fs/tree.h"
#include "fs/walk.h"

#include "common/banned.h"

void recover_lock(int stage_fd)
{
    (void)flock(stage_fd, LOCK_EX | LOCK_NB);
}

/* A list that someone else could have written must not move files about. */
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

    if (stage < 0 || !is_ours(stage) || flock(stage, LOCK_EX | LOCK_NB) < 0)
        return;
    take_back(stage, dirfd);
    (void)fs_remove_tree(dirfd, name, true, NULL, NULL);
}

void recover_dir(int dirfd)
{
    _cleanup_close_ int fd = fs_openat_nofollow(dirfd, ".", O_RDONLY | O_DIRECTORY);
    struct fs_names names;

    if (fd < 0 || fs_dir_names(fd, true, &names, NULL) < 0)
        return;
    for (size_t i = 0; i < names.n; i++)
        if (fs_temp_is_name(names.v[i]))
            recover_one(dirfd, names.v[i]);
    fs_names_done(&names);
}
