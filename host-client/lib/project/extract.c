#include "lib/project/extract.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/io.h"
#include "lib/util/beneath.h"
#include "lib/util/archive_lib.h"

#define BLOCK_BYTES (64 * 1024)
#define NAME_BYTES 4096
#define MODE_BITS 0777 /* no set-id, no sticky */

#define INODES_MAX (512u * 1024) /* 16 MiB */

/* The files that this archive has made: a hard link may lead only to them. Open addressing; ino
 * 0: free. */
struct inode_set {
    struct inode {
        dev_t dev;
        ino_t ino;
    } * v;
    size_t n, cap; /* cap: a power of two */
};

struct extraction {
    struct archive *a;
    int root; /* the directory */
    const struct extract_options *o;
    char temp[sizeof(EXTRACT_TEMP_PREFIX) + 16]; /* the temporary name of the current file */
    struct inode_set made;
    uint64_t n_entries;
};

/* ---- what was made ---- */

static struct inode *inode_slot(const struct inode_set *s, dev_t dev, ino_t ino)
{
    size_t at = (size_t)((uint64_t)ino * 0x9E3779B97F4A7C15u >> 20);

    for (;; at++) {
        struct inode *i = &s->v[at & (s->cap - 1)];

        if (!i->ino || (i->ino == ino && i->dev == dev))
            return i;
    }
}

static int inode_set_grow(struct inode_set *s, struct err *e)
{
    struct inode_set more = {.n = s->n, .cap = s->cap ? s->cap * 2 : 64};

    more.v = calloc(more.cap, sizeof(*more.v));
    if (!more.v)
        return err_oom(e);
    for (size_t i = 0; i < s->cap; i++)
        if (s->v[i].ino)
            *inode_slot(&more, s->v[i].dev, s->v[i].ino) = s->v[i];
    free(s->v);
    *s = more;
    return 0;
}

static int inode_set_add(struct inode_set *s, const struct stat *st, struct err *e)
{
    struct inode *i;
    int r;

    if (s->n == INODES_MAX)
        return 0; /* a hard link to this file is refused */
    r = s->n * 2 >= s->cap ? inode_set_grow(s, e) : 0;

    if (r < 0)
        return r;
    i = inode_slot(s, st->st_dev, st->st_ino);
    s->n += !i->ino;
    *i = (struct inode){.dev = st->st_dev, .ino = st->st_ino};
    return 0;
}

static bool inode_set_has(const struct inode_set *s, const struct stat *st)
{
    return s->n && inode_slot(s, st->st_dev, st->st_ino)->ino;
}

/* ---- names ---- */

static int check_name(const char *name, struct err *e)
{
    if (!beneath_is_inside(name) || strlen(name) >= NAME_BYTES)
        return err_set(e, ERR_DENIED, "the archive has the name '%.200s'", name);
    return 0;
}

/* Opens one component deeper, made if missing. A link is an error, not followed. 1: it was
 * made. */
static int enter_dir(int dir, const char *name, int *ret, struct err *e)
{
    bool is_new = mkdirat(dir, name, 0755) == 0;

    if (!is_new && errno != EEXIST)
        return err_sys(e, errno, "make '%s'", name);
    *ret = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return *ret < 0 ? err_sys(e, errno, "open the directory '%s'", name) : is_new;
}

/* Opens the directory of the name, and returns its last component ("" for the root). */
static int open_parent(const struct extraction *x, const char *name, int *ret_dir, char *last,
                       struct err *e)
{
    _cleanup_close_ int dir = fcntl(x->root, F_DUPFD_CLOEXEC, 3);
    const char *p = name;

    if (dir < 0)
        return err_sys(e, errno, "fcntl");
    last[0] = '\0';
    while (*p) {
        size_t n = strcspn(p, "/");
        const char *next = p + n + strspn(p + n, "/");

        if (n == 0 || (n == 1 && p[0] == '.')) {
            p = next;
            continue;
        }
        if (last[0]) {
            int deeper;
            int r = enter_dir(dir, last, &deeper, e);

            if (r < 0)
                return r;
            fd_close(dir);
            dir = deeper;
        }
        memcpy(last, p, n);
        last[n] = '\0';
        p = next;
    }
    *ret_dir = TAKE_FD(dir);
    return 0;
}

/* ---- entries ---- */

static int archive_fail(const struct extraction *x, struct err *e)
{
    const char *why = archive_error_string(x->a);

    return err_set(e, ERR_DATA_LOSS, "the archive: %s", why ? why : "it broke off");
}

/* Holes stay holes: an archive of a kilobyte can hold a file of an exabyte. */
static int copy_data(struct extraction *x, int fd, int64_t size, struct err *e)
{
    for (;;) {
        const void *data;
        la_int64_t at;
        size_t n;
        int la = archive_read_data_block(x->a, &data, &n, &at);
        int r;

        if (la == ARCHIVE_EOF)
            break;
        if (la != ARCHIVE_OK)
            return archive_fail(x, e);
        if (lseek(fd, at, SEEK_SET) < 0)
            return err_sys(e, errno, "write");
        r = io_write_all(fd, data, n, e);
        if (r < 0)
            return r;
    }
    return ftruncate(fd, size) < 0 ? err_sys(e, errno, "set the size") : 0;
}

