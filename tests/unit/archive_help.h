#pragma once
/* archive_help: an archive into archive_extract_read(), from memory or from a file in pieces. */
#include "archive/extract.h"
#include "event/pool.h"
#include "event/pump.h"

static inline int h_archive_bytes(struct archive_extract *x, const void *data, size_t len,
                                  struct err *e)
{
    const struct pump_options o = {.max_bytes = len + 1};
    struct pump *p = NULL;
    int r = pump_new(&o, &p, e);

    if (r == 0)
        r = pump_write(p, data, len, e);
    if (r == 0) {
        pump_end(p);
        r = archive_extract_read(x, p, NULL, e);
    }
    pump_leave(p);
    return r;
}

static inline int h_archive_read_fd(void *job, void *data, size_t size, size_t *ret_len,
                                    struct err *e)
{
    ssize_t n = read(*(int *)job, data, size);

    if (n < 0)
        return err_sys(e, errno, "read");
    *ret_len = (size_t)n;
    return 0;
}

/* Also with a job that reads the file, and one that unpacks ahead. piece: how much may wait at most. */
static inline int h_archive_file(struct archive_extract *x, const char *file, size_t piece,
                                 struct err *e)
{
    static const struct pump_ops ops = {.read = h_archive_read_fd};
    int fd = open(file, O_RDONLY);
    struct pump_options o = {.ops = &ops, .job = &fd, .max_bytes = piece};
    struct pump *p = NULL;
    int r = pool_new(&o.pool, e);

    if (r == 0)
        r = pump_new(&o, &p, e);
    if (r == 0)
        r = pump_start(p, e);
    if (r == 0)
        r = archive_extract_read(x, p, o.pool, e);
    pump_stop(p);
    (void)pool_free(o.pool, 60000);
    close(fd);
    return r;
}
