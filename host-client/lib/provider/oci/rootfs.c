#include "lib/provider/oci/rootfs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/dqblk_xfs.h>
#include <linux/fs.h>
#include <linux/loop.h>
#include <linux/mount.h>
#include <linux/quota.h>
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
#include "common/io.h"
#include "common/path.h"
#include "common/str.h"
#include "lib/provider/layer_file.h"
#include "lib/provider/spec.h"
#include "lib/util/beneath.h"
#include "lib/util/hostcmd.h"

#define PASSWD_MAX_BYTES ((size_t)1 << 20)
#define FIRST_USER_ID 1000u
#define DEST_MAX_PARTS 32

/* ---- the disk limit ---- */

#define COMMAND(what) ((unsigned)(what) << SUBCMDSHIFT | PRJQUOTA)
#define DIRECTORY (O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)

static int call_quotactl(int fd, unsigned command, uint32_t project, void *arg)
{
    return (int)syscall(SYS_quotactl_fd, fd, command, project, arg);
}

/* The kernel can count quotas without enforcing them. */
static bool is_in_force(int fd)
{
    struct fs_quota_statv st = {.qs_version = FS_QSTATV_VERSION1};

    return call_quotactl(fd, COMMAND(Q_XGETQSTATV), 0, &st) == 0 &&
           (st.qs_flags & FS_QUOTA_PDQ_ENFD);
}

static int set_limit(int fd, uint32_t project, uint64_t bytes)
{
    struct if_dqblk limit = {.dqb_bhardlimit = bytes >> QIF_DQBLKSIZE_BITS,
                             .dqb_valid = QIF_BLIMITS};

    return call_quotactl(fd, COMMAND(Q_SETQUOTA), project, &limit);
}

static int become_project(int fd, uint32_t project)
{
    struct fsxattr attr;

    if (ioctl(fd, FS_IOC_FSGETXATTR, &attr) < 0)
        return -1;
    attr.fsx_projid = project;
    attr.fsx_xflags |= FS_XFLAG_PROJINHERIT;
    return ioctl(fd, FS_IOC_FSSETXATTR, &attr);
}

/* Assigns an empty directory, and everything made in it later, to the project. 1: the limit
 * holds; 0: this file system enforces none. */
static int oci_quota_set(const char *dir, uint32_t project, uint64_t bytes, struct err *e)
{
    _cleanup_close_ int fd = open(dir, DIRECTORY);

    if (fd < 0)
        return err_sys(e, errno, "open '%s'", dir);
    if (!project || !bytes || !is_in_force(fd))
        return 0;
    if (become_project(fd, project) < 0 || set_limit(fd, project, bytes) < 0) {
        /* EPERM comes from a user namespace, where reading needs no privilege but setting does */
        if (errno == EPERM || errno == EOPNOTSUPP)
            return 0;
        return err_sys(e, errno, "the quota of '%s'", dir);
    }
    return 1;
}

bool oci_quota_holds(const char *dir, uint32_t project)
{
    _cleanup_close_ int fd = open(dir, DIRECTORY);
    struct if_dqblk limit = {0};
    struct fsxattr attr;

    return fd >= 0 && project && is_in_force(fd) && ioctl(fd, FS_IOC_FSGETXATTR, &attr) == 0 &&
           attr.fsx_projid == project &&
           call_quotactl(fd, COMMAND(Q_GETQUOTA), project, &limit) == 0 &&
           limit.dqb_bhardlimit != 0;
}

void oci_quota_clear(const char *dir, uint32_t project)
{
    _cleanup_close_ int fd = open(dir, DIRECTORY);

    if (fd >= 0 && project && is_in_force(fd))
        (void)set_limit(fd, project, 0);
}

/* ---- the project's directory ---- */

int oci_rootfs_check_dest(const char *dest, struct err *e)
{
    static const char *const refused[] = {"/proc", "/sys", "/dev",         OCI_BOX_RUN,
                                          "/etc",  "/usr", "/run/bellhopd"};
    _cleanup_free_ char *clean = path_clean(dest);

    if (!clean)
        return err_oom(e);
    if (clean[0] != '/' || clean[1] == '\0')
        return err_field(e, ERR_INVALID, "dest", "dest must be an absolute path below '/'");
    for (size_t i = 0; i < N_ELEMENTS(refused); i++)
        if (path_is_within(clean, refused[i]))
            return err_field(e, ERR_INVALID, "dest", "dest '%s' lies within '%s'", clean,
                             refused[i]);
    return 0;
}

struct layer {
    int lower; /* parent directories of the path being made; lower is -1 past its end */
    int upper;
    const struct oci_disk *disk;
};

static void layer_done(struct layer *l)
{
    fd_close(l->lower);
    fd_close(l->upper);
}

/* Enters one component. The directory of the upper layer gets mode and owner of the lower
 * one's, or the given ones if there is none. A link is not followed: its target is the box's
 * affair. */
