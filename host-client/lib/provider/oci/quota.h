#pragma once
/*
 * oci_quota: a disk limit that the kernel enforces, on a file system with project quotas (ext4 and
 * xfs, mounted with prjquota). The project's number is the first user id of the box, which no
 * other box has. The monitor counts as well (monitor/diskwatch.h): some file systems have no
 * quotas, and a box can take unchanged files out of the project (chattr -p 0 /root): overlayfs
 * sets the attributes of a copied-up file with the mounter's rights.
 */
#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"

/* Assigns an empty directory, and everything made in it later, to the project. 1: the limit
 * holds; 0: this file system enforces none. */
int oci_quota_set(const char *dir, uint32_t project, uint64_t bytes, struct err *e);
/* Does the directory belong to the project, and is the project's limit in force? Reads the
 * kernel's state. */
bool oci_quota_holds(const char *dir, uint32_t project);
/* Removes the project's limit; `dir` is any directory of the file system. */
void oci_quota_clear(const char *dir, uint32_t project);
