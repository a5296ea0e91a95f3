#include "lib/provider/oci/rootfs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/io.h"
#include "common/path.h"
#include "common/str.h"
#include "lib/util/beneath.h"
#include "lib/util/dirtree.h"
#include "lib/provider/oci/quota.h"

#define PASSWD_MAX_BYTES ((size_t)1 << 20)
#define FIRST_USER_ID 1000u
#define DEST_MAX_PARTS 32

/* ---- the project's directory ---- */

int oci_rootfs_check_dest(const char *dest, struct err *e)
{
    static const char *const refused[] = {"/proc", "/sys", "/dev",         OCI_BOX_RUN,
                                          "/etc",  "/usr", "/run/bellhopd"};
    _cleanup_free_ char *clean = path_clean(dest);

    if (!clean)
        return err_oom(e);
    if (clean[0] != '/' || clean[1] == '\0')
        return err_field(e, ERR_INVALID, "dest", "dest must be an absolute path below '/'");
    for (size_t i = 0; i < N_ELEMENTS(refused); i++)
        if (path_is_within(clean, refused[i]))
            return err_field(e, ERR_INVALID, "dest", "dest '%s' lies within '%s'", clean,
                             refused[i]);
    return 0;
}

struct layer {
    int lower; /* parent directories of the path being made; lower is -1 past its end */
    int upper;
    const struct oci_disk *disk;
};

static void layer_done(struct layer *l)
{
    fd_close(l->lower);
    fd_close(l->upper);
}

/* Enters one component. The directory of the upper layer gets mode and owner of the lower
 * one's, or the given ones if there is none. A link is not followed: its target is the box's
 * affair. */
