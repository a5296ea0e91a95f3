#pragma once
/* sys: system calls that the C libraries we build with do not all have (musl 1.2.3 lacks them). */
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

static inline int sys_statx(int dirfd, const char *path, int flags, unsigned mask,
                            struct statx *out)
{
    return (int)syscall(SYS_statx, dirfd, path, flags, mask, out);
}
