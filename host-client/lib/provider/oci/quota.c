#include "lib/provider/oci/quota.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/dqblk_xfs.h>
#include <linux/fs.h>
#include <linux/quota.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/cleanup.h"

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

int oci_quota_set(const char *dir, uint32_t project, uint64_t bytes, struct err *e)
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
