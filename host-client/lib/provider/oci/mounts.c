#include "lib/provider/oci/mounts.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/io.h"
#include "common/path.h"
#include "common/str.h"
#include "lib/provider/oci/idmap.h"

/* <sys/mount.h> and <linux/mount.h> cannot both be included with glibc 2.36. */
#define MS_NOSUID_ 2ul
#define MS_NODEV_ 4ul
#define MS_NOATIME_ 1024ul
#define MS_REC_PRIVATE_ (16384ul | (1ul << 18))
#define MNT_DETACH_ 2
int mount(const char *source, const char *target, const char *type, unsigned long flags,
          const void *data);
int umount2(const char *target, int flags);

#define MOUNTINFO_MAX_BYTES ((size_t)4 << 20)

const char *oci_stage_root(const char *box_dir, const char *runtime_path)
{
    static const char *const candidates[] = {"/mnt", "/media", "/srv", "/opt", "/var/tmp"};
    struct stat st;

    for (size_t i = 0; i < N_ELEMENTS(candidates); i++)
        if (lstat(candidates[i], &st) == 0 && S_ISDIR(st.st_mode) &&
            !path_is_within(box_dir, candidates[i]) && !path_is_within(runtime_path, candidates[i]))
            return candidates[i];
    return "/tmp";
}

int oci_stage_bind(struct oci_stage *s, const struct oci_bind *bind, struct err *e)
{
    if (s->n_binds == OCI_MAX_BINDS)
        return err_set(e, ERR_INTERNAL, "too many mounts for a box");
    s->binds[s->n_binds++] = *bind;
    return 0;
}

static void stage_path(const struct oci_stage *s, const char *name, char out[OCI_STAGE_PATH_BYTES])
{
    (void)snprintf(out, OCI_STAGE_PATH_BYTES, "%s/%s", s->root, name);
}

/* Attaches a detached mount at <stage>/name. */
static int attach_mount(const struct oci_stage *s, const char *name, bool is_dir, int fd,
                        struct err *e)
{
    char path[OCI_STAGE_PATH_BYTES];
    int made;

    stage_path(s, name, path);
    made = is_dir ? mkdir(path, 0755) : open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (made < 0)
        return err_sys(e, errno, "create '%s'", path);
    if (!is_dir)
        fd_close(made);
    if (syscall(SYS_move_mount, fd, "", AT_FDCWD, path, MOVE_MOUNT_F_EMPTY_PATH) < 0)
        return err_sys(e, errno, "move_mount '%s'", path);
    return 0;
}

static int mount_overlay(const struct oci_stage *s, struct err *e)
{
    char path[OCI_STAGE_PATH_BYTES], options[4 * OCI_STAGE_PATH_BYTES];

    stage_path(s, "rootfs", path);
    (void)snprintf(options, sizeof(options),
                   "lowerdir=%s/lower,upperdir=%s/disk/upper,workdir=%s/disk/work", s->root,
                   s->root, s->root);
    if (mkdir(path, 0755) < 0)
        return err_sys(e, errno, "mkdir '%s'", path);
    if (mount("overlay", path, "overlay", MS_NODEV_ | MS_NOATIME_, options) < 0)
        return err_sys(e, errno, "mount the overlay of '%s' and '%s'", s->lower, s->disk);
    return 0;
}

struct fds {
    int lower;
    int disk;
    int binds[OCI_MAX_BINDS];
};

/* Makes all clones before the stage covers a directory that they may come from. */
static int open_all(const struct oci_stage *s, struct fds *fds, struct err *e)
{
    int r = 0;

    if (s->lower)
        r = oci_mount_clone(s->lower, true, s->userns_fd, &fds->lower, e);
    if (r == 0)
        r = oci_mount_clone(s->disk, false, -1, &fds->disk, e);
    for (size_t i = 0; r == 0 && i < s->n_binds; i++)
        r = oci_mount_clone(s->binds[i].source, s->binds[i].readonly,
                            s->binds[i].idmap ? s->userns_fd : -1, &fds->binds[i], e);
    return r;
}

static int attach_all(const struct oci_stage *s, const struct fds *fds, struct err *e)
{
    int r = 0;

    if (s->lower)
        r = attach_mount(s, "lower", true, fds->lower, e);
    if (r == 0)
        r = attach_mount(s, s->lower ? "disk" : "rootfs", true, fds->disk, e);
    for (size_t i = 0; r == 0 && i < s->n_binds; i++)
        r = attach_mount(s, s->binds[i].name, s->binds[i].is_dir, fds->binds[i], e);
    if (r == 0 && s->lower)
        r = mount_overlay(s, e);
    return r;
}

