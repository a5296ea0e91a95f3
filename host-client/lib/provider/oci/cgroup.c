#include "lib/provider/oci/cgroup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/io.h"
#include "common/process.h"
#include "common/str.h"
#include "lib/provider/freezer.h"

#define CGROUP_ROOT "/sys/fs/cgroup"
#define CGROUP1_MAGIC 0x27e0eb
#define CGROUP2_MAGIC 0x63677270
#define MAX_HIERARCHIES 24
#define PATH_BYTES 512
#define REMOVE_POLL_MS 10
#define DIRECTORY (O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
/* Depth of groups below the box's own. The agent needs two levels and a group for each command. */
#define MAX_DEPTH 8
#define MAX_DESCENDANTS "4096"
#define KEEP_V1_UNLIMITED 0x7000000000000000ull /* v1 writes "no limit" as a huge number */

bool oci_cgroup_is_v2(void)
{
    struct statfs fs;

    return statfs(CGROUP_ROOT, &fs) == 0 && fs.f_type == CGROUP2_MAGIC;
}

/* The mount points of all hierarchies: the root itself, or directories in it. */
struct hierarchies {
    char path[MAX_HIERARCHIES][64];
    size_t n;
};

/* A directory without a mount is no hierarchy. */
static void add_hierarchy(struct hierarchies *h, const char *name)
{
    struct statfs fs;

    if (h->n == MAX_HIERARCHIES)
        return;
    (void)snprintf(h->path[h->n], sizeof(h->path[0]), "%s%s%s", CGROUP_ROOT, name ? "/" : "",
                   name ? name : "");
    if (statfs(h->path[h->n], &fs) == 0 &&
        (fs.f_type == CGROUP1_MAGIC || fs.f_type == CGROUP2_MAGIC))
        h->n++;
}

static void find_hierarchies(struct hierarchies *h)
{
    _cleanup_closedir_ DIR *d = NULL;

    h->n = 0;
    if (oci_cgroup_is_v2()) {
        add_hierarchy(h, NULL);
        return;
    }
    d = opendir(CGROUP_ROOT);
    for (struct dirent *de; d && (de = readdir(d));)
        if (de->d_name[0] != '.' && de->d_type == DT_DIR)
            add_hierarchy(h, de->d_name);
}

static int read_text(const char *hierarchy, const char *name, const char *file, char *out,
                     size_t out_bytes)
{
    _cleanup_close_ int fd = -1;
    char path[PATH_BYTES];
    size_t n;

    (void)snprintf(path, sizeof(path), "%s%s/%s", hierarchy, name, file);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || io_read_full(fd, out, out_bytes - 1, &n, NULL) < 0)
        return -1;
    out[n] = '\0';
    return 0;
}

/* 0 for "max", an absent file, and v1's huge number. */
static uint64_t read_number(const char *hierarchy, const char *name, const char *file)
{
    char text[64];
    uint64_t v;

    if (read_text(hierarchy, name, file, text, sizeof(text)) < 0 ||
        sscanf(text, "%" SCNu64, &v) != 1 || v >= KEEP_V1_UNLIMITED)
        return 0;
    return v;
}

static uint32_t quota_millis(uint64_t quota, uint64_t period)
{
    return period ? (uint32_t)(quota * 1000 / period) : 0;
}

static void read_v2(const char *name, struct oci_limits *ret)
{
    uint64_t quota, period;
    char text[64];

    ret->pids = read_number(CGROUP_ROOT, name, "pids.max");
    ret->memory_bytes = read_number(CGROUP_ROOT, name, "memory.max");
    if (read_text(CGROUP_ROOT, name, "cpu.max", text, sizeof(text)) == 0 &&
        sscanf(text, "%" SCNu64 " %" SCNu64, &quota, &period) == 2)
        ret->cpu_millis = quota_millis(quota, period);
}

