#include "dialect/e2b/entry.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/str.h"
#include "dialect/e2b/file_paths.h"
#include "dialect/e2b/meta.h"

#define PERMISSIONS_BYTES 24
#define NAME_BYTES 64
#define TIME_BYTES 64

json_t *entry_new_text(const char *s)
{
    _cleanup_free_ char *copy = NULL;

    if (str_is_utf8(s, strlen(s)))
        return json_string(s);
    copy = strdup(s);
    if (!copy)
        return NULL;
    str_make_utf8(copy);
    return json_string(copy);
}

/* The last element, as Go has it: trailing slashes do not count, but in "/". */
static json_t *new_name(const char *path)
{
    _cleanup_free_ char *copy = strdup(path);
    size_t n = copy ? strlen(copy) : 0;
    const char *slash;

    if (!copy)
        return NULL;
    while (n > 1 && copy[n - 1] == '/')
        copy[--n] = '\0';
    slash = strrchr(copy, '/');
    return entry_new_text(slash && slash[1] ? slash + 1 : copy);
}

static const char *type_of(mode_t mode)
{
    return S_ISREG(mode) ? "FILE_TYPE_FILE" : S_ISDIR(mode) ? "FILE_TYPE_DIRECTORY" : NULL;
}

/* "drwxr-xr-x", "Lrwxrwxrwx", "dtrwxrwxrwx": Go's letters. */
static void write_permissions(mode_t mode, char out[PERMISSIONS_BYTES])
{
    static const char bits[] = "rwxrwxrwx";
    char *p = out;

    if (S_ISDIR(mode))
        *p++ = 'd';
    if (S_ISLNK(mode))
        *p++ = 'L';
    if (S_ISBLK(mode) || S_ISCHR(mode))
        *p++ = 'D';
    if (S_ISFIFO(mode))
        *p++ = 'p';
    if (S_ISSOCK(mode))
        *p++ = 'S';
    if (mode & S_ISUID)
        *p++ = 'u';
    if (mode & S_ISGID)
        *p++ = 'g';
    if (S_ISCHR(mode))
        *p++ = 'c';
    if (mode & S_ISVTX)
        *p++ = 't';
    if (p == out)
        *p++ = '-';
    for (int i = 0; i < 9; i++)
        *p++ = mode & (1u << (8 - i)) ? bits[i] : '-';
    *p = '\0';
}

/* RFC 3339 with as many groups of three digits as are needed. */
static void write_time(const struct timespec *t, char out[TIME_BYTES])
{
    struct tm tm = {0};
    size_t n;

    (void)gmtime_r(&t->tv_sec, &tm);
    n = strftime(out, TIME_BYTES - 16, "%Y-%m-%dT%H:%M:%S", &tm);
    if (t->tv_nsec % 1000)
        (void)snprintf(out + n, TIME_BYTES - n, ".%09ldZ", t->tv_nsec);
    else if (t->tv_nsec % 1000000)
        (void)snprintf(out + n, TIME_BYTES - n, ".%06ldZ", t->tv_nsec / 1000);
    else if (t->tv_nsec)
        (void)snprintf(out + n, TIME_BYTES - n, ".%03ldZ", t->tv_nsec / 1000000);
    else
        (void)snprintf(out + n, TIME_BYTES - n, "Z");
}

/* A name, or the number as text. */
static json_t *new_owner(const char *name, unsigned id)
{
    char text[NAME_BYTES];

    (void)snprintf(text, sizeof(text), "%u", id);
    return entry_new_text(*name ? name : text);
}

struct seen {
    struct stat st;  /* of the entry itself */
    bool has_target; /* st is of a link that leads somewhere: */
    struct stat to;  /* there */
    char *target;    /* of a link: where it leads, or the link itself */
    json_t *metadata;
};

static void seen_done(struct seen *s)
{
    free(s->target);
    json_decref(s->metadata);
}

