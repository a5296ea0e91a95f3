#pragma once
/*
 * oci_quota: a limit that the kernel keeps on the disk of a box, where its file system has project quotas in
 * force (ext4 and xfs, mounted with prjquota). The project's number is the first user id of the
 * box, which no other box has. The monitor counts all the same (monitor/diskwatch.h): where there are none, and
 * because a box can take out of the project what it has not changed before. overlayfs sets the attributes of
 * what it copies up for that with the mounter's rights (chattr -p 0 /root).
 */
#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"

/* An empty directory becomes the project's, with all that will be made in it. 1: the limit holds; 0: this
 * file system keeps none. */
int oci_quota_set(const char *dir, uint32_t project, uint64_t bytes, struct err *e);
/* Is the directory the project's, and has that a limit, which is in force? Read back from the kernel. */
bool oci_quota_holds(const char *dir, uint32_t project);
/* The project is over; `dir` is any directory of the file system. */
void oci_quota_clear(const char *dir, uint32_t project);