static void entry_times(struct archive_entry *entry, struct timespec times[2])
{
    times[0] = (struct timespec){.tv_nsec = UTIME_OMIT};
    times[1] = (struct timespec){.tv_sec = archive_entry_mtime(entry),
                                 .tv_nsec = archive_entry_mtime_nsec(entry)};
}

/* Makes the entry's file under the temporary name. */
static int make_file(struct extraction *x, int dir, struct archive_entry *entry, struct err *e)
{
    struct timespec times[2];
    _cleanup_close_ int fd = -1;
    struct stat st;
    int r;

    entry_times(entry, times);
    fd = openat(dir, x->temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return err_sys(e, errno, "create a file");
    r = copy_data(x, fd, archive_entry_size(entry), e);
    if (r < 0)
        return r;
    if (fchmod(fd, archive_entry_perm(entry) & MODE_BITS) < 0 || fstat(fd, &st) < 0)
        return err_sys(e, errno, "set the mode");
    (void)futimens(fd, times);
    return inode_set_add(&x->made, &st, e);
}

static int make_symlink(struct extraction *x, int dir, struct archive_entry *entry, struct err *e)
{
    const char *target = archive_entry_symlink(entry);
    struct timespec times[2];

    entry_times(entry, times);
    if (!target)
        return err_set(e, ERR_DATA_LOSS, "a link that leads nowhere");
    if (symlinkat(target, dir, x->temp) < 0)
        return err_sys(e, errno, "make a link");
    (void)utimensat(dir, x->temp, times, AT_SYMLINK_NOFOLLOW);
    return 0;
}

/* Links only to a file of this archive: an older file here is none of the box's business. */
static int make_hardlink(struct extraction *x, int dir, const char *target, struct err *e)
{
    const char *prefix = x->o->prefix;
    _cleanup_free_ char *full = NULL;
    _cleanup_close_ int from = -1;
    char last[NAME_BYTES];
    struct stat st;
    int r = check_name(target, e);

    if (r == 0 && asprintf(&full, "%s%s%s", prefix ? prefix : "", prefix ? "/" : "", target) < 0) {
        full = NULL;
        r = err_oom(e);
    }
    if (r == 0 && strlen(full) >= NAME_BYTES)
        r = err_set(e, ERR_INVALID, "the name '%.200s' is too long", full);
    if (r == 0)
        r = open_parent(x, full, &from, last, e);
    if (r < 0)
        return r;
    if (fstatat(from, last, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode) ||
        !inode_set_has(&x->made, &st))
        return err_set(e, ERR_DATA_LOSS, "a hard link to '%.200s', which the archive does not have",
                       target);
    return linkat(from, last, dir, x->temp, 0) < 0 ? err_sys(e, errno, "link") : 0;
}

/* Replaces whatever has the name, and never writes into it: it may be a link or have other
 * names. */
static int put_in_place(struct extraction *x, int dir, const char *name, struct err *e)
{
    int r = renameat(dir, x->temp, dir, name) < 0 ? err_sys(e, errno, "replace '%s'", name) : 0;

    /* rename() keeps the old name if both are the same file */
    (void)unlinkat(dir, x->temp, 0);
    return r;
}

static int put_new(struct extraction *x, int dir, const char *name, struct archive_entry *entry,
                   struct err *e)
{
    const char *hardlink = archive_entry_hardlink(entry);
    int r;

    if (hardlink)
        r = make_hardlink(x, dir, hardlink, e);
    else if (archive_entry_filetype(entry) == AE_IFLNK)
        r = make_symlink(x, dir, entry, e);
    else
        r = make_file(x, dir, entry, e);
    if (r == 0)
        return put_in_place(x, dir, name, e);
    (void)unlinkat(dir, x->temp, 0);
    return err_wrap(e, r, "'%s'", name);
}

static int put_dir(int dir, const char *name, struct archive_entry *entry, struct err *e)
{
    _cleanup_close_ int fd = -1;
    int r;

    if (!*name)
        return 0;
    r = enter_dir(dir, name, &fd, e);
    if (r > 0) /* the owner must be able to fill it; an existing directory keeps its mode */
        (void)fchmod(fd, (archive_entry_perm(entry) & MODE_BITS) | 0700);
    return r < 0 ? r : 0;
}

/* "." is the directory itself. */
static bool is_top(const char *name)
{
    while (*name) {
        size_t n = strcspn(name, "/");

        if (n > 1 || (n == 1 && *name != '.'))
            return false;
        name += n + strspn(name + n, "/");
    }
    return true;
}

/* A hard link has a file's type, or none. */
static mode_t entry_type(struct archive_entry *entry)
{
    return archive_entry_hardlink(entry) ? S_IFREG : archive_entry_filetype(entry) & S_IFMT;
}

static int put_entry(struct extraction *x, struct archive_entry *entry, struct err *e)
{
    const struct extract_options *o = x->o;
    const char *name = archive_entry_pathname(entry);
    _cleanup_free_ char *full = NULL;
    _cleanup_close_ int dir = -1;
    char last[NAME_BYTES];
    int r;

    if (!name)
        return err_set(e, ERR_DATA_LOSS, "the archive has an entry without a name");
    r = check_name(name, e);
    if (r == 0 && entry_type(entry) != S_IFDIR && is_top(name))
        r = err_set(e, ERR_DATA_LOSS, "the archive has the top directory as something else");
    if (r == 0 && o->accept)
        r = o->accept(o->arg, name, entry_type(entry), (uint64_t)archive_entry_size(entry), e);
    if (r < 0)
        return r;
    if (asprintf(&full, "%s%s%s", o->prefix ? o->prefix : "", o->prefix ? "/" : "", name) < 0)
        return err_oom(e);
    if (strlen(full) >= NAME_BYTES)
        return err_set(e, ERR_INVALID, "the name '%.200s' is too long", full);
    switch (entry_type(entry)) {
    case S_IFDIR:
        r = open_parent(x, full, &dir, last, e);
        return r < 0 ? r : put_dir(dir, last, entry, e);
    case S_IFREG:
    case S_IFLNK:
        r = open_parent(x, full, &dir, last, e);
        return r < 0 ? r : put_new(x, dir, last, entry, e);
    default: /* devices, FIFOs and sockets are not transferred */
        return 0;
    }
}

/* 1: *ret is the next entry; 0: the end. */
static int next_entry(struct extraction *x, struct archive_entry **ret, struct err *e)
{
    int la = archive_read_next_header(x->a, ret);

    if (la == ARCHIVE_EOF)
        return 0;
    if (la < ARCHIVE_WARN)
        return archive_fail(x, e);
    if (++x->n_entries > EXTRACT_MAX_ENTRIES)
        return err_set(e, ERR_EXHAUSTED, "the archive has too many entries");
    return 1;
}

static int extract_all(struct extraction *x, struct err *e)
{
    struct archive_entry *entry;
    int r;

    while ((r = next_entry(x, &entry, e)) > 0) {
        r = put_entry(x, entry, e);
        if (r < 0)
            return r;
    }
    return r;
}

/* ---- one entry ---- */

static int check_only(const struct extraction *x, struct archive_entry *entry, struct err *e)
{
    const char *name = archive_entry_pathname(entry), *want = x->o->only;

    if (!name || strcmp(name, want) != 0)
        return err_set(e, ERR_DATA_LOSS, "the box sent '%.200s', and '%.200s' was asked for",
                       name ? name : "", want);
    if (archive_entry_hardlink(entry) || entry_type(entry) != x->o->only_type)
        return err_set(e, ERR_DATA_LOSS, "the box sent '%.200s', but not as what it said it is",
                       want);
    return 0;
}

/* Puts the file in place after the archive has ended without an error; nothing changes before. */
static int make_only(struct extraction *x, struct err *e)
{
    struct archive_entry *entry;
    int r = next_entry(x, &entry, e);

    if (r == 0)
        return err_set(e, ERR_DATA_LOSS, "the box did not send '%.200s'", x->o->only);
    if (r > 0)
        r = check_only(x, entry, e);
    if (r == 0)
        r = x->o->only_type == S_IFLNK ? make_symlink(x, x->root, entry, e)
                                       : make_file(x, x->root, entry, e);
    if (r < 0)
        return r;
    r = next_entry(x, &entry, e);
    return r > 0 ? err_set(e, ERR_DATA_LOSS, "the box sent more than '%.200s'", x->o->only) : r;
}

static int extract_only(struct extraction *x, struct err *e)
{
    int r = make_only(x, e);

    if (r == 0)
        return put_in_place(x, x->root, x->o->only, e);
    (void)unlinkat(x->root, x->temp, 0);
    return r;
}

/* ---- the whole ---- */

/* Enables the requested filter only: some of libarchive's filters start programs. */
static int open_archive(struct extraction *x, int fd, struct err *e)
{
    x->a = archive_read_new();
    if (!x->a)
        return err_oom(e);
    if (x->o->is_zstd)
        (void)archive_read_support_filter_zstd(x->a);
    if (x->o->is_gzip)
        (void)archive_read_support_filter_gzip(x->a);
    (void)archive_read_support_format_tar(x->a);
    return archive_read_open_fd(x->a, fd, BLOCK_BYTES) == ARCHIVE_OK ? 0 : archive_fail(x, e);
}

int extract_stream(int fd, const struct extract_options *o, struct err *e)
{
    _cleanup_close_ int root = -1;
    struct extraction x = {.o = o, .temp = EXTRACT_TEMP_PREFIX};
    int r = archive_lib_load(e);

    if (r < 0)
        return r;
    x.root = root = open(o->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (root < 0)
        return err_sys(e, errno, "open '%s'", o->dir);
    r = io_random_hex(8, x.temp + strlen(x.temp), e);
    if (r == 0)
        r = open_archive(&x, fd, e);
    if (r == 0)
        r = o->only ? extract_only(&x, e) : extract_all(&x, e);
    if (x.a)
        (void)archive_read_free(x.a);
    free(x.made.v);
    return r;
}