static int layer_enter(struct layer *l, const char *name, uint32_t uid, uint32_t gid, struct err *e)
{
    struct stat st = {.st_mode = 0755, .st_uid = uid, .st_gid = gid};
    int lower = -1, upper;

    if (l->lower >= 0)
        lower = openat(l->lower, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (l->lower >= 0 && lower < 0 && errno != ENOENT)
        return err_field(e, ERR_INVALID, "dest", "'%s' is not a directory in the image", name);
    if (lower >= 0 && fstat(lower, &st) < 0) {
        fd_close(lower);
        return err_sys(e, errno, "stat '%s'", name);
    }
    fd_close(l->lower);
    l->lower = lower;
    if (mkdirat(l->upper, name, 0700) < 0 && errno != EEXIST)
        return err_sys(e, errno, "mkdir '%s'", name);
    upper = openat(l->upper, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (upper < 0)
        return err_sys(e, errno, "open '%s'", name);
    fd_close(l->upper);
    l->upper = upper;
    if (fchown(upper, l->disk->base + st.st_uid, l->disk->base + st.st_gid) < 0 ||
        fchmod(upper, st.st_mode & 07777) < 0)
        return err_sys(e, errno, "own '%s'", name);
    return 0;
}

static int layer_open(const char *lower, const char *upper, const struct oci_disk *disk,
                      struct layer *ret, struct err *e)
{
    ret->disk = disk;
    ret->lower = open(lower, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (ret->lower < 0)
        return err_sys(e, errno, "open the image '%s'", lower);
    ret->upper = open(upper, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (ret->upper < 0)
        return err_sys(e, errno, "open '%s'", upper);
    return 0;
}

/* Makes every missing component; a new last one belongs to the user. */
static int layer_make(struct layer *l, const char *path, struct err *e)
{
    _cleanup_free_ char *copy = path_clean(path);
    char *save = NULL, *part;
    int n = 0, r = 0;

    if (!copy)
        return err_oom(e);
    for (part = strtok_r(copy, "/", &save); part && r == 0;) {
        char *next = strtok_r(NULL, "/", &save);

        if (++n > DEST_MAX_PARTS)
            return err_field(e, ERR_INVALID, "dest", "dest has more than %d parts", DEST_MAX_PARTS);
        r = layer_enter(l, part, next ? 0 : l->disk->uid, next ? 0 : l->disk->gid, e);
        part = next;
    }
    return r;
}

static int make_dir(const char *lower, const char *upper, const char *path,
                    const struct oci_disk *disk, struct err *e)
{
    struct layer l = {-1, -1, NULL};
    int r;

    r = layer_open(lower, upper, disk, &l, e);
    if (r == 0)
        r = layer_make(&l, path, e);
    layer_done(&l);
    return r;
}

/* ---- the user ---- */

/* "name:x:uid:gid:..." */
static bool parse_passwd_line(const char *line, const char *name, uint32_t *ret_uid,
                              uint32_t *ret_gid)
{
    size_t n = strlen(name);
    unsigned uid, gid;

    if (strncmp(line, name, n) != 0 || line[n] != ':' ||
        sscanf(line + n + 1, "%*[^:]:%u:%u:", &uid, &gid) != 2)
        return false;
    *ret_uid = uid;
    *ret_gid = gid;
    return uid < OCI_RANGE && gid < OCI_RANGE;
}

static bool find_user(const char *passwd, struct oci_disk *disk)
{
    for (const char *p = passwd; p && *p; p = strchr(p, '\n')) {
        if (*p == '\n')
            p++;
        if (parse_passwd_line(p, disk->user, &disk->uid, &disk->gid))
            return true;
    }
    return false;
}

static bool uid_is_taken(const char *passwd, uint32_t uid)
{
    for (const char *p = passwd; p && *p; p = strchr(p, '\n')) {
        unsigned id;

        if (*p == '\n')
            p++;
        if (sscanf(p, "%*[^:]:%*[^:]:%u:", &id) == 1 && id == uid)
            return true;
    }
    return false;
}

/* Reads a file of the image; NULL: there is none. Follows no link: it would lead into the
 * host's own root. */
static char *read_lower(const char *lower, const char *name)
{
    _cleanup_close_ int fd = open(lower, O_PATH | O_DIRECTORY | O_CLOEXEC);
    char *text = NULL;

    if (fd >= 0)
        (void)beneath_read_file(fd, name, PASSWD_MAX_BYTES, &text, NULL, NULL);
    return text;
}

/* Writes the lower layer's file (or nothing) plus one line to the upper layer. */
static int append_line(const char *lower, const char *upper, const char *name, const char *line,
                       const struct oci_disk *disk, struct err *e)
{
    _cleanup_free_ char *to = path_join(upper, name);
    _cleanup_free_ char *old = read_lower(lower, name);
    _cleanup_free_ char *text = NULL;
    int n, r;

    if (!to)
        return err_oom(e);
    n = asprintf(&text, "%s%s", old ? old : "", line);
    if (n < 0)
        return err_oom(e);
    r = io_write_file(AT_FDCWD, to, text, (size_t)n, 0644, false, e);
    if (r == 0 && chown(to, disk->base, disk->base) < 0)
        r = err_sys(e, errno, "chown '%s'", to);
    return r;
}

/* Adds the user to an image that lacks it. */
static int add_user(const char *lower, const char *upper, const char *passwd, struct oci_disk *disk,
                    struct err *e)
{
    _cleanup_free_ char *home = NULL;
    char line[160];
    int r;

    if (asprintf(&home, "/home/%s", disk->user) < 0)
        return err_oom(e);
    disk->uid = FIRST_USER_ID;
    while (uid_is_taken(passwd, disk->uid))
        disk->uid++;
    disk->gid = disk->uid;
    r = make_dir(lower, upper, "/etc", &(struct oci_disk){.base = disk->base}, e);
    if (r < 0)
        return r;
    (void)snprintf(line, sizeof(line), "%s:x:%u:%u::%s:/bin/sh\n", disk->user, disk->uid, disk->gid,
                   home);
    r = append_line(lower, upper, "etc/passwd", line, disk, e);
    if (r < 0)
        return r;
    (void)snprintf(line, sizeof(line), "%s:x:%u:\n", disk->user, disk->gid);
    r = append_line(lower, upper, "etc/group", line, disk, e);
    if (r < 0)
        return r;
    return make_dir(lower, upper, home, disk, e);
}

static int settle_user(const char *lower, const char *upper, struct oci_disk *disk, struct err *e)
{
    _cleanup_free_ char *passwd = read_lower(lower, "etc/passwd");

    if (find_user(passwd, disk))
        return 0;
    return add_user(lower, upper, passwd ? passwd : "", disk, e);
}

static int make_owned_dir(const char *path, mode_t mode, uint32_t id, struct err *e)
{
    if (mkdir(path, mode) < 0 && errno != EEXIST)
        return err_sys(e, errno, "mkdir '%s'", path);
    if (chown(path, id, id) < 0 || chmod(path, mode) < 0)
        return err_sys(e, errno, "own '%s'", path);
    return 0;
}

int oci_rootfs_prepare(const struct provider_box *b, const char *lower, struct oci_disk *disk,
                       struct err *e)
{
    _cleanup_free_ char *top = oci_path(b, "oci/disk");
    _cleanup_free_ char *upper = oci_path(b, "oci/disk/upper");
    _cleanup_free_ char *work = oci_path(b, "oci/disk/work");
    int r;

    if (!top || !upper || !work)
        return err_oom(e);
    r = dirtree_remove(top, e);
    if (r == 0)
        r = io_mkdir_p(top, 0700, e);
    if (r == 0) /* before the first file: older files would not count */
        r = oci_quota_set(top, disk->base, b->spec->disk_bytes, e);
    if (r >= 0)
        r = make_owned_dir(upper, 0755, disk->base, e);
    if (r == 0)
        r = make_owned_dir(work, 0755, disk->base, e);
    (void)snprintf(disk->user, sizeof(disk->user), "%s", b->user);
    if (r == 0)
        r = settle_user(lower, upper, disk, e);
    if (r == 0)
        r = make_dir(lower, upper, b->spec->dest, disk, e);
    return r;
}
