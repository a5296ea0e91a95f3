#pragma once
/* sys: system calls that the C libraries we build with do not all have (musl 1.2.3 lacks them). */
#include <errno.h>
#include <fcntl.h>
#include <linux/stat.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef RENAME_NOREPLACE
#define RENAME_NOREPLACE (1u << 0)
#endif
#ifndef RENAME_EXCHANGE
#define RENAME_EXCHANGE (1u << 1)
#endif
#ifndef STATX_ATTR_MOUNT_ROOT
#define STATX_ATTR_MOUNT_ROOT 0x00002000
#endif

static inline int sys_renameat2(int from, const char *old, int to, const char *name, unsigned flags)
{
    return (int)syscall(SYS_renameat2, from, old, to, name, flags);
}

#ifndef SYS_faccessat2
#define SYS_faccessat2 439
#endif

/* Whether the thread's present identity (its fsuid, its groups) may write the entry, by what the
 * kernel says without opening it. -1 with ENOSYS: it does not say (before Linux 5.8). */
static inline int sys_may_write(int dirfd, const char *name)
{
    return (int)syscall(SYS_faccessat2, dirfd, name, W_OK, AT_EACCESS | AT_SYMLINK_NOFOLLOW);
}

static inline int sys_statx(int dirfd, const char *path, int flags, unsigned mask,
                            struct statx *out)
{
    return (int)syscall(SYS_statx, dirfd, path, flags, mask, out);
}
