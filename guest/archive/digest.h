#pragma once
/*
 * digest: the SHA-256 of files' contents, remembered for as long as the file is the same (device,
 * inode, size and ctime, which changes with every write), so that a tree that was hashed once is
 * not read again. What is too young to tell two writes apart is not remembered. Thread-safe.
 */
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "common/err.h"

#define DIGEST_BYTES 32
#define DIGEST_CACHE_MAX 131072u /* files; 64 bytes each: 8 MiB, used as files are hashed */

/* Whether the content of a regular file that looks like this is known. */
bool digest_known(const struct stat *st, uint8_t out[DIGEST_BYTES]);

/* Of an open file, read from its start to its end. *ret_bytes: read now (0: it was known).
 * -ERR_ABORTED: it was being written meanwhile. */
int digest_file(int fd, uint8_t out[DIGEST_BYTES], uint64_t *ret_bytes, struct err *e);

void digest_to_hex(const uint8_t digest[DIGEST_BYTES], char out[2 * DIGEST_BYTES + 1]);
