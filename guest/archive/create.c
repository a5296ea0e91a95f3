#include "archive/create.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "archive/extract.h"
#include "fs/copy.h"
#include "archive/stage.h"
#include "common/buf.h"
#include "common/cleanup.h"
#include "common/io.h"
#include "common/str.h"
#include "fs/root.h"
#include "fs/walk.h"

#define READ_BYTES (128 * 1024)
#define OUT_MAX_BYTES \
    (16 * 1024 * 1024) /* one step's output: 128 KiB in, and bytes that filters held back */
#define BLOCK_BYTES (64 * 1024)
#define MAX_EXTENTS 10000 /* of one sparse file; more, and it is sent in full */

struct archive_create {
    struct fs_caller *caller;
    struct archive_create_options o;
    locale_t utf8;
    struct filter *filter; /* NULL: one file, or a list of names */
    struct notes left_out;

    struct fs_walk *walk;       /* NULL: one file, or a list of names */
    int base_fd;                /* of a list: the tree's start */
    size_t only_at;             /* in the list */
    char *only_name;            /* cleaned; of the item */
    struct fs_walk_item single; /* the one file, or the next of the list */
    int single_dirfd;
    char *single_name;
    bool single_is_done;

    struct archive *writer;
    struct archive_entry *entry;
    struct links *links;
    struct archive_create_counts counts;
    bool is_done;
    bool is_dropped; /* the reader has gone */

    int fd;         /* the file that is being sent, or -1 */
    uint64_t left;  /* of it */
    bool is_sparse; /* it had holes when it was opened */
    uint64_t hole;  /* of `left`: zeros that need not be read */
    bool is_short;  /* it has shrunk: zeros for the rest */
    char *name;     /* of a large file that is being sent */

    char *chunk;    /* READ_BYTES */
    struct buf out; /* made, not yet read */
    size_t out_at;
};

/* ---- new ------------------------------------------------------------------------------------- */

static la_ssize_t on_output(struct archive *a, void *arg, const void *data, size_t len)
{
    struct archive_create *c = arg;

    if (c->is_dropped || buf_add(&c->out, data, len, NULL) < 0) {
        archive_set_error(a, ENOMEM, "out of memory, or given up");
        return -1;
    }
    return (la_ssize_t)len;
}

static int writer_failed(struct archive_create *c, struct err *e)
{
    const char *why = archive_error_string(c->writer);

    return err_set(e, ERR_INTERNAL, "make the archive: %s", why ? why : "unknown");
}

static int open_writer(struct archive_create *c, struct err *e)
{
    const struct archive_format *f = c->o.format;

    c->writer = archive_write_new();
    c->entry = archive_entry_new();
    if (!c->writer || !c->entry)
        return err_oom(e);
    (void)archive_write_set_format_pax(c->writer);
    if (f->write_filter && f->write_filter(c->writer) != ARCHIVE_OK)
        return err_field(e, ERR_UNIMPLEMENTED, "format", "this build can't make that format");
    if (f->timestamp_module && c->o.reproducible)
        (void)archive_write_set_filter_option(c->writer, f->timestamp_module, "timestamp", NULL);
    (void)archive_write_set_bytes_per_block(c->writer, BLOCK_BYTES);
    (void)archive_write_set_bytes_in_last_block(c->writer, 1);
    if (archive_write_open(c->writer, c, NULL, on_output, NULL) != ARCHIVE_OK)
        return writer_failed(c, e);
    return 0;
}

static int open_tree_take(struct archive_create *c, const char *path, int fd, struct err *e)
{
    struct fs_walk_options o = {.max_depth = ARCHIVE_MAX_DEPTH, .deep_is_error = true};
    int r;

    if (c->o.only) {
        c->base_fd = fd;
        return 0;
    }
    r = filter_new(c->caller, path, fd, &c->o.filter, &c->filter, e);
    if (r < 0) {
        fd_close(fd);
        return r;
    }
    return fs_walk_new_take(fd, &o, &c->walk, e);
}

