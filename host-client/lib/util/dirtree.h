#pragma once
/* dirtree: removes a directory tree. */
#include "common/err.h"

/* Works at any depth. Does not follow links; fails on a mount below; a missing path is no
 * error. */
int dirtree_remove(const char *path, struct err *e);
