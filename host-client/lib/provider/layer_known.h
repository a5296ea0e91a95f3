#pragma once
/* layer_known: files by inode, for layer_tree.c; layer_tree.h has what it is for. */
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "common/buf.h"
#include "common/err.h"
#include "lib/provider/layer_tree.h"

struct known_file {
    uint64_t ino; /* 0: an empty place */
    int64_t ctime_ns;
    uint8_t digest[32];
    char *path;
    char *attributes; /* as in its line of the manifest; NULL: none */
};

/* Borrowed, until the next file is added. */
const struct known_file *known_find(const struct layer_known *k, uint64_t ino);
/* NULL unless the file is the same as it was then. k may be NULL. */
const struct known_file *known_unchanged(const struct layer_known *k, const struct stat *st);
int known_add(struct layer_known *k, const struct stat *st, const char *hex, const char *path,
              const char *attributes, struct err *e);
