#include "archive/stage.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "archive/extract.h"
#include "common/cleanup.h"
#include "common/path.h"
#include "common/str.h"
#include "common/user.h"
#include "event/pump.h"
#include "fs/root.h"
#include "fs/temp.h"

/* Mode bits that files made here do not get: the umask's, or a default ACL's. */
static mode_t find_lost_bits(int fd)
{
    char name[FS_TEMP_NAME_BYTES];
    mode_t lost = 0777;
    struct stat st;

    fs_temp_make_name(name);
    if (mkdirat(fd, name, 0777) < 0)
        return lost;
    if (fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0)
        lost = 0777 & ~st.st_mode;
    (void)unlinkat(fd, name, AT_REMOVEDIR);
    return lost;
}

int stage_init(struct stage *s, int fd, const struct stage_limits *limits,
               const struct archive_extract_options *o, struct err *e)
{
    *s = (struct stage){.fd = fd,
                        .limits = *limits,
                        .keep_owner = o->keep_owner,
                        .owner_names = o->owner_names,
                        .takes_removals = o->removals,
                        .removals_fd = -1,
                        .parent_fd = -1};
    s->lost_bits = find_lost_bits(fd);
    return fs_records_new(fd, NULL, &s->dirs, e);
}

void stage_done(struct stage *s)
{
    s->dirs = fs_records_free(s->dirs);
    free(s->parent);
    s->parent = NULL;
    fd_close(s->removals_fd);
    free(s->last_user.name);
    free(s->last_group.name);
    fd_close(s->parent_fd);
    s->parent_fd = -1;
}

/* ---- names ----------------------------------------------------------------------------------- */

static int check_component(const char *name, const char *p, size_t n, struct err *e)
{
    if (n == 2 && p[0] == '.' && p[1] == '.')
        return err_set(e, ERR_INVALID, "entry '%.200s' leaves the target by '..'", name);
    if (n > NAME_MAX)
        return err_set(e, ERR_INVALID, "entry '%.100s...' has a name of more than %d bytes", name,
                       NAME_MAX);
    if (fs_temp_is_name(p))
        return err_set(e, ERR_INVALID, "entry '%.200s' has a name that the agent keeps for itself",
                       name);
    return 0;
}

int stage_clean_name(const char *name, char **ret, struct err *e)
{
    _cleanup_free_ char *out = NULL;
    size_t len = 0;
    unsigned depth = 0;
    int r;

    if (name[0] == '/')
        return err_set(e, ERR_INVALID, "entry '%.200s' has an absolute name", name);
    if (strlen(name) > FS_PATH_MAX)
        return err_set(e, ERR_INVALID, "entry '%.100s...' has a name of more than %d bytes", name,
                       FS_PATH_MAX);
    out = malloc(strlen(name) + 1);
    if (!out)
        return err_oom(e);
    for (const char *p = name; *p;) {
        size_t n = strcspn(p, "/");

        if (n && !(n == 1 && p[0] == '.')) {
            r = check_component(name, p, n, e);
            if (r < 0)
                return r;
            if (++depth > ARCHIVE_MAX_DEPTH)
                return err_set(e, ERR_INVALID, "entry '%.100s...' is deeper than %d levels", name,
                               ARCHIVE_MAX_DEPTH);
            if (len)
                out[len++] = '/';
            (void)memcpy(out + len, p, n);
            len += n;
        }
        p += n + (p[n] == '/');
    }
    out[len] = '\0';
    *ret = TAKE(out);
    return 0;
}

/* libarchive converts names to the thread's character set and gives NULL for what it can't. */
static int entry_name(struct archive_entry *entry, char **ret, struct err *e)
{
    const char *name = archive_entry_pathname(entry);

    if (!name)
        name = archive_entry_pathname_utf8(entry);
    if (!name)
        return err_set(e, ERR_INVALID, "an entry has a name that can't be read");
    return stage_clean_name(name, ret, e);
}

/* ---- directories ----------------------------------------------------------------------------- */

/* The directory `dir` ("" for the staging directory) in s->parent_fd; made if it is missing. */
static int enter_parent(struct stage *s, const char *dir, struct err *e)
{
    bool is_below = s->parent && s->parent[0] && path_is_within(dir, s->parent);
    int fd, r;

    if (s->parent && strcmp(s->parent, dir) == 0)
        return 0;
    if (is_below)
        r = fs_open_below(s->parent_fd, dir + strlen(s->parent) + 1, true, &fd, e);
    else
        r = fs_open_below(s->fd, dir, true, &fd, e);
    if (r < 0)
        return err_wrap(e, r, "entry '%.200s'", dir);
    fd_close(s->parent_fd);
    s->parent_fd = fd;
    free(s->parent);
    s->parent = strdup(dir);
    return s->parent ? 0 : err_oom(e);
}