static int open_start(struct archive_create *c, const char *path, struct err *e)
{
    struct err inner = {0};
    int fd, r;

    r = fs_open(c->caller, path, O_RDONLY | O_DIRECTORY, 0, &fd, &inner);
    if (r == 0)
        return open_tree_take(c, path, fd, e);
    if (inner.sys != ENOTDIR || c->o.only) {
        if (e)
            *e = inner;
        return r;
    }
    r = fs_open_parent(c->caller, path, &c->single_dirfd, &c->single_name, e);
    if (r < 0)
        return r;
    if (fstatat(c->single_dirfd, c->single_name, &c->single.st, AT_SYMLINK_NOFOLLOW) < 0)
        return err_at(e, err_sys(e, errno, "stat '%s'", path), "path");
    c->single.path = c->single.name = c->single_name;
    c->single.dirfd = c->single_dirfd;
    c->single.depth = 1;
    return 0;
}

static int create_start(struct archive_create *c, const char *path,
                        const struct archive_create_options *o, struct err *e)
{
    _fs_acting_ const struct fs_actor *acting = NULL;
    int r;

    c->o = *o;
    if (!o->format && (r = archive_format_parse("tar", &c->o.format, e)) < 0)
        return r;
    c->utf8 = newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0);
    c->chunk = malloc(READ_BYTES);
    if (!c->chunk)
        return err_oom(e);
    buf_init(&c->out, OUT_MAX_BYTES);
    r = links_new(&c->links, e);
    if (r == 0)
        r = open_writer(c, e);
    if (r == 0)
        r = fs_act(&c->caller->actor, &acting, e);
    if (r == 0)
        r = open_start(c, path, e);
    return r;
}

int archive_create_new(struct fs_caller *caller, const char *path,
                       const struct archive_create_options *o, struct archive_create **ret,
                       struct err *e)
{
    struct archive_create *c = calloc(1, sizeof(*c));
    int r;

    if (!c)
        return err_oom(e);
    c->caller = fs_caller_ref(caller);
    c->fd = c->single_dirfd = c->base_fd = -1;
    notes_init(&c->left_out);
    r = create_start(c, path, o, e);
    if (r < 0) {
        archive_create_free(c);
        return r;
    }
    *ret = c;
    return 0;
}

struct archive_create *archive_create_free(struct archive_create *c)
{
    if (!c)
        return NULL;
    /* Not archive_write_fail(): libarchive 3.6 then leaks its buffers and zlib's. Closing in the
     * middle of a file fills it with zeros, but stops at the first block that is refused. */
    c->is_dropped = true;
    if (c->writer)
        (void)archive_write_free(c->writer);
    if (c->entry)
        archive_entry_free(c->entry);
    links_free(c->links);
    fs_walk_free(c->walk);
    fd_close(c->single_dirfd);
    fd_close(c->fd);
    if (c->utf8)
        freelocale(c->utf8);
    filter_free(c->filter);
    notes_done(&c->left_out);
    fd_close(c->base_fd);
    free(c->only_name);
    free(c->name);
    free(c->single_name);
    free(c->chunk);
    buf_done(&c->out);
    fs_caller_unref(c->caller);
    free(c);
    return NULL;
}

/* ---- entries --------------------------------------------------------------------------------- */

static int leave_out(struct archive_create *c, const char *path, const char *why)
{
    c->counts.left_out++;
    notes_add(&c->left_out, path, why);
    return 0;
}

static int leave_out_errno(struct archive_create *c, const char *path)
{
    c->counts.left_out++;
    notes_add_errno(&c->left_out, path, errno);
    return 0;
}

static void add_xattrs(struct archive_create *c, int fd)
{
    ssize_t total = flistxattr(fd, NULL, 0);
    _cleanup_free_ char *names = NULL;
    _cleanup_free_ char *value = NULL;

    if (total <= 0)
        return;
    names = malloc(FS_XATTR_LIST_MAX);
    value = malloc(FS_XATTR_VALUE_MAX);
    total = names && value ? flistxattr(fd, names, FS_XATTR_LIST_MAX) : 0;
    for (ssize_t at = 0; at < total; at += (ssize_t)strlen(names + at) + 1) {
        ssize_t n;

        if (!str_has_prefix(names + at, "user."))
            continue;
        n = fgetxattr(fd, names + at, value, FS_XATTR_VALUE_MAX);
        if (n >= 0)
            archive_entry_xattr_add_entry(c->entry, names + at, value, (size_t)n);
    }
}