/* The descriptors are O_CLOEXEC, and the process either execs or exits. */
int oci_stage_enter(void *arg, struct err *e)
{
    const struct oci_stage *s = arg;
    struct fds fds;
    int r;

    if (unshare(CLONE_NEWNS) < 0)
        return err_sys(e, errno, "unshare the mount namespace");
    if (mount("none", "/", NULL, MS_REC_PRIVATE_, NULL) < 0)
        return err_sys(e, errno, "make the mounts private");
    r = open_all(s, &fds, e);
    if (r < 0)
        return r;
    if (mount("tmpfs", s->root, "tmpfs", MS_NODEV_ | MS_NOSUID_, "mode=755,size=1m") < 0)
        return err_sys(e, errno, "mount a tmpfs on '%s'", s->root);
    return attach_all(s, &fds, e);
}

/* mountinfo writes space, tab, line feed and backslash as \ooo. */
static void mountinfo_unescape(char *s)
{
    char *out = s;

    for (; *s; s++) {
        if (s[0] == '\\' && s[1] && s[2] && s[3]) {
            *out++ = (char)((s[1] - '0') << 6 | (s[2] - '0') << 3 | (s[3] - '0'));
            s += 3;
        } else {
            *out++ = *s;
        }
    }
    *out = '\0';
}

/* ---- sealing ---- */

static int seal_one(const struct oci_proc *p, const char *mount_point, int ns, struct err *e)
{
    struct mount_attr attr = {.attr_set = MOUNT_ATTR_RDONLY};
    _cleanup_free_ char *path = NULL;
    _cleanup_close_ int fd = -1;

    if (asprintf(&path, "/proc/%d/root%s", (int)p->pid, mount_point) < 0)
        return err_oom(e);
    fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return err_sys(e, errno, "open '%s'", path);
    /* It is still alive, so both descriptors are its own and not those of a process that reused
     * its pid. */
    if (!oci_proc_is_alive(p))
        return err_set(e, ERR_UNAVAILABLE, "process %d ended", (int)p->pid);
    if (setns(ns, CLONE_NEWNS) < 0)
        return err_sys(e, errno, "enter the mount namespace of process %d", (int)p->pid);
    if (syscall(SYS_mount_setattr, fd, "", AT_EMPTY_PATH, &attr, sizeof(attr)) < 0)
        return err_sys(e, errno, "make '%s' read-only", path);
    return 0;
}

/* Runs in a process of its own: the mount namespace belongs to all threads. */
static int seal_child(const struct oci_proc *p, const char *target, struct err *e)
{
    _cleanup_free_ char *text = NULL;
    char ns_path[48], info_path[48];
    char *save = NULL;
    int ns, r;

    (void)snprintf(ns_path, sizeof(ns_path), "/proc/%d/ns/mnt", (int)p->pid);
    (void)snprintf(info_path, sizeof(info_path), "/proc/%d/mountinfo", (int)p->pid);
    ns = open(ns_path, O_RDONLY | O_CLOEXEC);
    if (ns < 0)
        return err_sys(e, errno, "open '%s'", ns_path);
    r = io_read_file(AT_FDCWD, info_path, MOUNTINFO_MAX_BYTES, &text, NULL, e);
    if (r < 0)
        return r;
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        char path[4096];

        if (sscanf(line, "%*s %*s %*s %*s %4095s", path) != 1)
            continue;
        mountinfo_unescape(path);
        if (str_has_suffix(path, target))
            return seal_one(p, path, ns, e);
    }
    return err_set(e, ERR_INTERNAL, "process %d has nothing mounted at '%s'", (int)p->pid, target);
}

int oci_mounts_seal(const struct oci_proc *p, const char *target, struct err *e)
{
    struct err why = {0};
    int status[2], r;
    size_t n = 0;
    pid_t child;

    if (pipe2(status, O_CLOEXEC) < 0)
        return err_sys(e, errno, "pipe");
    child = fork();
    if (child == 0) {
        (void)seal_child(p, target, &why);
        (void)!write(status[1], &why, sizeof(why));
        _exit(0);
    }
    fd_close(status[1]);
    r = child < 0 ? err_sys(e, errno, "fork") : io_read_full(status[0], &why, sizeof(why), &n, e);
    fd_close(status[0]);
    if (child > 0)
        (void)waitpid(child, NULL, 0);
    if (r == 0 && n < sizeof(why))
        return err_set(e, ERR_INTERNAL, "the process that makes '%s' read-only died", target);
    if (r == 0 && why.code) {
        if (e)
            *e = why;
        return -why.code;
    }
    return r;
}

int oci_mounts_undo(const char *dir, struct err *e)
{
    _cleanup_free_ char *text = NULL;
    char *save = NULL;
    int r;

    r = io_read_file(AT_FDCWD, "/proc/self/mountinfo", MOUNTINFO_MAX_BYTES, &text, NULL, e);
    if (r < 0)
        return r;
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        char path[4096];

        if (sscanf(line, "%*s %*s %*s %*s %4095s", path) != 1)
            continue;
        mountinfo_unescape(path);
        if (path_is_within(path, dir) && umount2(path, MNT_DETACH_) < 0 && errno != EINVAL)
            r = err_sys(e, errno, "umount '%s'", path);
    }
    return r;
}