/* Enters the directory of a cleaned path; *ret_name points at its last component. */
static int enter_parent_of(struct stage *s, const char *path, const char **ret_name, struct err *e)
{
    _cleanup_free_ char *dir = fs_below_parent(path, ret_name);

    return dir ? enter_parent(s, dir, e) : err_oom(e);
}

static mode_t wanted_mode(const struct stage *s, struct archive_entry *entry)
{
    mode_t mode = archive_entry_perm(entry) & 07777;

    /* Set-id bits mean something only together with the owner they were given by. */
    return s->keep_owner ? mode : mode & ~(mode_t)(S_ISUID | S_ISGID);
}

/* The number that a name of the archive has here, looked up once for a run of entries. */
static unsigned owner_id(struct stage_owner *last, const char *name, la_int64_t number,
                         int (*find)(const char *name, unsigned *ret))
{
    if (!name || !name[0])
        return (unsigned)number;
    if (last->name && strcmp(last->name, name) == 0)
        return last->id;
    free(last->name);
    last->name = strdup(name);
    if (find(name, &last->id) < 0)
        last->id = (unsigned)number;
    return last->id;
}

static int find_user(const char *name, unsigned *ret)
{
    _cleanup_user_ struct user u = {0};
    int r = isdigit((unsigned char)name[0]) ? -ERR_NOT_FOUND : user_find(name, &u, NULL);

    if (r == 0)
        *ret = u.uid;
    return r;
}

static int find_group(const char *name, unsigned *ret)
{
    gid_t gid;
    int r = user_find_group(name, &gid, NULL);

    if (r == 0)
        *ret = gid;
    return r;
}

static uid_t wanted_uid(struct stage *s, struct archive_entry *entry)
{
    const char *name = s->owner_names ? archive_entry_uname(entry) : NULL;

    return owner_id(&s->last_user, name, archive_entry_uid(entry), find_user);
}

static gid_t wanted_gid(struct stage *s, struct archive_entry *entry)
{
    const char *name = s->owner_names ? archive_entry_gname(entry) : NULL;

    return owner_id(&s->last_group, name, archive_entry_gid(entry), find_group);
}

/* (id_t)-1 is "leave it" to the kernel, and what does not fit would be somebody else's. */
static int check_owner(const struct stage *s, struct archive_entry *entry, const char *path,
                       struct err *e)
{
    int64_t uid = archive_entry_uid(entry), gid = archive_entry_gid(entry);

    if (!s->keep_owner || (uid >= 0 && uid < UINT32_MAX && gid >= 0 && gid < UINT32_MAX))
        return 0;
    return err_set(e, ERR_INVALID, "entry '%.100s' has an owner that does not fit into 32 bits",
                   path);
}

static struct timespec wanted_mtime(struct archive_entry *entry)
{
    if (!archive_entry_mtime_is_set(entry))
        return (struct timespec){.tv_nsec = UTIME_NOW};
    return (struct timespec){.tv_sec = archive_entry_mtime(entry),
                             .tv_nsec = archive_entry_mtime_nsec(entry)};
}

static int set_xattrs(struct stage *s, int fd, struct archive_entry *entry, const char *path,
                      struct err *e)
{
    const char *name;
    const void *value;
    size_t size;

    (void)archive_entry_xattr_reset(entry);
    while (archive_entry_xattr_next(entry, &name, &value, &size) == ARCHIVE_OK) {
        bool is_wanted = str_has_prefix(name, "user.") ||
                         (s->keep_owner && strcmp(name, "security.capability") == 0);

        if (is_wanted && fsetxattr(fd, name, value, size, 0) == 0)
            continue;
        if (is_wanted && (errno == ENOSPC || errno == EDQUOT))
            return err_sys(e, errno, "set an attribute of '%s'", path);
        s->lost_xattrs++;
    }
    s->lost_xattrs += archive_entry_acl_types(entry) != 0;
    return 0;
}

