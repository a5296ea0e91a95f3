#pragma once
/* xattr: extended attributes from one open file to another. The identity must have been taken. */
#include <stdbool.h>
#include <stddef.h>

#include "common/err.h"

#define FS_XATTR_LIST_MAX (64 * 1024) /* the kernel's own limits */
#define FS_XATTR_VALUE_MAX (64 * 1024)

/*
 * user.* and the access list, which must arrive (-1 with errno when one can't); others are tried.
 * Capabilities are never copied: they belong to the old bytes. A disk without xattrs has none.
 */
int fs_xattr_copy(int from, int to);
