#include "lib/extract.h"

#include <archive.h>
#include <archive_entry.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/io.h"

#include "common/banned.h"

#define BLOCK_BYTES (64 * 1024)
#define NAME_BYTES 4096
#define MODE_BITS 0777 /* no set-id, no sticky */

struct extraction {
    struct archive *a;
    int root; /* the directory */
    const char *prefix;
    uint64_t n_entries;
};

/* ---- names ---- */

/* "./a//b" -> components; refuses "..", absolute names and what is too long. */
static int check_name(const char *name, struct err *e)
{
    const char *p = name;

    if (name[0] == '/' || strlen(name) >= NAME_BYTES)
        return err_set(e, ERR_DENIED, "the archive has the name '%.200s'", name);
    while (*p) {
        size_t n = strcspn(p, "/");

        if (n == 2 && p[0] == '.' && p[1] == '.')
            return err_set(e, ERR_DENIED, "the archive has the name '%.200s'", name);
        p += n + strspn(p + n, "/");
    }
    return 0;
}

/* One component deeper, made when missing. A link is not followed: it is an error. */
static int enter(int dir, const char *name, int *ret, struct err *e)
{
    if (mkdirat(dir, name, 0755) < 0 && errno != EEXIST)
        return err_sys(e, errno, "make '%s'", name);
    *ret = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return *ret < 0 ? err_sys(e, errno, "open the directory '%s'", name) : 0;
}

/* The descriptor of the directory that the name is in, and its last component ("" for the root). */
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
            int r = enter(dir, last, &deeper, e);

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

static int archive_fail(struct extraction *x, struct err *e)
{
    const char *why = archive_error_string(x->a);

    return err_set(e, ERR_DATA_LOSS, "the archive: %s", why ? why : "it broke off");
}

static int copy_data(struct extraction *x, int fd, struct err *e)
{
    _cleanup_free_ char *data = malloc(BLOCK_BYTES);

    if (!data)
        return err_oom(e);
    for (;;) {
        la_ssize_t n = archive_read_data(x->a, data, BLOCK_BYTES);
        int r;

        if (n < 0)
            return archive_fail(x, e);
        if (n == 0)
            return 0;
        r = io_write_all(fd, data, (size_t)n, e);
        if (r < 0)
            return r;
    }
}

/* A file that is there is replaced, never written into: it may be a link, or have other names. */
static int put_file(struct extraction *x, int dir, const char *name, struct archive_entry *entry,
                    struct err *e)
{
    struct timespec times[2] = {
        {.tv_nsec = UTIME_OMIT},
        {.tv_sec = archive_entry_mtime(entry), .tv_nsec = archive_entry_mtime_nsec(entry)}};
    _cleanup_close_ int fd = -1;
    int r;

    if (unlinkat(dir, name, 0) < 0 && errno != ENOENT)
        return err_sys(e, errno, "replace '%s'", name);
    fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return err_sys(e, errno, "create '%s'", name);
    r = copy_data(x, fd, e);
    if (r < 0)
        return err_wrap(e, r, "'%s'", name);
    if (fchmod(fd, archive_entry_perm(entry) & MODE_BITS) < 0)
        return err_sys(e, errno, "set the mode of '%s'", name);
    (void)futimens(fd, times);
    return 0;
}

static int put_dir(int dir, const char *name, struct archive_entry *entry, struct err *e)
{
    _cleanup_close_ int fd = -1;
    int r;

    if (!*name)
        return 0;
    r = enter(dir, name, &fd, e);
    if (r == 0) /* the owner must be able to fill it */
        (void)fchmod(fd, (archive_entry_perm(entry) & MODE_BITS) | 0700);
    return r;
}