/* Adds the data extents of a file with holes; false if they can't be found out. */
static bool add_extents(struct archive_create *c, int fd, off_t size)
{
    off_t at = 0;

    for (int n = 0; at < size; n++) {
        off_t data = lseek(fd, at, SEEK_DATA);
        off_t hole;

        if (data < 0 && errno == ENXIO)
            break;
        hole = data < 0 ? -1 : lseek(fd, data, SEEK_HOLE);
        if (hole < 0 || n == MAX_EXTENTS)
            return false;
        archive_entry_sparse_add_entry(c->entry, data, hole - data);
        at = hole;
    }
    return true;
}

static bool has_holes(const struct stat *st)
{
    return st->st_size >= BLOCK_BYTES && (uint64_t)st->st_blocks * 512 < (uint64_t)st->st_size;
}

static void add_holes(struct archive_create *c, int fd, const struct stat *st)
{
    if (!has_holes(st))
        return;
    if (!add_extents(c, fd, st->st_size))
        archive_entry_sparse_clear(c->entry);
    (void)lseek(fd, 0, SEEK_SET);
}

static void fill_entry(struct archive_create *c, const char *name, const struct stat *st)
{
    archive_entry_clear(c->entry);
    archive_entry_copy_pathname(c->entry, name);
    archive_entry_set_mode(c->entry, st->st_mode);
    archive_entry_set_uid(c->entry, c->o.reproducible ? 0 : st->st_uid);
    archive_entry_set_gid(c->entry, c->o.reproducible ? 0 : st->st_gid);
    archive_entry_set_size(c->entry, S_ISREG(st->st_mode) ? st->st_size : 0);
    archive_entry_set_mtime(c->entry, c->o.reproducible ? 0 : st->st_mtim.tv_sec,
                            c->o.reproducible ? 0 : st->st_mtim.tv_nsec);
}

static int put_header(struct archive_create *c, struct err *e)
{
    int got = archive_write_header(c->writer, c->entry);

    /* A warning is about a name that is not UTF-8: it was written as the bytes it is. */
    if (got != ARCHIVE_OK && got != ARCHIVE_WARN)
        return writer_failed(c, e);
    c->counts.entries++;
    return 0;
}

static int put_directory(struct archive_create *c, const struct fs_walk_item *it, struct err *e)
{
    _cleanup_close_ int fd = fs_openat_nofollow(it->dirfd, it->name, O_RDONLY | O_DIRECTORY);

    fill_entry(c, it->path[0] ? it->path : "./", &it->st);
    if (fd >= 0)
        add_xattrs(c, fd);
    return put_header(c, e);
}

static int put_symlink(struct archive_create *c, const struct fs_walk_item *it, struct err *e)
{
    char target[PATH_MAX];
    ssize_t n = readlinkat(it->dirfd, it->name, target, sizeof(target) - 1);

    if (n < 0)
        return leave_out_errno(c, it->path);
    target[n] = '\0';
    fill_entry(c, it->path, &it->st);
    archive_entry_copy_symlink(c->entry, target);
    return put_header(c, e);
}

/* Reads the file before its header is made: the size is right even if the file is being written. */
static int put_small(struct archive_create *c, int fd, const struct stat *st, struct err *e)
{
    size_t len;
    int r = io_read_full(fd, c->chunk, READ_BYTES, &len, e);

    if (r < 0)
        return r;
    archive_entry_set_size(c->entry, (la_int64_t)len);
    r = put_header(c, e);
    if (r < 0)
        return r;
    if (len && archive_write_data(c->writer, c->chunk, len) < 0)
        return writer_failed(c, e);
    if (archive_write_finish_entry(c->writer) != ARCHIVE_OK)
        return writer_failed(c, e);
    c->counts.bytes += len;
    c->counts.changed += len != (size_t)st->st_size;
    return 0;
}

/* Its bytes follow, one piece per step. */
static int begin_large(struct archive_create *c, int *fd, const char *path, const struct stat *st,
                       struct err *e)
{
    int r;

    add_holes(c, *fd, st);
    r = put_header(c, e);
    if (r < 0)
        return r;
    free(c->name);
    c->name = strdup(path);
    if (!c->name)
        return err_oom(e);
    c->left = (uint64_t)st->st_size;
    c->is_sparse = has_holes(st);
    c->hole = 0;
    c->is_short = false;
    c->fd = TAKE_FD(*fd);
    return 0;
}

