#pragma once
/* dirtree: removing a directory with what is in it. */
#include "common/err.h"

/* However deep it is. Links are not followed, what is mounted below makes it fail; a path that is
 * not there is fine. */
int dirtree_remove(const char *path, struct err *e);
