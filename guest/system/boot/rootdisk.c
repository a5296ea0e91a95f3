/* rootdisk: the root file system of a machine. */
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <linux/fs.h>
#include <poll.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/str.h"
#include "system/boot/machine.h"
#include "system/log.h"

#define NEW_ROOT "/newroot"
#define LOWER "/lower"
#define UPPER "/upper"
#define POLL_MS 5
#define HEAD_BYTES 2048
#define EXT4_RESIZE _IOW('f', 16, uint64_t) /* EXT4_IOC_RESIZE_FS: in no kernel header */
#define EXT4_BLOCKS_AT (1024 + 4)

struct disk_kind {
    const char *name;
    size_t at; /* offset of the magic number on the disk */
    const char *magic;
    size_t len;
};

static const struct disk_kind disk_kinds[] = {
    {"squashfs", 0, "hsqs", 4},
    {"ext4", 1024 + 56, "\x53\xef", 2},
    {"erofs", 1024, "\xe2\xe1\xf5\xe0", 4},
};

static int open_disk(const char *device, struct err *e)
{
    int64_t deadline = clock_mono_ms() + ROOTDISK_WAIT_MS;
    int fd;

    while ((fd = open(device, O_RDONLY | O_CLOEXEC)) < 0)
        if ((errno != ENOENT && errno != ENXIO) || clock_mono_ms() >= deadline)
            return err_sys(e, errno, "the root disk '%s'", device);
        else
            (void)poll(NULL, 0, POLL_MS);
    return fd;
}

static const char *find_kind(int fd)
{
    char head[HEAD_BYTES] = "";

    if (pread(fd, head, sizeof(head), 0) != (ssize_t)sizeof(head))
        return NULL;
    for (size_t i = 0; i < N_ELEMENTS(disk_kinds); i++)
        if (memcmp(head + disk_kinds[i].at, disk_kinds[i].magic, disk_kinds[i].len) == 0)
            return disk_kinds[i].name;
    return NULL;
}

/* Blocks of an ext4 by its superblock, which is little-endian, as all our machines are. */
static uint64_t count_blocks(int fd)
{
    uint32_t low = 0;

    return pread(fd, &low, sizeof(low), EXT4_BLOCKS_AT) == (ssize_t)sizeof(low) ? low : 0;
}

/* The disk's file may have been extended since the file system was made. */
static void grow_filesystem(int disk)
{
    _cleanup_close_ int fd = open(NEW_ROOT, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct statfs fs;
    uint64_t bytes, blocks;

    if (fd < 0 || fstatfs(fd, &fs) < 0 || ioctl(disk, BLKGETSIZE64, &bytes) < 0)
        return;
    blocks = bytes / (uint64_t)fs.f_bsize;
    if (blocks > count_blocks(disk) && ioctl(fd, EXT4_RESIZE, &blocks) < 0)
        log_info("the root file system keeps its size: %m");
}

static int mount_below(const char *device, const char *kind, struct err *e)
{
    static const char layers[] =
        "lowerdir=" LOWER ",upperdir=" UPPER "/upper,workdir=" UPPER "/work";

    (void)mkdir(LOWER, 0755);
    (void)mkdir(UPPER, 0755);
    if (mount(device, LOWER, kind, MS_RDONLY, NULL) < 0)
        return err_sys(e, errno, "mount '%s' as %s", device, kind);
    if (mount("tmpfs", UPPER, "tmpfs", 0, "mode=0755") < 0)
        return err_sys(e, errno, "a tmpfs for the changes to '%s'", device);
    if (mkdir(UPPER "/upper", 0755) < 0 || mkdir(UPPER "/work", 0755) < 0)
        return err_sys(e, errno, "directories for the changes to '%s'", device);
    if (mount("overlay", NEW_ROOT, "overlay", 0, layers) < 0)
        return err_sys(e, errno, "mount an overlay on '%s'", device);
    return 0;
}

int rootdisk_mount(const char *device, bool *ret_is_in_memory, struct err *e)
{
    _cleanup_close_ int fd = open_disk(device, e);
    const char *kind;
    int is_read_only = 0;

    if (fd < 0)
        return fd;
    kind = find_kind(fd);
    if (!kind)
        return err_set(e, ERR_INVALID, "the root disk '%s' is no squashfs, erofs or ext4", device);
    (void)ioctl(fd, BLKROGET, &is_read_only);
    (void)mkdir(NEW_ROOT, 0755);
    *ret_is_in_memory = is_read_only || !str_eq(kind, "ext4");
    if (*ret_is_in_memory)
        return mount_below(device, kind, e);
    if (mount(device, NEW_ROOT, kind, 0, NULL) < 0)
        return err_sys(e, errno, "mount '%s' as %s", device, kind);
    grow_filesystem(fd);
    return 0;
}

int rootdisk_enter(struct err *e)
{
    static const char *const along[] = {"/proc", "/sys", "/dev"};

    for (size_t i = 0; i < N_ELEMENTS(along); i++) {
        char target[32];

        (void)snprintf(target, sizeof(target), NEW_ROOT "%s", along[i]);
        (void)mkdir(target, 0755);
        if (mount(along[i], target, NULL, MS_MOVE, NULL) < 0)
            return err_sys(e, errno, "take '%s' along", along[i]);
    }
    if (chdir(NEW_ROOT) < 0 || mount(".", "/", NULL, MS_MOVE, NULL) < 0 || chroot(".") < 0 ||
        chdir("/") < 0)
        return err_sys(e, errno, "make the disk the root");
    return 0;
}