/* The entry describes the open file, not what the walk saw. */
static int put_file(struct archive_create *c, const struct fs_walk_item *it, struct err *e)
{
    _cleanup_close_ int fd = fs_openat_nofollow(it->dirfd, it->name, O_RDONLY);
    const char *first = NULL;
    struct stat st;
    int r = 0;

    if (fd < 0 || fstat(fd, &st) < 0)
        return leave_out_errno(c, it->path);
    if (!S_ISREG(st.st_mode))
        return leave_out(c, it->path, "it became something else");
    if (st.st_nlink > 1)
        r = links_see(c->links, st.st_dev, st.st_ino, it->path, &first, e);
    if (r < 0)
        return r;
    fill_entry(c, it->path, &st);
    if (first) {
        archive_entry_copy_hardlink(c->entry, first);
        archive_entry_set_size(c->entry, 0);
        return put_header(c, e);
    }
    add_xattrs(c, fd);
    if (st.st_size < READ_BYTES && !has_holes(&st))
        return put_small(c, fd, &st, e);
    return begin_large(c, &fd, it->path, &st, e);
}

static int put_by_kind(struct archive_create *c, const struct fs_walk_item *it, struct err *e)
{
    switch (it->st.st_mode & S_IFMT) {
    case S_IFDIR:
        return put_directory(c, it, e);
    case S_IFLNK:
        return put_symlink(c, it, e);
    case S_IFREG:
        return put_file(c, it, e);
    case S_IFIFO:
        fill_entry(c, it->path, &it->st);
        return put_header(c, e);
    default:
        return leave_out(c, it->path, "a socket or a device has no place in an archive");
    }
}

static int put_item(struct archive_create *c, const struct fs_walk_item *it, struct err *e)
{
    bool hidden = false;
    int r = 0;

    if (it->kind == FS_WALK_ERROR)
        return leave_out(c, it->path, it->error.message);
    if (it->kind == FS_WALK_LEAVE)
        return 0;
    if (c->filter)
        r = filter_see(c->filter, it, &hidden, e);
    if (r < 0)
        return r;
    if (hidden) {
        fs_walk_skip(c->walk);
        return 0;
    }
    return put_by_kind(c, it, e);
}

/* ---- read ------------------------------------------------------------------------------------ */

static int finish_file(struct archive_create *c, struct err *e)
{
    char more;

    if (c->is_short || read(c->fd, &more, 1) > 0)
        c->counts.changed++;
    fd_close(c->fd);
    c->fd = -1;
    if (archive_write_finish_entry(c->writer) != ARCHIVE_OK)
        return writer_failed(c, e);
    return 0;
}

/* Moves the file's position behind the hole that it is in, if any, and returns the bytes of that. */
static uint64_t skip_hole(int fd, uint64_t max)
{
    off_t at = lseek(fd, 0, SEEK_CUR);
    off_t end = lseek(fd, at, SEEK_DATA);
    struct stat st;

    if (end < 0 && errno == ENXIO && fstat(fd, &st) == 0)
        end = st.st_size; /* a hole to the end */
    if (at < 0 || end <= at)
        return 0;
    if ((uint64_t)(end - at) > max)
        end = at + (off_t)max;
    return lseek(fd, end, SEEK_SET) == end ? (uint64_t)(end - at) : 0;
}

/* Until there is output: the writer drops the zeros of a hole that the header told. */
static int send_hole(struct archive_create *c, struct err *e)
{
    (void)memset(c->chunk, 0, READ_BYTES);
    while (c->hole && c->out.len == 0) {
        size_t n = c->hole < READ_BYTES ? (size_t)c->hole : READ_BYTES;

        if (archive_write_data(c->writer, c->chunk, n) < 0)
            return writer_failed(c, e);
        c->hole -= n;
        c->left -= n;
        c->counts.bytes += n;
    }
    return 0;
}

/* Sends a piece of the open file. A file that has shrunk is filled with zeros: the entry must have
 * the length that its header says. */
