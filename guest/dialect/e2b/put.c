#include "dialect/e2b/put.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/buf.h"
#include "common/cleanup.h"
#include "common/io.h"
#include "common/path.h"
#include "dialect/e2b/entry.h"
#include "dialect/e2b/file_paths.h"
#include "fs/write.h"

#define NAMED_BYTES 256 /* of the other files, in an error */

struct puts {
    struct files_call call;
    uint64_t announced;
    char *path; /* of the file that is being written */
    int fd;     /* -1: none is */
    char *buffer;
    size_t len; /* in the buffer */
    json_t *entries;
    json_t *paths; /* the set of paths that were begun */
    size_t reply_bytes;
};

int puts_new(const struct agent *a, const char *user, uint64_t announced, struct puts **ret,
             struct err *e)
{
    struct puts *p = calloc(1, sizeof(*p));
    int r;

    if (!p)
        return err_oom(e);
    p->fd = -1;
    p->announced = announced;
    p->entries = json_array();
    p->paths = json_object();
    r = p->entries && p->paths ? files_rest_init(&p->call, a, user, e) : err_oom(e);
    if (r < 0) {
        puts_free(p);
        return r;
    }
    *ret = p;
    return 0;
}

/* ---- one file -------------------------------------------------------------------------------- */

/* Names the other files of the upload in an error. */
static int refuse_again(const struct puts *p, const char *path, struct err *e)
{
    _cleanup_buf_ struct buf others;
    size_t n = 0;
    json_t *entry;
    size_t i;

    buf_init(&others, NAMED_BYTES);
    json_array_foreach (p->entries, i, entry) {
        const char *other = json_string_value(json_object_get(entry, "path"));

        if (!other || strcmp(other, path) == 0)
            continue;
        if (buf_addf(&others, NULL, "%s%s", n ? ", " : "", other) < 0)
            break;
        n++;
    }
    return err_set(e, ERR_INVALID,
                   "you cannot upload multiple files to the same path '%.200s' in one upload "
                   "request, only the first specified file was uploaded%s%s",
                   path, n > 1 ? ", also the following files were uploaded: " : "",
                   n > 1 ? others.data : "");
}

static int note_path(struct puts *p, const char *path, struct err *e)
{
    p->reply_bytes += strlen(path);
    if (p->reply_bytes > PUTS_REPLY_BYTES)
        return err_set(e, ERR_INVALID,
                       "the paths and metadata of one upload have more than %u bytes",
                       PUTS_REPLY_BYTES);
    if (json_object_get(p->paths, path))
        return refuse_again(p, path, e);
    /* Unchecked: a path may be no text. */
    return json_object_set_new_nocheck(p->paths, path, json_true()) < 0 ? err_oom(e) : 0;
}

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

    if (fs_open(c, path, O_WRONLY | O_CREAT | O_TRUNC, FS_NEW_FILE_MODE, ret_fd, &inner) == 0)
        return 0;
    if (inner.sys == ENOSPC || inner.sys == EDQUOT)
        return fault_sys(e, ERR_EXHAUSTED, ENOSPC, "not enough inodes available: open %s", path);
    return fault_of(e, ERR_INTERNAL, &inner, "error opening file: open %s", path);
}

static int open_put(struct puts *p, struct err *e)
{
    struct fs_caller *c = p->call.caller;
    const struct owner *o = &p->call.owner;
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

static int write_out(struct puts *p, const void *data, size_t len, struct err *e)
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

static int put_flush(struct puts *p, struct err *e)
{
    int r = write_out(p, p->buffer, p->len, e);

    p->len = 0;
    return r;
}

int puts_begin(struct puts *p, const char *path, struct err *e)
{
    int r;

    free(TAKE(p->path));
    r = files_call_path(&p->call, path, &p->path, e);
    if (r < 0)
        return err_wrap(e, r, "error resolving path");
    r = note_path(p, p->path, e);
    return r < 0 ? r : open_put(p, e);
}

int puts_data(struct puts *p, const void *data, size_t len, struct err *e)
{
    if (p->len + len > PUT_BUFFER_BYTES) {
        int r = put_flush(p, e);

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
    return json_pack("{s:o, s:o, s:s, s:o*}", "name", entry_new_text(path_name(path)), "path",
                     entry_new_text(path), "type", "file", "metadata",
                     fd >= 0 ? meta_read(fd) : NULL);
}

int puts_end(struct puts *p, const struct meta *m, struct err *e)
{
    json_t *entry;
    int r = put_flush(p, e);

    if (r == 0)
        r = meta_write(p->fd, m, e);
    if (r < 0)
        return r;
    entry = put_new_entry(p->path, p->fd);
    fd_close(TAKE_FD(p->fd));
    p->reply_bytes += meta_bytes(m);
    return json_array_append_new(p->entries, entry) < 0 ? err_oom(e) : 0;
}

const json_t *puts_entries(const struct puts *p)
{
    return p->entries;
}

void puts_close(struct puts *p)
{
    if (!p || p->fd < 0)
        return;
    (void)put_flush(p, NULL);
    fd_close(TAKE_FD(p->fd));
}

struct puts *puts_free(struct puts *p)
{
    if (!p)
        return NULL;
    fd_close(p->fd);
    json_decref(p->entries);
    json_decref(p->paths);
    files_call_done(&p->call);
    free(p->buffer);
    free(p->path);
    free(p);
    return NULL;
}