static int stage_dir(struct stage *s, struct archive_entry *entry, const char *path, struct err *e)
{
    struct fs_record rec = {
        .has_owner = s->keep_owner,
        .mode = wanted_mode(s, entry),
        .uid = wanted_uid(s, entry),
        .gid = wanted_gid(s, entry),
        .mtime = wanted_mtime(entry),
    };
    _cleanup_close_ int fd = -1;
    int r;

    r = enter_parent(s, path, e);
    if (r < 0)
        return r;
    if (archive_entry_xattr_count(entry)) {
        fd = openat(s->parent_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        r = fd < 0 ? err_sys(e, errno, "open '%s'", path) : set_xattrs(s, fd, entry, path, e);
    }
    return r < 0 ? r : fs_records_add(s->dirs, &rec, path, e);
}

/* ---- files and links ------------------------------------------------------------------------- */

static int check_size(const struct stage *s, uint64_t more, const char *path, struct err *e)
{
    uint64_t packed = s->limits.packed ? pump_received(s->limits.packed) : UINT64_MAX;

    if (more > s->limits.max_bytes || s->bytes > s->limits.max_bytes - more)
        return err_sys(e, EFBIG, "with '%.200s' there would be more than %llu bytes", path,
                       (unsigned long long)s->limits.max_bytes);
    if (s->bytes > ARCHIVE_RATIO_FROM && s->bytes / ARCHIVE_MAX_RATIO > packed)
        return err_sys(e, EFBIG, "'%.200s' unpacks to more than %d times its packed size", path,
                       ARCHIVE_MAX_RATIO);
    return 0;
}

static int stage_damaged(struct archive *a, const char *path, struct err *e)
{
    const char *why = archive_error_string(a);

    return err_set(e, ERR_INVALID, "entry '%.200s' is damaged or cut short: %.200s", path,
                   why ? why : "bad data");
}

static int write_at(int fd, const char *data, size_t len, off_t at, const char *path, struct err *e)
{
    while (len) {
        ssize_t n = pwrite(fd, data, len, at);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_sys(e, errno, "write '%s'", path);
        data += n;
        at += n;
        len -= (size_t)n;
    }
    return 0;
}

/* Keeps holes: only blocks that libarchive returns are written. */
static int write_content(struct stage *s, struct archive *a, int fd, int64_t size, const char *path,
                         struct err *e)
{
    const void *data;
    la_int64_t at;
    off_t end = 0;
    size_t n;
    int r;

    for (;;) {
        int got = archive_read_data_block(a, &data, &n, &at);

        if (got == ARCHIVE_EOF)
            break;
        if (got != ARCHIVE_OK)
            return stage_damaged(a, path, e);
        r = check_size(s, n, path, e);
        if (r == 0)
            r = write_at(fd, data, n, at, path, e);
        if (r < 0)
            return r;
        s->bytes += n;
        if (at + (off_t)n > end)
            end = at + (off_t)n;
    }
    if (size >= 0 && end > size)
        return err_set(e, ERR_INVALID, "entry '%.200s' has more bytes than it announced", path);
    if (size > end && ftruncate(fd, size) < 0)
        return err_sys(e, errno, "set the size of '%s'", path);
    return 0;
}

/* As in tar, a later entry replaces an earlier one of the same name, but never a directory. */
static int clear_name(struct stage *s, const char *name, const char *path, struct err *e)
{
    if (unlinkat(s->parent_fd, name, 0) == 0 || errno == ENOENT)
        return 0;
    if (errno == EISDIR || errno == EPERM)
        return err_set(e, ERR_INVALID, "entry '%.200s' is a directory, and then it is not", path);
    return err_sys(e, errno, "remove '%s'", path);
}

static int open_new(struct stage *s, const char *name, const char *path, mode_t mode, int *ret_fd,
                    struct err *e)
{
    int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
    int fd = openat(s->parent_fd, name, flags, mode);
    int r;

    if (fd < 0 && errno == EEXIST) {
        r = clear_name(s, name, path, e);
        if (r < 0)
            return r;
        fd = openat(s->parent_fd, name, flags, mode);
    }
    if (fd < 0)
        return err_sys(e, errno, "create '%s'", path);
    *ret_fd = fd;
    return 0;
}

static int stage_file(struct stage *s, struct archive *a, struct archive_entry *entry,
                      const char *path, const char *name, struct err *e)
{
    int64_t size = archive_entry_size_is_set(entry) ? archive_entry_size(entry) : -1;
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, wanted_mtime(entry)};
    mode_t mode = wanted_mode(s, entry);
    /* A mode that it can be made with needs no call of its own; the staging directory is 0700. */
    bool is_plain = !(mode & (s->lost_bits | 07000)) && mode & S_IWUSR && !s->keep_owner;
    _cleanup_close_ int fd = -1;
    int r;

    if (size > 0 && (uint64_t)size > s->limits.max_bytes)
        return err_sys(e, EFBIG, "entry '%.200s' has %lld bytes", path, (long long)size);
    r = open_new(s, name, path, is_plain ? mode : 0600, &fd, e);
    if (r == 0)
        r = write_content(s, a, fd, size, path, e);
    if (r < 0)
        return r;
    if (s->keep_owner && fchown(fd, wanted_uid(s, entry), wanted_gid(s, entry)) < 0)
        return err_sys(e, errno, "chown '%s'", path);
    r = set_xattrs(s, fd, entry, path, e);
    if (r < 0)
        return r;
    if (!is_plain && fchmod(fd, mode) < 0)
        return err_sys(e, errno, "chmod '%s'", path);
    if (futimens(fd, times) < 0)
        return err_sys(e, errno, "set the time of '%s'", path);
    return 0;
}

