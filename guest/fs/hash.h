#pragma once
/* hash: SHA-256 of an open file's bytes. May block. */
#include <stdint.h>

#include "common/err.h"

#define FS_SHA256_BYTES 32

/* Of `len` bytes from `first` on; -ERR_DATA_LOSS when the file is too short for that. With len
 * UINT64_MAX: to the end. The descriptor's own position does not matter and stays. */
int fs_hash(int fd, uint64_t first, uint64_t len, uint8_t out[FS_SHA256_BYTES], struct err *e);
