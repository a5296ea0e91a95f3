#include "lib/provider/oci/idmap.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/io.h"
#include "common/str.h"

#include "lib/provider/oci/rootfs.h"

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

int oci_mount_clone(const char *path, bool readonly, int userns_fd, int *ret_fd, struct err *e)
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
