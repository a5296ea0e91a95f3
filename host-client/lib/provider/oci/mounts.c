#include "lib/provider/oci/mounts.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/io.h"
#include "common/path.h"
#include "common/str.h"
#include "lib/provider/layer_store.h"
#include "lib/provider/oci/rootfs.h"

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
#define MOUNT_POINT_BYTES 4096
#define SNAP_NAME "snap-%zu"

/* ---- the ids: ranges, user namespaces, mounts that map them ---- */

#define ID_BYTES 64
#define SLOT_NAME_BYTES 16

/* FNV-1a: spreads boxes over the slots, so that two state directories rarely collide. */
static uint32_t hash_id(const char *s)
{
    uint32_t h = 2166136261u;

    for (; *s; s++)
        h = (h ^ (unsigned char)*s) * 16777619u;
    return h;
}

static int open_claims(const struct provider_box *b, int *ret_fd, struct err *e)
{
    _cleanup_free_ char *dir = NULL;
    _cleanup_close_ int fd = -1;
    int r;

    if (asprintf(&dir, "%s/userns", b->ctx->state_dir) < 0)
        return err_oom(e);
    r = io_mkdir_p(dir, 0700, e);
    if (r < 0)
        return r;
    fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || flock(fd, LOCK_EX) < 0)
        return err_sys(e, errno, "lock '%s'", dir);
    *ret_fd = TAKE_FD(fd);
    return 0;
}

static void slot_name(uint32_t slot, char out[SLOT_NAME_BYTES])
{
    (void)snprintf(out, SLOT_NAME_BYTES, "%u", slot);
}

/* Is the slot free, or the box's own? A claim of a box whose directory is gone counts as free. */
static bool slot_is_usable(const struct provider_box *b, int claims, uint32_t slot, bool *ret_own)
{
    _cleanup_free_ char *id = NULL;
    _cleanup_free_ char *dir = NULL;
    char name[SLOT_NAME_BYTES];

    *ret_own = false;
    slot_name(slot, name);
    if (io_read_file(claims, name, ID_BYTES, &id, NULL, NULL) < 0)
        return true;
    *ret_own = str_eq(id, b->id);
    if (*ret_own)
        return true;
    if (asprintf(&dir, "%s/boxes/%s", b->ctx->state_dir, id) < 0)
        return false;
    return access(dir, F_OK) < 0 && errno == ENOENT;
}

int oci_range_claim(const struct provider_box *b, uint32_t *ret_base, struct err *e)
{
    _cleanup_close_ int claims = -1;
    uint32_t first = hash_id(b->id) % OCI_SLOTS;
    int r;

    r = open_claims(b, &claims, e);
    if (r < 0)
        return r;
    for (uint32_t i = 0; i < OCI_SLOTS; i++) {
        uint32_t slot = (first + i) % OCI_SLOTS;
        char name[SLOT_NAME_BYTES];
        bool own;

        if (!slot_is_usable(b, claims, slot, &own))
            continue;
        slot_name(slot, name);
        r = own ? 0 : io_write_file(claims, name, b->id, strlen(b->id), 0600, false, e);
        if (r < 0)
            return r;
        *ret_base = OCI_FIRST_UID + slot * OCI_RANGE;
        return 0;
    }
    return err_set(e, ERR_EXHAUSTED, "all %u ranges of user ids are taken", OCI_SLOTS);
}

void oci_range_release(const struct provider_box *b, uint32_t base)
{
    _cleanup_close_ int claims = -1;
    char name[SLOT_NAME_BYTES];
    uint32_t slot;
    bool own;

    if (base < OCI_FIRST_UID || open_claims(b, &claims, NULL) < 0)
        return;
    slot = (base - OCI_FIRST_UID) / OCI_RANGE;
    (void)slot_is_usable(b, claims, slot, &own);
    slot_name(slot, name);
    if (own)
        (void)unlinkat(claims, name, 0);
}

static int write_map(pid_t pid, const char *name, uint32_t base, struct err *e)
{
    _cleanup_close_ int fd = -1;
    char path[48], line[48];
    int n;

    (void)snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
    n = snprintf(line, sizeof(line), "0 %u %u", base, OCI_RANGE);
    fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, line, (size_t)n) != n)
        return err_sys(e, errno, "write '%s'", path);
    return 0;
}