static int put_symlink(int dir, const char *name, struct archive_entry *entry, struct err *e)
{
    struct timespec times[2] = {
        {.tv_nsec = UTIME_OMIT},
        {.tv_sec = archive_entry_mtime(entry), .tv_nsec = archive_entry_mtime_nsec(entry)}};

    if (unlinkat(dir, name, 0) < 0 && errno != ENOENT)
        return err_sys(e, errno, "replace '%s'", name);
    if (symlinkat(archive_entry_symlink(entry), dir, name) < 0)
        return err_sys(e, errno, "link '%s'", name);
    (void)utimensat(dir, name, times, AT_SYMLINK_NOFOLLOW);
    return 0;
}

static int put_hardlink(struct extraction *x, int dir, const char *name, const char *target,
                        struct err *e)
{
    _cleanup_free_ char *full = NULL;
    _cleanup_close_ int from = -1;
    char last[NAME_BYTES];
    int r = check_name(target, e);

    if (r == 0 &&
        asprintf(&full, "%s%s%s", x->prefix ? x->prefix : "", x->prefix ? "/" : "", target) < 0) {
        full = NULL;
        r = err_oom(e);
    }
    if (r == 0)
        r = open_parent(x, full, &from, last, e);
    if (r < 0)
        return r;
    if (unlinkat(dir, name, 0) < 0 && errno != ENOENT)
        return err_sys(e, errno, "replace '%s'", name);
    return linkat(from, last, dir, name, 0) < 0 ? err_sys(e, errno, "link '%s'", name) : 0;
}

static int put_entry(struct extraction *x, struct archive_entry *entry, struct err *e)
{
    const char *name = archive_entry_pathname(entry);
    _cleanup_free_ char *full = NULL;
    _cleanup_close_ int dir = -1;
    char last[NAME_BYTES];
    int r;

    if (!name)
        return err_set(e, ERR_DATA_LOSS, "the archive has an entry without a name");
    r = check_name(name, e);
    if (r < 0)
        return r;
    if (asprintf(&full, "%s%s%s", x->prefix ? x->prefix : "", x->prefix ? "/" : "", name) < 0)
        return err_oom(e);
    if (strlen(full) >= NAME_BYTES)
        return err_set(e, ERR_INVALID, "the name '%.200s' is too long", full);
    r = open_parent(x, full, &dir, last, e);
    if (r < 0)
        return r;
    if (archive_entry_hardlink(entry))
        return put_hardlink(x, dir, last, archive_entry_hardlink(entry), e);
    switch (archive_entry_filetype(entry)) {
    case AE_IFDIR:
        return put_dir(dir, last, entry, e);
    case AE_IFREG:
        return put_file(x, dir, last, entry, e);
    case AE_IFLNK:
        return put_symlink(dir, last, entry, e);
    default: /* devices, FIFOs and sockets stay where they are */
        return 0;
    }
}

static int extract_all(struct extraction *x, struct err *e)
{
    struct archive_entry *entry;

    for (;;) {
        int la = archive_read_next_header(x->a, &entry);
        int r;

        if (la == ARCHIVE_EOF)
            return 0;
        if (la < ARCHIVE_WARN)
            return archive_fail(x, e);
        if (++x->n_entries > EXTRACT_MAX_ENTRIES)
            return err_set(e, ERR_EXHAUSTED, "the archive has too many entries");
        r = put_entry(x, entry, e);
        if (r < 0)
            return r;
    }
}

int extract_stream(int fd, const char *dir, const char *prefix, struct err *e)
{
    _cleanup_close_ int root = -1;
    struct extraction x = {.prefix = prefix};
    int r;

    root = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (root < 0)
        return err_sys(e, errno, "open '%s'", dir);
    x.root = root;
    x.a = archive_read_new();
    if (!x.a)
        return err_oom(e);
    (void)archive_read_support_filter_all(x.a);
    (void)archive_read_support_format_tar(x.a);
    r = archive_read_open_fd(x.a, fd, BLOCK_BYTES) == ARCHIVE_OK ? extract_all(&x, e)
                                                                 : archive_fail(&x, e);
    (void)archive_read_free(x.a);
    return r;
}
