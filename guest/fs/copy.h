#pragma once
/*
 * copy: trees and files copied by descriptors: blocks shared where the disk can, holes kept. The
 * identity must have been taken.
 */
#include <stdbool.h>

#include "common/err.h"
#include "fs/change.h"

struct fs_copy_how {
    bool keep_owner;
    struct fs_copy_result *counts; /* added to */
};

/* Copies from_dirfd's entry `name`, of any kind but device and socket, to to_dirfd's entry to_name,
 * which must not exist. On failure a partial copy stays: the caller removes it. */
int fs_copy_entry(int from_dirfd, const char *name, int to_dirfd, const char *to_name,
                  const struct fs_copy_how *how, struct err *e);