/* Holds a new user namespace until its end of the pipe is closed. */
static void userns_child(int ready, int hold)
{
    char c = 0;
    int sys = unshare(CLONE_NEWUSER) < 0 ? errno : 0;

    (void)!write(ready, &sys, sizeof(sys));
    (void)!read(hold, &c, 1);
    _exit(0);
}

static int userns_take(pid_t pid, int ready, uint32_t base, int *ret_fd, struct err *e)
{
    _cleanup_close_ int fd = -1;
    char path[48];
    size_t n;
    int sys, r;

    r = io_read_full(ready, &sys, sizeof(sys), &n, e);
    if (r < 0)
        return r;
    if (n < sizeof(sys))
        return err_set(e, ERR_INTERNAL, "the user namespace's process died");
    if (sys)
        return err_sys(e, sys, "the kernel refuses user namespaces: unshare");
    r = write_map(pid, "uid_map", base, e);
    if (r == 0)
        r = write_map(pid, "gid_map", base, e);
    if (r < 0)
        return r;
    (void)snprintf(path, sizeof(path), "/proc/%d/ns/user", (int)pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return err_sys(e, errno, "open '%s'", path);
    *ret_fd = TAKE_FD(fd);
    return 0;
}

int oci_userns_open(uint32_t base, int *ret_fd, struct err *e)
{
    int ready[2], hold[2], r;
    pid_t pid;

    if (pipe2(ready, O_CLOEXEC) < 0)
        return err_sys(e, errno, "pipe");
    if (pipe2(hold, O_CLOEXEC) < 0) {
        r = err_sys(e, errno, "pipe");
        fd_close(ready[0]);
        fd_close(ready[1]);
        return r;
    }
    pid = fork();
    if (pid == 0) {
        fd_close(hold[1]);
        userns_child(ready[1], hold[0]);
    }
    fd_close(ready[1]);
    fd_close(hold[0]);
    r = pid < 0 ? err_sys(e, errno, "fork") : userns_take(pid, ready[0], base, ret_fd, e);
    fd_close(ready[0]);
    fd_close(hold[1]);
    while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
    return r;
}

/* Makes a detached clone of the mount under `path` without the mounts below it, or, of an
 * image's squashfs, a new mount: read-only if asked, never with devices, with the ids of
 * `userns_fd` unless that is -1. Usable in a forked child. */
static int oci_mount_clone(const char *path, bool readonly, int userns_fd, int *ret_fd,
                           struct err *e)
{
    struct mount_attr attr = {.attr_set = MOUNT_ATTR_NODEV | (readonly ? MOUNT_ATTR_RDONLY : 0)};
    struct stat st;
    int fd;

    if (stat(path, &st) == 0 && S_ISREG(st.st_mode) && str_has_suffix(path, ".squashfs"))
        return oci_squash_mount(path, userns_fd, ret_fd, e);
    fd = (int)syscall(SYS_open_tree, AT_FDCWD, path, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
    if (fd < 0)
        return err_sys(e, errno, "open_tree '%s'", path);
    if (userns_fd >= 0) {
        attr.attr_set |= MOUNT_ATTR_IDMAP;
        attr.userns_fd = (uint64_t)userns_fd;
    }
    if (syscall(SYS_mount_setattr, fd, "", AT_EMPTY_PATH, &attr, sizeof(attr)) < 0) {
        int r = err_sys(e, errno, "mount_setattr '%s'%s", path,
                        userns_fd >= 0 ? " with the ids of a user namespace" : "");

        fd_close(fd);
        return r;
    }
    *ret_fd = fd;
    return 0;
}

int oci_idmap_try(const char *dir, uint32_t base, struct err *e)
{
    _cleanup_close_ int userns = -1;
    _cleanup_close_ int clone = -1;
    int r;

    r = oci_userns_open(base, &userns, e);
    if (r < 0)
        return r;
    return oci_mount_clone(dir, true, userns, &clone, e);
}

/* ---- the stage ---- */

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

/* Directories stay where they are: a layer of a snapshot says everything by itself. */
#define OVERLAY_OPTIONS "redirect_dir=off,metacopy=off,index=off"

static int mount_overlay(const struct oci_stage *s, struct err *e)
{
    char path[OCI_STAGE_PATH_BYTES], options[4096];
    size_t n = (size_t)snprintf(options, sizeof(options), OVERLAY_OPTIONS ",lowerdir=");

    for (size_t i = strv_len(s->layers); i > 0 && n < sizeof(options); i--)
        n +=
            (size_t)snprintf(options + n, sizeof(options) - n, "%s/" SNAP_NAME ":", s->root, i - 1);
    if (n < sizeof(options))
        n += (size_t)snprintf(options + n, sizeof(options) - n,
                              "%s/lower,upperdir=%s/disk/upper,workdir=%s/disk/work", s->root,
                              s->root, s->root);
    if (n >= sizeof(options))
        return err_set(e, ERR_EXHAUSTED, "the disk has too many layers");
    stage_path(s, "rootfs", path);
    if (mkdir(path, 0755) < 0)
        return err_sys(e, errno, "mkdir '%s'", path);
    if (mount("overlay", path, "overlay", MS_NODEV_ | MS_NOATIME_, options) < 0)
        return err_sys(e, errno, "mount the overlay of '%s' and '%s'", s->lower, s->disk);
    return 0;
}

struct fds {
    int lower;
    int layers[LAYER_MAX_CHAIN];
    int disk;
    int binds[OCI_MAX_BINDS];
};

/* Makes all clones before the stage covers a directory that they may come from. */
static int open_all(const struct oci_stage *s, struct fds *fds, struct err *e)
{
    size_t n_layers = strv_len(s->layers);
    int r = 0;

    if (n_layers > LAYER_MAX_CHAIN)
        return err_set(e, ERR_EXHAUSTED, "the disk has more than %d layers", LAYER_MAX_CHAIN);
    if (s->lower)
        r = oci_mount_clone(s->lower, true, s->userns_fd, &fds->lower, e);
    for (size_t i = 0; r == 0 && i < n_layers; i++)
        r = oci_mount_clone(s->layers[i], true, s->userns_fd, &fds->layers[i], e);
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
    for (size_t i = 0; r == 0 && i < strv_len(s->layers); i++) {
        char name[32];

        (void)snprintf(name, sizeof(name), SNAP_NAME, i);
        r = attach_mount(s, name, true, fds->layers[i], e);
    }
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

/* The mount point of the next line; false: there is none. */
static bool mountinfo_next(char **text, char out[MOUNT_POINT_BYTES])
{
    for (char *line; (line = strsep(text, "\n"));)
        if (sscanf(line, "%*s %*s %*s %*s %4095s", out) == 1) {
            mountinfo_unescape(out);
            return true;
        }
    return false;
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
    char ns_path[48], info_path[48], path[MOUNT_POINT_BYTES];
    char *rest;
    int ns, r;

    (void)snprintf(ns_path, sizeof(ns_path), "/proc/%d/ns/mnt", (int)p->pid);
    (void)snprintf(info_path, sizeof(info_path), "/proc/%d/mountinfo", (int)p->pid);
    ns = open(ns_path, O_RDONLY | O_CLOEXEC);
    if (ns < 0)
        return err_sys(e, errno, "open '%s'", ns_path);
    r = io_read_file(AT_FDCWD, info_path, MOUNTINFO_MAX_BYTES, &text, NULL, e);
    if (r < 0)
        return r;
    for (rest = text; mountinfo_next(&rest, path);)
        if (str_has_suffix(path, target))
            return seal_one(p, path, ns, e);
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
    char path[MOUNT_POINT_BYTES];
    char *rest;
    int r;

    r = io_read_file(AT_FDCWD, "/proc/self/mountinfo", MOUNTINFO_MAX_BYTES, &text, NULL, e);
    if (r < 0)
        return r;
    for (rest = text; mountinfo_next(&rest, path);)
        if (path_is_within(path, dir) && umount2(path, MNT_DETACH_) < 0 && errno != EINVAL)
            r = err_sys(e, errno, "umount '%s'", path);
    return r;
}
