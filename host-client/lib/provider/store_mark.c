#include "lib/provider/store_mark.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/io.h"
#include "common/path.h"

#define MARK_FILE "mark"

static int read_mark(const char *path, char out[STORE_MARK_BYTES], struct err *e)
{
    _cleanup_free_ char *text = NULL;
    size_t len = 0;
    int r = io_read_file(AT_FDCWD, path, STORE_MARK_BYTES, &text, &len, e);

    if (r < 0)
        return r;
    if (len != STORE_MARK_BYTES - 1 || strspn(text, "0123456789abcdef") != len)
        return err_set(e, ERR_DATA_LOSS, "'%s' is not 32 hex digits", path);
    memcpy(out, text, STORE_MARK_BYTES);
    return 0;
}

/* Of two that make it at once, the one whose link() comes first wins. */
static int make_mark(const char *path, struct err *e)
{
    _cleanup_free_ char *temp = NULL;
    char mark[STORE_MARK_BYTES], suffix[9];
    int r = io_random_hex(4, suffix, e);

    if (r == 0)
        r = io_random_hex((STORE_MARK_BYTES - 1) / 2, mark, e);
    if (r == 0 && asprintf(&temp, "%s.%s", path, suffix) < 0) {
        temp = NULL;
        r = err_oom(e);
    }
    if (r == 0)
        r = io_write_file(AT_FDCWD, temp, mark, strlen(mark), 0600, true, e);
    if (r == 0 && link(temp, path) < 0 && errno != EEXIST)
        r = err_sys(e, errno, "make '%s'", path);
    if (r == 0)
        r = io_sync_parent(AT_FDCWD, path, e);
    if (temp)
        (void)unlink(temp);
    return r;
}

int store_mark(const struct bh_ctx *ctx, char out[STORE_MARK_BYTES], struct err *e)
{
    _cleanup_free_ char *path = path_join(ctx->state_dir, MARK_FILE);
    int r = path ? read_mark(path, out, e) : err_oom(e);

    if (r != -ERR_NOT_FOUND)
        return r;
    r = make_mark(path, e);
    return r < 0 ? r : read_mark(path, out, e);
}