/* Owner and time of links and FIFOs, which can't be opened. */
static int finish_by_name(struct stage *s, struct archive_entry *entry, const char *path,
                          const char *name, struct err *e)
{
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, wanted_mtime(entry)};

    if (s->keep_owner && fchownat(s->parent_fd, name, wanted_uid(s, entry), wanted_gid(s, entry),
                                  AT_SYMLINK_NOFOLLOW) < 0)
        return err_sys(e, errno, "chown '%s'", path);
    if (utimensat(s->parent_fd, name, times, AT_SYMLINK_NOFOLLOW) < 0)
        return err_sys(e, errno, "set the time of '%s'", path);
    return 0;
}

static int stage_symlink(struct stage *s, struct archive_entry *entry, const char *path,
                         const char *name, struct err *e)
{
    const char *target = archive_entry_symlink(entry);
    int r;

    if (!target)
        target = archive_entry_symlink_utf8(entry);
    if (!target || !target[0] || strlen(target) >= PATH_MAX)
        return err_set(e, ERR_INVALID, "link '%.200s' has no target or one that is too long", path);
    r = clear_name(s, name, path, e);
    if (r < 0)
        return r;
    if (symlinkat(target, s->parent_fd, name) < 0)
        return err_sys(e, errno, "link '%s'", path);
    return finish_by_name(s, entry, path, name, e);
}

static int stage_fifo(struct stage *s, struct archive_entry *entry, const char *path,
                      const char *name, struct err *e)
{
    int r = clear_name(s, name, path, e);

    if (r < 0)
        return r;
    if (mkfifoat(s->parent_fd, name, 0600) < 0 ||
        fchmodat(s->parent_fd, name, wanted_mode(s, entry), 0) < 0)
        return err_sys(e, errno, "make the FIFO '%s'", path);
    return finish_by_name(s, entry, path, name, e);
}

static int stage_hardlink(struct stage *s, const char *target, const char *path, struct err *e)
{
    _cleanup_free_ char *from = NULL;
    _cleanup_close_ int from_fd = -1;
    const char *from_name, *name;
    int r;

    r = stage_clean_name(target, &from, e);
    if (r == 0)
        r = enter_parent_of(s, from, &from_name, e);
    if (r < 0)
        return r;
    if (strcmp(from, path) == 0)
        return err_set(e, ERR_INVALID, "entry '%.200s' is a hard link to itself", path);
    from_fd = fcntl(s->parent_fd, F_DUPFD_CLOEXEC, 3);
    if (from_fd < 0)
        return err_sys(e, errno, "link '%s'", path);
    r = enter_parent_of(s, path, &name, e);
    if (r == 0)
        r = clear_name(s, name, path, e);
    if (r < 0)
        return r;
    if (linkat(from_fd, from_name, s->parent_fd, name, 0) == 0)
        return 0;
    if (errno == ENOENT)
        return err_set(e, ERR_INVALID,
                       "'%.100s' is a hard link to '%.100s', which the archive "
                       "does not have before it",
                       path, from);
    return err_sys(e, errno, "link '%s'", path);
}

