#include "fs/hash.h"

#include <errno.h>
#include <nettle/sha2.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/cleanup.h"

#define READ_BYTES (128 * 1024)

int fs_hash(int fd, uint64_t first, uint64_t len, uint8_t out[FS_SHA256_BYTES], struct err *e)
{
    _cleanup_free_ uint8_t *data = malloc(READ_BYTES);
    struct sha256_ctx sha;

    if (!data)
        return err_oom(e);
    sha256_init(&sha);
    while (len) {
        ssize_t n = pread(fd, data, len < READ_BYTES ? (size_t)len : READ_BYTES, (off_t)first);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_sys(e, errno, "read to hash");
        if (n == 0 && len == UINT64_MAX)
            break;
        if (n == 0)
            return err_set(e, ERR_DATA_LOSS, "the file has become shorter");
        sha256_update(&sha, (size_t)n, data);
        first += (uint64_t)n;
        len -= len == UINT64_MAX ? 0 : (uint64_t)n;
    }
    sha256_digest(&sha, FS_SHA256_BYTES, out);
    return 0;
}