static void read_v1(const char *name, struct oci_limits *ret)
{
    ret->pids = read_number(CGROUP_ROOT "/pids", name, "pids.max");
    ret->memory_bytes = read_number(CGROUP_ROOT "/memory", name, "memory.limit_in_bytes");
    /* no quota is -1, which reads as the largest number */
    ret->cpu_millis = quota_millis(read_number(CGROUP_ROOT "/cpu", name, "cpu.cfs_quota_us"),
                                   read_number(CGROUP_ROOT "/cpu", name, "cpu.cfs_period_us"));
}

uint64_t oci_cgroup_memory_used(const char *name)
{
    return oci_cgroup_is_v2() ? read_number(CGROUP_ROOT, name, "memory.current")
                              : read_number(CGROUP_ROOT "/memory", name, "memory.usage_in_bytes");
}

void oci_cgroup_read(const char *name, struct oci_limits *ret)
{
    *ret = (struct oci_limits){0};
    if (oci_cgroup_is_v2())
        read_v2(name, ret);
    else
        read_v1(name, ret);
}

/* ---- delegation ---- */

static void write_text(const char *hierarchy, const char *name, const char *file, const char *text)
{
    _cleanup_close_ int fd = -1;
    char path[PATH_BYTES];

    (void)snprintf(path, sizeof(path), "%s%s/%s", hierarchy, name, file);
    fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd >= 0)
        (void)!write(fd, text, strlen(text));
}

bool oci_cgroup_is_given(const struct oci_disk *disk)
{
    return disk->base && oci_cgroup_is_v2();
}

int oci_cgroup_give_at(const char *dir, uint32_t uid, uint32_t gid, struct err *e)
{
    /* cgroup.subtree_control divides a group; cgroup.threads is only for thread groups. */
    static const char *const files[] = {"cgroup.procs", "cgroup.threads", "cgroup.subtree_control"};
    _cleanup_close_ int fd = open(dir, DIRECTORY);

    if (fd < 0)
        return err_sys(e, errno, "open '%s'", dir);
    for (size_t i = 0; i < N_ELEMENTS(files); i++)
        if (fchownat(fd, files[i], uid, gid, AT_SYMLINK_NOFOLLOW) < 0 && errno != ENOENT)
            return err_sys(e, errno, "own '%s/%s'", dir, files[i]);
    return fchown(fd, uid, gid) < 0 ? err_sys(e, errno, "own '%s'", dir) : 0;
}

int oci_cgroup_give(const char *name, uint32_t uid, uint32_t gid, struct err *e)
{
    char path[PATH_BYTES], depth[8];

    /* Limits the depth, so that every group of the box can be removed again. */
    (void)snprintf(depth, sizeof(depth), "%d", MAX_DEPTH);
    write_text(CGROUP_ROOT, name, "cgroup.max.depth", depth);
    write_text(CGROUP_ROOT, name, "cgroup.max.descendants", MAX_DESCENDANTS);
    (void)snprintf(path, sizeof(path), "%s%s", CGROUP_ROOT, name);
    return oci_cgroup_give_at(path, uid, gid, e);
}

/* ---- defaults ---- */

static bool has_controller(const char *name)
{
    char path[64], text[256], *rest = text, *word;
    struct statfs fs;

    if (!oci_cgroup_is_v2()) {
        (void)snprintf(path, sizeof(path), CGROUP_ROOT "/%s", name);
        return statfs(path, &fs) == 0 && fs.f_type == CGROUP1_MAGIC;
    }
    if (read_text(CGROUP_ROOT, "", "cgroup.controllers", text, sizeof(text)) < 0)
        return false;
    while ((word = strsep(&rest, " \n")))
        if (str_eq(word, name))
            return true;
    return false;
}

/* In a container, the root group that we see has the container's limit. */
static uint64_t machine_memory(void)
{
    uint64_t limit = oci_cgroup_is_v2()
                         ? read_number(CGROUP_ROOT, "", "memory.max")
                         : read_number(CGROUP_ROOT "/memory", "", "memory.limit_in_bytes");
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    uint64_t all = pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page : 0;

    return limit && (!all || limit < all) ? limit : all;
}

uint64_t oci_default_memory(uint64_t machine_bytes)
{
    return machine_bytes / 5 * 4 & ~((1ull << 20) - 1);
}

