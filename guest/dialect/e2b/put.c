#include "dialect/e2b/put.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/io.h"
#include "common/path.h"
#include "dialect/e2b/entry.h"
#include "dialect/e2b/fault.h"
#include "fs/write.h"

struct put {
    char *path;
    int fd;
    uint64_t announced;
    char *buffer;
    size_t len;
};

/* Changes the owner of an existing file. *ret_given: false: there is none. */
static int give_old(struct fs_caller *c, const char *path, const struct owner *o, bool *ret_given,
                    struct err *e)
{
    _cleanup_close_ int fd = -1;
    struct err inner = {0};
    struct stat st;
    int r = fs_open(c, path, O_PATH, 0, &fd, &inner);

    *ret_given = false;
    if (r < 0 && inner.sys == ENOENT)
        return 0;
    if (r < 0)
        return fault_of(e, ERR_INTERNAL, &inner, "error getting file info: stat %s", path);
    if (fstat(fd, &st) < 0)
        return fault_sys(e, ERR_INTERNAL, errno, "error getting file info: stat %s", path);
    if (S_ISDIR(st.st_mode))
        return err_set(e, ERR_INVALID, "path is a directory: %s", path);
    if (fchownat(fd, "", o->uid, o->gid, AT_EMPTY_PATH) < 0)
        return fault_sys(e, ERR_INTERNAL, errno, "error changing file ownership: chown %s", path);
    *ret_given = true;
    return 0;
}

static int open_file(struct fs_caller *c, const char *path, int *ret_fd, struct err *e)
{
    struct err inner = {0};
    int r = fs_open(c, path, O_WRONLY | O_CREAT | O_TRUNC, FS_NEW_FILE_MODE, ret_fd, &inner);

    if (r == 0)
        return 0;
    if (inner.sys == ENOSPC || inner.sys == EDQUOT) {
        r = fault_sys(e, ERR_EXHAUSTED, ENOSPC, "not enough inodes available: open %s", path);
        return r;
    }
    return fault_of(e, ERR_INTERNAL, &inner, "error opening file: open %s", path);
}

static int put_begin_write(struct put *p, struct fs_caller *c, const struct owner *o, struct err *e)
{
    bool is_given = false;
    int r = dirs_make_parents(c, p->path, o, e);

    if (r < 0)
        return err_wrap(e, r, "error ensuring directories");
    r = give_old(c, p->path, o, &is_given, e);
    if (r == 0)
        r = open_file(c, p->path, &p->fd, e);
    if (r < 0)
        return r;
    if (!is_given && fchown(p->fd, o->uid, o->gid) < 0)
        return fault_sys(e, ERR_INTERNAL, errno, "error changing file ownership: chown %s",
                         p->path);
    return 0;
}

int put_begin(struct fs_caller *c, const char *path, const struct owner *o, uint64_t announced,
              struct put **ret, struct err *e)
{
    struct put *p = calloc(1, sizeof(*p));
    int r;

    if (!p)
        return err_oom(e);
    p->fd = -1;
    p->announced = announced;
    p->path = strdup(path);
    r = p->path ? put_begin_write(p, c, o, e) : err_oom(e);
    if (r < 0) {
        put_free(p);
        return r;
    }
    *ret = p;
    return 0;
}

static int write_out(struct put *p, const void *data, size_t len, struct err *e)
{
    struct err inner = {0};
    int r = len ? io_write_all(p->fd, data, len, &inner) : 0;

    if (r == 0)
        return 0;
    if (inner.sys != ENOSPC && inner.sys != EDQUOT)
        return fault_of(e, ERR_INTERNAL, &inner, "error writing file: write %s", p->path);
    if (p->announced)
        r = err_set(e, ERR_EXHAUSTED,
                    "attempted to write %" PRIu64 " bytes: not enough disk space available",
                    p->announced);
    else
        r = err_set(e, ERR_EXHAUSTED, "not enough disk space available");
    if (e)
        e->sys = ENOSPC;
    return r;
}

static int put_flush(struct put *p, struct err *e)
{
    int r = write_out(p, p->buffer, p->len, e);

    p->len = 0;
    return r;
}

int put_data(struct put *p, const void *data, size_t len, struct err *e)
{
    int r;

    if (p->len + len > PUT_BUFFER_BYTES) {
        r = put_flush(p, e);
        if (r < 0)
            return r;
    }
    if (len >= PUT_BUFFER_BYTES)
        return write_out(p, data, len, e);
    if (!p->buffer && !(p->buffer = malloc(PUT_BUFFER_BYTES)))
        return err_oom(e);
    (void)memcpy(p->buffer + p->len, data, len);
    p->len += len;
    return 0;
}

json_t *put_new_entry(const char *path, int fd)
{
    json_t *metadata = fd >= 0 ? meta_read(fd) : NULL;
    json_t *entry = json_pack("{s:o, s:o, s:s, s:o*}", "name", entry_new_text(path_name(path)),
                              "path", entry_new_text(path), "type", "file", "metadata", metadata);

    return entry;
}

int put_finish(struct put *p, const struct meta *m, json_t **ret_entry, struct err *e)
{
    int r = put_flush(p, e);

    if (r == 0)
        r = meta_write(p->fd, m, e);
    if (r < 0)
        return r;
    *ret_entry = put_new_entry(p->path, p->fd);
    return *ret_entry ? 0 : err_oom(e);
}

void put_keep(struct put *p)
{
    (void)put_flush(p, NULL);
}

struct put *put_free(struct put *p)
{
    if (!p)
        return NULL;
    fd_close(p->fd);
    free(p->buffer);
    free(p->path);
    free(p);
    return NULL;
}
