#include "lib/provider/oci/squash.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/loop.h>
#include <linux/mount.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/path.h"
#include "common/str.h"
#include "lib/util/dirtree.h"
#include "lib/util/hostcmd.h"
#include "lib/provider/spec.h"

#define LOOP_TRIES 32 /* others race for free devices */
#define LOOP_PATH_BYTES 32
#define UNPACK_MS (10 * 60 * 1000)

struct loop {
    int fd;
    char path[LOOP_PATH_BYTES];
};

/* ---- the loop device ---- */

/* Is the device ours? An open device cannot go away, so it is checked only after it was opened. */
static bool is_ours(int fd, const struct stat *st)
{
    struct loop_info64 info;

    return ioctl(fd, LOOP_GET_STATUS64, &info) == 0 && info.lo_device == (uint64_t)st->st_dev &&
           info.lo_inode == (uint64_t)st->st_ino && info.lo_offset == 0 && info.lo_sizelimit == 0 &&
           info.lo_flags & LO_FLAGS_READ_ONLY && info.lo_flags & LO_FLAGS_AUTOCLEAR;
}

static bool find_loop(const struct stat *st, struct loop *ret)
{
    _cleanup_closedir_ DIR *dir = opendir("/sys/block");
    struct dirent *entry;

    while (dir && (entry = readdir(dir))) {
        char backing[sizeof("/sys/block//loop/backing_file") + LOOP_PATH_BYTES];
        int fd;

        if (!str_has_prefix(entry->d_name, "loop") || strlen(entry->d_name) > 16)
            continue;
        (void)snprintf(backing, sizeof(backing), "/sys/block/%.16s/loop/backing_file",
                       entry->d_name);
        if (access(backing, F_OK) < 0)
            continue;
        (void)snprintf(ret->path, sizeof(ret->path), "/dev/%.16s", entry->d_name);
        fd = open(ret->path, O_RDONLY | O_CLOEXEC);
        if (fd >= 0 && is_ours(fd, st)) {
            ret->fd = fd;
            return true;
        }
        fd_close(fd);
    }
    return false;
}

static int make_loop(int file, struct loop *ret, struct err *e)
{
    const struct loop_config config = {.fd = (uint32_t)file,
                                       .info.lo_flags = LO_FLAGS_READ_ONLY | LO_FLAGS_AUTOCLEAR};
    _cleanup_close_ int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);

    if (control < 0)
        return err_sys(e, errno, "open '/dev/loop-control'");
    for (int i = 0; i < LOOP_TRIES; i++) {
        int n = ioctl(control, LOOP_CTL_GET_FREE);
        int fd;

        if (n < 0)
            return err_sys(e, errno, "a free loop device");
        (void)snprintf(ret->path, sizeof(ret->path), "/dev/loop%d", n);
        fd = open(ret->path, O_RDONLY | O_CLOEXEC);
        if (fd < 0)
            return err_sys(e, errno, "open '%s'", ret->path);
        if (ioctl(fd, LOOP_CONFIGURE, &config) == 0) {
            ret->fd = fd;
            return 0;
        }
        fd_close(fd);
        if (errno != EBUSY)
            return err_sys(e, errno, "set up '%s'", ret->path);
    }
    return err_set(e, ERR_UNAVAILABLE, "no free loop device");
}

/* The lock has an open file description of its own: that of `file` lives as long as the device. */
static int open_loop(const char *path, struct loop *ret, struct err *e)
{
    _cleanup_close_ int lock = open(path, O_RDONLY | O_CLOEXEC);
    _cleanup_close_ int file = open(path, O_RDONLY | O_CLOEXEC);
    struct stat st;

    if (lock < 0 || file < 0 || fstat(file, &st) < 0)
        return err_sys(e, errno, "open '%s'", path);
    if (flock(lock, LOCK_EX) < 0)
        return err_sys(e, errno, "lock '%s'", path);
    return find_loop(&st, ret) ? 0 : make_loop(file, ret, e);
}

/* ---- the mount ---- */