/* Where a link leads, through all others on the way. */
static int see_target(const struct fs_caller *c, const char *path, struct seen *s, struct err *e)
{
    _cleanup_close_ int fd = -1;
    char link[40], target[PATH_MAX];
    ssize_t n = -1;

    if (fs_open(c, path, O_PATH, 0, &fd, NULL) == 0 && fstat(fd, &s->to) == 0) {
        s->has_target = true;
        s->metadata = meta_read(fd);
        (void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
        n = readlink(link, target, sizeof(target) - 1);
    }
    s->target = n > 0 ? strndup(target, (size_t)n) : strdup(path);
    return s->target ? 0 : err_oom(e);
}

/* fd: the entry itself. */
static int entry_look(const struct fs_caller *c, int fd, const char *path, struct seen *s,
                      struct err *e)
{
    if (fstat(fd, &s->st) < 0)
        return fault_sys(e, ERR_INTERNAL, errno, "error getting file info: lstat %s", path);
    if (S_ISLNK(s->st.st_mode))
        return see_target(c, path, s, e);
    s->metadata = meta_read(fd);
    return 0;
}

/* Leaves out default values, as protobuf's JSON does. */
static int add_kind(json_t *entry, const struct seen *s)
{
    const struct stat *st = s->target ? &s->to : &s->st;
    const char *type = s->target && !s->has_target ? NULL : type_of(st->st_mode);
    unsigned mode = s->target && !s->has_target ? 0 : st->st_mode & 0777;
    char size[24];
    int r = 0;

    if (type)
        r |= json_object_set_new(entry, "type", json_string(type));
    if (mode)
        r |= json_object_set_new(entry, "mode", json_integer(mode));
    if (s->st.st_size) {
        (void)snprintf(size, sizeof(size), "%lld", (long long)s->st.st_size);
        r |= json_object_set_new(entry, "size", json_string(size));
    }
    if (s->target) {
        r |= json_object_set_new(entry, "symlinkTarget", entry_new_text(s->target));
        r |= json_object_set_new(entry, "isSymlink", json_true());
    }
    if (s->metadata)
        r |= json_object_set(entry, "metadata", s->metadata);
    return r;
}

static json_t *new_entry(const char *path, const struct seen *s, struct fs_owners *owners)
{
    char permissions[PERMISSIONS_BYTES], mtime[TIME_BYTES];
    json_t *entry;

    write_permissions(s->st.st_mode, permissions);
    write_time(&s->st.st_mtim, mtime);
    entry = json_pack("{s:o, s:o, s:s, s:o, s:o, s:s}", "name", new_name(path), "path",
                      entry_new_text(path), "permissions", permissions, "owner",
                      new_owner(fs_owners_user(owners, s->st.st_uid), s->st.st_uid), "group",
                      new_owner(fs_owners_group(owners, s->st.st_gid), s->st.st_gid),
                      "modifiedTime", mtime);
    if (entry && add_kind(entry, s) < 0) {
        json_decref(entry);
        return NULL;
    }
    return entry;
}

void entry_simplify(json_t *entry)
{
    const char *name;
    json_t *value;
    void *tmp;

    json_object_foreach_safe (entry, tmp, name, value)
        if (!str_eq(name, "name") && !str_eq(name, "type") && !str_eq(name, "path"))
            (void)json_object_del(entry, name);
}

static int not_opened(const char *path, const struct err *inner, struct err *e)
{
    if (inner->sys == ENOENT)
        return fault_sys(e, ERR_NOT_FOUND, ENOENT, "file not found: lstat %s", path);
    return fault_of(e, ERR_INTERNAL, inner, "error getting file info: lstat %s", path);
}

static int entry_tell(const struct fs_caller *c, int fd, const char *path, struct fs_owners *owners,
                      json_t **ret, struct err *e)
{
    struct seen s = {0};
    int r = entry_look(c, fd, path, &s, e);

    if (r == 0) {
        *ret = new_entry(path, &s, owners);
        r = *ret ? 0 : err_oom(e);
    }
    seen_done(&s);
    return r;
}

int entry_stat(const struct fs_caller *c, const char *path, struct fs_owners *owners, json_t **ret,
               struct err *e)
{
    _cleanup_close_ int fd = -1;
    struct err inner = {0};

    if (fs_open(c, path, O_PATH | O_NOFOLLOW, 0, &fd, &inner) < 0)
        return not_opened(path, &inner, e);
    return entry_tell(c, fd, path, owners, ret, e);
}

int entry_at(const struct fs_caller *c, int dirfd, const char *name, const char *path,
             struct fs_owners *owners, json_t **ret, struct err *e)
{
    _cleanup_close_ int fd = fs_openat_nofollow(dirfd, name, O_PATH);
    struct err inner = {0};

    if (fd < 0) {
        (void)err_sys(&inner, errno, "open");
        return not_opened(path, &inner, e);
    }
    return entry_tell(c, fd, path, owners, ret, e);
}