static int stage_other(struct stage *s, struct archive *a, struct archive_entry *entry,
                       const char *path, struct err *e)
{
    const char *name;
    int r;

    if (!path[0])
        return err_set(e, ERR_INVALID, "an entry that is not a directory has no name");
    r = enter_parent_of(s, path, &name, e);
    if (r < 0)
        return r;
    switch (archive_entry_filetype(entry)) {
    case AE_IFREG:
        return stage_file(s, a, entry, path, name, e);
    case AE_IFLNK:
        return stage_symlink(s, entry, path, name, e);
    case AE_IFIFO:
        return stage_fifo(s, entry, path, name, e);
    default:
        return err_set(e, ERR_INVALID, "entry '%.200s' is a device node or a socket", path);
    }
}

/* ---- removals -------------------------------------------------------------------------------- */

static bool is_removals(const struct stage *s, struct archive_entry *entry)
{
    const char *name = archive_entry_pathname(entry);

    return s->takes_removals && name && strcmp(name, ARCHIVE_REMOVALS_NAME) == 0 &&
           archive_entry_filetype(entry) == AE_IFREG && !archive_entry_hardlink(entry);
}

static int stage_removals(struct stage *s, struct archive *a, struct archive_entry *entry,
                          struct err *e)
{
    int64_t size = archive_entry_size(entry);
    struct fs_temp t;

    if (s->removals_fd >= 0)
        return err_set(e, ERR_INVALID, "the archive has two lists of what to remove");
    if (size > ARCHIVE_MAX_REMOVALS_BYTES)
        return err_sys(e, EFBIG, "the list of what to remove has %lld bytes", (long long)size);
    if (fs_temp_open(s->fd, &t) < 0)
        return err_sys(e, errno, "make a list beside the staged files");
    if (t.name[0])
        (void)unlinkat(s->fd, t.name, 0);
    s->removals_fd = t.fd;
    return write_content(s, a, t.fd, size, ARCHIVE_REMOVALS_NAME, e);
}

int stage_removals_open(const struct stage *s, struct stage_removals *ret, struct err *e)
{
    int fd = s->removals_fd < 0 ? -1 : fcntl(s->removals_fd, F_DUPFD_CLOEXEC, 3);

    *ret = (struct stage_removals){0};
    if (s->removals_fd < 0)
        return 0;
    if (fd < 0 || lseek(fd, 0, SEEK_SET) < 0 || !(ret->file = fdopen(fd, "r"))) {
        int sys = errno;

        fd_close(fd);
        return err_sys(e, sys, "read the list of what to remove");
    }
    return 0;
}

int stage_removals_next(struct stage_removals *l, char **ret_path, struct err *e)
{
    _cleanup_free_ char *clean = NULL;
    char *path = NULL;
    ssize_t n = l->file ? getdelim(&l->line, &l->cap, '\0', l->file) : -1;
    int r;

    if (n < 0)
        return l->file && ferror(l->file) ? err_sys(e, errno, "read the list of what to remove")
                                          : 0;
    r = stage_clean_name(l->line, &clean, e);
    if (r < 0)
        return r;
    if (!clean[0])
        return err_set(e, ERR_INVALID, "the list of what to remove names the target itself");
    if (asprintf(&path, "%s%s", clean, str_has_suffix(l->line, "/") ? "/" : "") < 0)
        return err_oom(e);
    *ret_path = path;
    return 1;
}

void stage_removals_done(struct stage_removals *l)
{
    if (l->file)
        (void)fclose(l->file);
    free(l->line);
}

int stage_entry(struct stage *s, struct archive *a, struct archive_entry *entry, struct err *e)
{
    _cleanup_free_ char *path = NULL;
    const char *hardlink;
    int r;

    if (is_removals(s, entry))
        return stage_removals(s, a, entry, e);
    r = entry_name(entry, &path, e);
    if (r < 0)
        return r;
    if (++s->entries > s->limits.max_entries)
        return err_sys(e, EFBIG, "the archive has more than %llu entries",
                       (unsigned long long)s->limits.max_entries);
    r = check_owner(s, entry, path, e);
    if (r < 0)
        return r;
    hardlink = archive_entry_hardlink(entry);
    if (!hardlink)
        hardlink = archive_entry_hardlink_utf8(entry);
    if (hardlink)
        return path[0] ? stage_hardlink(s, hardlink, path, e)
                       : err_set(e, ERR_INVALID, "a hard link has no name");
    if (archive_entry_filetype(entry) == AE_IFDIR)
        return stage_dir(s, entry, path, e);
    return stage_other(s, a, entry, path, e);
}