uint32_t oci_default_cpu_millis(unsigned n_processors)
{
    return n_processors < 5 ? n_processors * 800 : (n_processors - 1) * 1000;
}

void oci_cgroup_defaults(struct oci_limits *ret)
{
    long n = sysconf(_SC_NPROCESSORS_ONLN);

    *ret = (struct oci_limits){0};
    if (has_controller("memory"))
        ret->memory_bytes = oci_default_memory(machine_memory());
    if (has_controller("cpu") && n > 0)
        ret->cpu_millis = oci_default_cpu_millis((unsigned)n);
}

bool oci_cgroup_limits_swap(void)
{
    return oci_cgroup_is_v2() ||
           access(CGROUP_ROOT "/memory/memory.memsw.limit_in_bytes", F_OK) == 0;
}

/* Sends SIGKILL to every process of one group. Children forked meanwhile are in the next
 * round's list. */
static void kill_listed(const char *hierarchy, const char *name)
{
    char path[PATH_BYTES];
    size_t n;

    (void)snprintf(path, sizeof(path), "%s%s/cgroup.procs", hierarchy, name);
    (void)process_kill_listed(path, &n, NULL);
}

/* Removes the groups that the box made below its own (v2, delegated), deepest first. Takes the
 * descriptor. */
static void remove_below(int fd, int depth)
{
    _cleanup_closedir_ DIR *d = fd < 0 ? NULL : fdopendir(fd);

    if (!d)
        fd_close(fd);
    for (struct dirent *de; d && (de = readdir(d));) {
        if (de->d_name[0] == '.' || de->d_type != DT_DIR)
            continue;
        if (depth)
            remove_below(openat(dirfd(d), de->d_name, DIRECTORY), depth - 1);
        (void)unlinkat(dirfd(d), de->d_name, AT_REMOVEDIR);
    }
}

/* Tries once in one hierarchy; true: the group is gone. */
static bool remove_once(const char *hierarchy, const char *name)
{
    char path[PATH_BYTES];

    (void)snprintf(path, sizeof(path), "%s%s", hierarchy, name);
    if (rmdir(path) == 0 || errno == ENOENT)
        return true;
    write_text(hierarchy, name, "freezer.state", "THAWED"); /* v1: frozen processes do not die */
    write_text(hierarchy, name, "cgroup.kill", "1");        /* v2: the whole tree at once */
    kill_listed(hierarchy, name);
    remove_below(open(path, DIRECTORY), MAX_DEPTH);
    return rmdir(path) == 0 || errno == ENOENT;
}

int oci_cgroup_remove(const char *name, int64_t timeout_ms, struct err *e)
{
    int64_t deadline = clock_mono_ms() + timeout_ms;
    struct hierarchies h;
    bool gone;

    if (!freezer_is_box_group(name))
        return err_set(e, ERR_DATA_LOSS, "'%s' is not the control group of a box", name);
    find_hierarchies(&h);
    for (;;) {
        gone = true;
        for (size_t i = 0; i < h.n; i++)
            gone &= remove_once(h.path[i], name);
        if (gone)
            return 0;
        if (clock_mono_ms() >= deadline)
            return err_set(e, ERR_DEADLINE, "the control group '%s' still has processes", name);
        (void)poll(NULL, 0, REMOVE_POLL_MS); /* the kernel has no event for this on v1 */
    }
}

int oci_cgroup_each(const char *state_dir, int (*fn)(void *arg, const char *id, struct err *e),
                    void *arg, struct err *e)
{
    char prefix[FREEZER_NAME_BYTES];
    struct hierarchies h;

    freezer_name(state_dir, "", prefix);
    find_hierarchies(&h);
    for (size_t i = 0; i < h.n; i++) {
        _cleanup_closedir_ DIR *d = opendir(h.path[i]);

        for (struct dirent *de; d && (de = readdir(d));) {
            int r;

            if (!str_has_prefix(de->d_name, prefix + 1))
                continue;
            r = fn(arg, de->d_name + strlen(prefix + 1), e);
            if (r < 0)
                return r;
        }
    }
    return 0;
}