static int mount_device(const char *device, int *ret_fd, struct err *e)
{
    _cleanup_close_ int fs = (int)syscall(SYS_fsopen, "squashfs", FSOPEN_CLOEXEC);
    int fd;

    if (fs < 0)
        return err_sys(e, errno, "squashfs");
    if (syscall(SYS_fsconfig, fs, FSCONFIG_SET_STRING, "source", device, 0) < 0 ||
        syscall(SYS_fsconfig, fs, FSCONFIG_SET_FLAG, "ro", NULL, 0) < 0 ||
        syscall(SYS_fsconfig, fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
        return err_sys(e, errno, "mount '%s' as squashfs", device);
    fd = (int)syscall(SYS_fsmount, fs, FSMOUNT_CLOEXEC, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NODEV);
    if (fd < 0)
        return err_sys(e, errno, "mount '%s' as squashfs", device);
    *ret_fd = fd;
    return 0;
}

int oci_squash_mount(const char *file, int userns_fd, int *ret_fd, struct err *e)
{
    struct mount_attr attr = {.attr_set = MOUNT_ATTR_IDMAP, .userns_fd = (uint64_t)userns_fd};
    _cleanup_close_ int fd = -1;
    struct loop loop = {.fd = -1};
    int r = open_loop(file, &loop, e);

    if (r == 0)
        r = mount_device(loop.path, &fd, e);
    fd_close(loop.fd);
    if (r < 0)
        return err_wrap(e, r, "the image '%s'", file);
    if (userns_fd >= 0 &&
        syscall(SYS_mount_setattr, fd, "", AT_EMPTY_PATH, &attr, sizeof(attr)) < 0)
        return err_sys(e, errno, "mount_setattr '%s' with the ids of a user namespace", file);
    *ret_fd = TAKE_FD(fd);
    return 0;
}

/* ---- without it ---- */

/* Unpacks atomically; one of several concurrent callers does the work. */
static int unpack_squashfs(const char *file, const char *rootfs, int cancel_fd, struct err *e)
{
    _cleanup_close_ int lock = open(file, O_RDONLY | O_CLOEXEC);
    _cleanup_free_ char *part = NULL;
    struct hostcmd cmd = {
        .out_fd = -1, .cancel_fd = cancel_fd, .deadline_mono_ms = clock_mono_ms() + UNPACK_MS};
    int r;

    if (lock < 0 || flock(lock, LOCK_EX) < 0)
        return err_sys(e, errno, "lock '%s'", file);
    if (access(rootfs, F_OK) == 0)
        return 0;
    if (asprintf(&part, "%s.part", rootfs) < 0)
        return err_oom(e);
    r = dirtree_remove(part, e);
    if (r < 0)
        return r;
    cmd.argv =
        (const char *const[]){"unsquashfs", "-quiet", "-no-progress", "-dest", part, file, NULL};
    r = hostcmd_run(&cmd, NULL, e);
    if (r == 0 && rename(part, rootfs) < 0)
        r = err_sys(e, errno, "rename '%s'", part);
    if (r < 0)
        (void)dirtree_remove(part, NULL);
    return r;
}

int oci_squash_choose(const char *dir, int cancel_fd, char **ret, struct err *e)
{
    _cleanup_free_ char *file = path_join(dir, SPEC_IMAGE_SQUASHFS);
    _cleanup_free_ char *rootfs = path_join(dir, "rootfs");
    _cleanup_close_ int fd = -1;
    struct err why = {0};
    int r;

    if (!file || !rootfs)
        return err_oom(e);
    if (access(file, F_OK) == 0) {
        if (oci_squash_mount(file, -1, &fd, &why) == 0) {
            *ret = TAKE(file);
            return 0;
        }
        r = access(rootfs, F_OK) == 0 ? 0 : unpack_squashfs(file, rootfs, cancel_fd, e);
        if (r < 0)
            return err_wrap(e, r, "%s; and unpacking it", why.message);
    }
    *ret = TAKE(rootfs);
    return 0;
}