static int layer_enter(struct layer *l, const char *name, uint32_t uid, uint32_t gid, struct err *e)
{
    struct stat st = {.st_mode = 0755, .st_uid = uid, .st_gid = gid};
    int lower = -1, upper;

    if (l->lower >= 0)
        lower = openat(l->lower, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (l->lower >= 0 && lower < 0 && errno != ENOENT)
        return err_field(e, ERR_INVALID, "dest", "'%s' is not a directory in the image", name);
    if (lower >= 0 && fstat(lower, &st) < 0) {
        fd_close(lower);
        return err_sys(e, errno, "stat '%s'", name);
    }
    fd_close(l->lower);
    l->lower = lower;
    if (mkdirat(l->upper, name, 0700) < 0 && errno != EEXIST)
        return err_sys(e, errno, "mkdir '%s'", name);
    upper = openat(l->upper, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (upper < 0)
        return err_sys(e, errno, "open '%s'", name);
    fd_close(l->upper);
    l->upper = upper;
    if (fchown(upper, l->disk->base + st.st_uid, l->disk->base + st.st_gid) < 0 ||
        fchmod(upper, st.st_mode & 07777) < 0)
        return err_sys(e, errno, "own '%s'", name);
    return 0;
}

static int layer_open(const char *lower, const char *upper, const struct oci_disk *disk,
                      struct layer *ret, struct err *e)
{
    ret->disk = disk;
    ret->lower = open(lower, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (ret->lower < 0)
        return err_sys(e, errno, "open the image '%s'", lower);
    ret->upper = open(upper, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (ret->upper < 0)
        return err_sys(e, errno, "open '%s'", upper);
    return 0;
}

/* Makes every missing component; a new last one belongs to the user. */
static int layer_make(struct layer *l, const char *path, struct err *e)
{
    _cleanup_free_ char *copy = path_clean(path);
    char *save = NULL, *part;
    int n = 0, r = 0;

    if (!copy)
        return err_oom(e);
    for (part = strtok_r(copy, "/", &save); part && r == 0;) {
        char *next = strtok_r(NULL, "/", &save);

        if (++n > DEST_MAX_PARTS)
            return err_field(e, ERR_INVALID, "dest", "dest has more than %d parts", DEST_MAX_PARTS);
        r = layer_enter(l, part, next ? 0 : l->disk->uid, next ? 0 : l->disk->gid, e);
        part = next;
    }
    return r;
}

static int make_dir(const char *lower, const char *upper, const char *path,
                    const struct oci_disk *disk, struct err *e)
{
    struct layer l = {-1, -1, NULL};
    int r;

    r = layer_open(lower, upper, disk, &l, e);
    if (r == 0)
        r = layer_make(&l, path, e);
    layer_done(&l);
    return r;
}

/* ---- the user ---- */

/* "name:x:uid:gid:..." */
static bool parse_passwd_line(const char *line, const char *name, uint32_t *ret_uid,
                              uint32_t *ret_gid)
{
    size_t n = strlen(name);
    unsigned uid, gid;

    if (strncmp(line, name, n) != 0 || line[n] != ':' ||
        sscanf(line + n + 1, "%*[^:]:%u:%u:", &uid, &gid) != 2)
        return false;
    *ret_uid = uid;
    *ret_gid = gid;
    return uid < OCI_RANGE && gid < OCI_RANGE;
}

static bool find_user(const char *passwd, struct oci_disk *disk)
{
    for (const char *p = passwd; p && *p; p = strchr(p, '\n')) {
        if (*p == '\n')
            p++;
        if (parse_passwd_line(p, disk->user, &disk->uid, &disk->gid))
            return true;
    }
    return false;
}

static bool uid_is_taken(const char *passwd, uint32_t uid)
{
    for (const char *p = passwd; p && *p; p = strchr(p, '\n')) {
        unsigned id;

        if (*p == '\n')
            p++;
        if (sscanf(p, "%*[^:]:%*[^:]:%u:", &id) == 1 && id == uid)
            return true;
    }
    return false;
}

/* Reads a file of the image; NULL: there is none. Follows no link: it would lead into the
 * host's own root. */
static char *read_lower(const char *lower, const char *name)
{
    _cleanup_close_ int fd = open(lower, O_PATH | O_DIRECTORY | O_CLOEXEC);
    char *text = NULL;

    if (fd >= 0)
        (void)beneath_read_file(fd, name, PASSWD_MAX_BYTES, &text, NULL, NULL);
    return text;
}

/* Writes the lower layer's file (or nothing) plus one line to the upper layer. */
static int append_line(const char *lower, const char *upper, const char *name, const char *line,
                       const struct oci_disk *disk, struct err *e)
{
    _cleanup_free_ char *to = path_join(upper, name);
    _cleanup_free_ char *old = read_lower(lower, name);
    _cleanup_free_ char *text = NULL;
    int n, r;

    if (!to)
        return err_oom(e);
    n = asprintf(&text, "%s%s", old ? old : "", line);
    if (n < 0)
        return err_oom(e);
    r = io_write_file(AT_FDCWD, to, text, (size_t)n, 0644, false, e);
    if (r == 0 && chown(to, disk->base, disk->base) < 0)
        r = err_sys(e, errno, "chown '%s'", to);
    return r;
}

/* Adds the user to an image that lacks it. */
static int add_user(const char *lower, const char *upper, const char *passwd, struct oci_disk *disk,
                    struct err *e)
{
    _cleanup_free_ char *home = NULL;
    char line[160];
    int r;

    if (asprintf(&home, "/home/%s", disk->user) < 0)
        return err_oom(e);
    disk->uid = FIRST_USER_ID;
    while (uid_is_taken(passwd, disk->uid))
        disk->uid++;
    disk->gid = disk->uid;
    r = make_dir(lower, upper, "/etc", &(struct oci_disk){.base = disk->base}, e);
    if (r < 0)
        return r;
    (void)snprintf(line, sizeof(line), "%s:x:%u:%u::%s:/bin/sh\n", disk->user, disk->uid, disk->gid,
                   home);
    r = append_line(lower, upper, "etc/passwd", line, disk, e);
    if (r < 0)
        return r;
    (void)snprintf(line, sizeof(line), "%s:x:%u:\n", disk->user, disk->gid);
    r = append_line(lower, upper, "etc/group", line, disk, e);
    if (r < 0)
        return r;
    return make_dir(lower, upper, home, disk, e);
}

static int settle_user(const char *lower, const char *upper, struct oci_disk *disk, struct err *e)
{
    _cleanup_free_ char *passwd = read_lower(lower, "etc/passwd");

    if (find_user(passwd, disk))
        return 0;
    return add_user(lower, upper, passwd ? passwd : "", disk, e);
}

static int make_owned_dir(const char *path, mode_t mode, uint32_t id, struct err *e)
{
    if (mkdir(path, mode) < 0 && errno != EEXIST)
        return err_sys(e, errno, "mkdir '%s'", path);
    if (chown(path, id, id) < 0 || chmod(path, mode) < 0)
        return err_sys(e, errno, "own '%s'", path);
    return 0;
}

static int copy_root(const char *like, const char *upper, uint32_t base, struct err *e)
{
    const int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
    _cleanup_close_ int from = open(like, flags), to = open(upper, flags);
    struct stat st;
    int r;

    if (from < 0 || to < 0 || fstat(from, &st) < 0)
        return err_sys(e, errno, "open '%s'", from < 0 ? like : upper);
    if (fchown(to, base + st.st_uid, base + st.st_gid) < 0 || fchmod(to, st.st_mode & 07777) < 0)
        return err_sys(e, errno, "own '%s'", upper);
    r = layer_file_attributes_to_disk(from, to, base, e);
    if (r < 0)
        return err_wrap(e, r, "'%s'", upper);
    return futimens(to, (const struct timespec[2]){st.st_mtim, st.st_mtim}) < 0
               ? err_sys(e, errno, "set the time of '%s'", upper)
               : 0;
}

int oci_rootfs_empty(const struct provider_box *b, const char *name, const char *like,
                     const struct oci_disk *disk, struct err *e)
{
    _cleanup_free_ char *top = oci_path(b, name);
    _cleanup_free_ char *upper = top ? path_join(top, "upper") : NULL;
    _cleanup_free_ char *work = top ? path_join(top, "work") : NULL;
    int r;

    if (!upper || !work)
        return err_oom(e);
    r = dirtree_remove(top, e);
    if (r == 0)
        r = io_mkdir_p(top, 0700, e);
    if (r == 0) /* before the first file: older files would not count */
        r = oci_quota_set(top, disk->base, b->spec->disk_bytes, e);
    if (r >= 0)
        r = make_owned_dir(upper, 0755, disk->base, e);
    if (r == 0)
        r = make_owned_dir(work, 0755, disk->base, e);
    return r == 0 && like ? copy_root(like, upper, disk->base, e) : r;
}

int oci_rootfs_prepare(const struct provider_box *b, const char *lower, struct oci_disk *disk,
                       struct err *e)
{
    _cleanup_free_ char *upper = oci_path(b, "oci/disk/upper");
    int r = upper ? oci_rootfs_empty(b, "oci/disk", NULL, disk, e) : err_oom(e);

    (void)snprintf(disk->user, sizeof(disk->user), "%s", b->user);
    if (r == 0)
        r = settle_user(lower, upper, disk, e);
    if (r == 0)
        r = make_dir(lower, upper, b->spec->dest, disk, e);
    return r;
}

/* ---- the lower layer ---- */

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