static int send_piece(struct archive_create *c, struct err *e)
{
    size_t want = c->left < READ_BYTES ? (size_t)c->left : READ_BYTES;
    ssize_t n = 0;

    if (want == 0)
        return finish_file(c, e);
    /* To read a hole of gigabytes would take longer than a client waits for the next byte. */
    if (c->is_sparse && !c->is_short && !c->hole)
        c->hole = skip_hole(c->fd, c->left);
    if (c->hole)
        return send_hole(c, e);
    if (!c->is_short)
        n = read(c->fd, c->chunk, want);
    if (n < 0 && errno == EINTR)
        return 0;
    if (n < 0 && !c->o.pad)
        return err_sys(e, errno, "read '%.300s'", c->name);
    if (n <= 0 && !c->o.pad)
        return err_set(e, ERR_DATA_LOSS, "'%.300s' became shorter while it was sent", c->name);
    if (n <= 0) {
        c->is_short = true;
        (void)memset(c->chunk, 0, want);
        n = (ssize_t)want;
    }
    if (archive_write_data(c->writer, c->chunk, (size_t)n) < 0)
        return writer_failed(c, e);
    c->left -= (uint64_t)n;
    c->counts.bytes += (uint64_t)n;
    return 0;
}

static int create_finish(struct archive_create *c, struct err *e)
{
    c->is_done = true;
    if (archive_write_close(c->writer) != ARCHIVE_OK)
        return writer_failed(c, e);
    return 0;
}

/* The next name of the list that is still there. 1: *ret_it is it; 0: none left. */
static int next_listed(struct archive_create *c, const struct fs_walk_item **ret_it, struct err *e)
{
    while (c->only_at < c->o.only_bytes) {
        const char *name = c->o.only + c->only_at;
        _cleanup_free_ char *dir = NULL;
        const char *last;
        int r;

        c->only_at += strnlen(name, c->o.only_bytes - c->only_at) + 1;
        free(TAKE(c->only_name));
        r = stage_clean_name(name, &c->only_name, e);
        if (r < 0)
            return r;
        dir = fs_below_parent(c->only_name, &last);
        if (!dir)
            return err_oom(e);
        fd_close(c->single_dirfd);
        c->single_dirfd = -1;
        if (fs_open_below(c->base_fd, dir, false, &c->single_dirfd, NULL) < 0 ||
            fstatat(c->single_dirfd, last[0] ? last : ".", &c->single.st, AT_SYMLINK_NOFOLLOW) <
                0) {
            (void)leave_out(c, c->only_name, "it is not there");
            continue;
        }
        c->single.path = c->only_name;
        c->single.name = last[0] ? last : ".";
        c->single.dirfd = c->single_dirfd;
        c->single.depth = 1;
        *ret_it = &c->single;
        return 1;
    }
    return 0;
}

static int create_step(struct archive_create *c, struct err *e)
{
    const struct fs_walk_item *it = &c->single;
    int r = 1;

    if (c->fd >= 0)
        return send_piece(c, e);
    if (c->walk)
        r = fs_walk_next(c->walk, &it, e);
    else if (c->o.only)
        r = next_listed(c, &it, e);
    else if (c->single_is_done)
        r = 0;
    c->single_is_done = true;
    if (r < 0)
        return r;
    return r == 0 ? create_finish(c, e) : put_item(c, it, e);
}

static int fill_out(struct archive_create *c, struct err *e)
{
    _fs_acting_ const struct fs_actor *acting = NULL;
    locale_t before = c->utf8 ? uselocale(c->utf8) : (locale_t)0;
    int r;

    buf_clear(&c->out);
    c->out_at = 0;
    r = fs_act(&c->caller->actor, &acting, e);
    while (r == 0 && c->out.len == 0 && !c->is_done)
        r = create_step(c, e);
    if (c->utf8)
        (void)uselocale(before);
    return r;
}

int archive_create_read(struct archive_create *c, void *data, size_t size, size_t *ret_len,
                        struct err *e)
{
    size_t n;
    int r;

    if (c->out_at == c->out.len) {
        r = fill_out(c, e);
        if (r < 0)
            return r;
    }
    n = c->out.len - c->out_at;
    if (n > size)
        n = size;
    if (n)
        (void)memcpy(data, c->out.data + c->out_at, n);
    c->out_at += n;
    *ret_len = n;
    return 0;
}

void archive_create_counts(const struct archive_create *c, struct archive_create_counts *ret)
{
    *ret = c->counts;
}

const struct notes *archive_create_left_out(const struct archive_create *c)
{
    return &c->left_out;
}
