#include "system/info.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <archive.h>
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/io.h"
#include "common/jsonx.h"
#include "version.h"

#define MAP_LINE_BYTES 128
#define FILE_MAX_BYTES (256 * 1024)

/* Support in PCRE2 is not enough: a kernel or sandbox may refuse executable memory. */
static bool probe_jit(void)
{
    uint32_t compiled_in = 0;
    pcre2_code *code;
    PCRE2_SIZE at;
    int error;
    bool works;

    if (pcre2_config(PCRE2_CONFIG_JIT, &compiled_in) < 0 || !compiled_in)
        return false;
    code = pcre2_compile((PCRE2_SPTR) "a", 1, 0, &error, &at, NULL);
    if (!code)
        return false;
    works = pcre2_jit_compile(code, PCRE2_JIT_COMPLETE) == 0;
    pcre2_code_free(code);
    return works;
}

static bool path_exists(const char *path)
{
    return access(path, F_OK) == 0;
}

static const char *cgroup_kind(void)
{
    if (path_exists("/sys/fs/cgroup/cgroup.controllers"))
        return "v2";
    if (path_exists("/sys/fs/cgroup/unified/cgroup.controllers"))
        return "hybrid";
    return path_exists("/sys/fs/cgroup/memory") || path_exists("/sys/fs/cgroup/pids") ? "v1"
                                                                                      : "none";
}

void info_get(struct info *ret)
{
    *ret = (struct info){
        .version = BELLHOP_VERSION,
        .commit = BELLHOP_COMMIT,
        .cgroup = cgroup_kind(),
        .has_jit = probe_jit(),
        .cpus = (unsigned)sysconf(_SC_NPROCESSORS_ONLN),
        .memory_bytes = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE),
    };
    (void)uname(&ret->kernel);
}

const char *info_libraries(const char *http, char *out, size_t size)
{
    char pcre2[64] = "";

    (void)pcre2_config(PCRE2_CONFIG_VERSION, pcre2);
    pcre2[strcspn(pcre2, " ")] = '\0';
    (void)snprintf(out, size, "libmicrohttpd %s, jansson %s, %s, PCRE2 %s", http,
                   jansson_version_str(), archive_version_string(), pcre2);
    return out;
}

static size_t read_id_map(const char *path, struct info_id_range *ret)
{
    _cleanup_fclose_ FILE *f = fopen(path, "re");
    char line[MAP_LINE_BYTES];
    size_t n = 0;

    while (f && n < INFO_MAX_ID_RANGES && fgets(line, sizeof(line), f))
        n += sscanf(line, " %" SCNu32 " %" SCNu32 " %" SCNu32, &ret[n].inside, &ret[n].outside,
                    &ret[n].count) == 3;
    return n;
}

static bool is_identity_map(const struct info_id_range *r, size_t n)
{
    return n == 1 && !r->inside && !r->outside && r->count == UINT32_MAX;
}

/* The arguments are wrong on purpose: a kernel that has the call refuses them with another error. */
static bool has_syscall(long number)
{
    return syscall(number, -1, NULL, NULL, 0) < 0 && errno != ENOSYS && errno != EPERM;
}

void info_get_box(struct info_box *ret)
{
    struct timespec boot = {0};

    *ret = (struct info_box){.real_ms = clock_real_ms(),
                             .mono_ms = clock_mono_ms(),
                             .has_openat2 = has_syscall(SYS_openat2),
                             .has_pidfd = has_syscall(SYS_pidfd_send_signal)};
    if (clock_gettime(CLOCK_BOOTTIME, &boot) == 0)
        ret->boot_ms = (int64_t)boot.tv_sec * 1000 + boot.tv_nsec / 1000000;
    ret->n_uids = read_id_map("/proc/self/uid_map", ret->uids);
    ret->n_gids = read_id_map("/proc/self/gid_map", ret->gids);
    ret->is_user_namespace = ret->n_uids && !is_identity_map(ret->uids, ret->n_uids);
}

bool info_get_disk(const char *path, struct info_disk *ret)
{
    struct statvfs st;

    if (statvfs(path, &st) < 0)
        return false;
    *ret = (struct info_disk){.is_read_only = st.f_flag & ST_RDONLY,
                              .free_bytes = st.f_bavail * st.f_frsize,
                              .total_bytes = st.f_blocks * st.f_frsize,
                              .free_inodes = st.f_favail,
                              .total_inodes = st.f_files};
    return true;
}

/* ---- use ---- */

struct usage_clock {
    pthread_mutex_t lock;
    /* guarded by lock; of the previous call: */
    uint64_t total, idle;
};

int usage_clock_new(struct usage_clock **ret, struct err *e)
{
    struct usage_clock *c = calloc(1, sizeof(*c));

    if (!c)
        return err_oom(e);
    (void)pthread_mutex_init(&c->lock, NULL);
    *ret = c;
    return 0;
}

struct usage_clock *usage_clock_free(struct usage_clock *c)
{
    if (c)
        (void)pthread_mutex_destroy(&c->lock);
    free(c);
    return NULL;
}

/* "cpu user nice system idle iowait irq softirq steal ..." in ticks. */
static int read_ticks(uint64_t *ret_total, uint64_t *ret_idle, struct err *e)
{
    _cleanup_free_ char *text = NULL;
    uint64_t t[8] = {0}, total = 0;
    size_t len;
    int r;

    r = io_read_file(AT_FDCWD, "/proc/stat", FILE_MAX_BYTES, &text, &len, e);
    if (r < 0)
        return r;
    if (sscanf(text,
               "cpu %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64
               " %" SCNu64 " %" SCNu64,
               &t[0], &t[1], &t[2], &t[3], &t[4], &t[5], &t[6], &t[7]) < 4)
        return err_set(e, ERR_INTERNAL, "/proc/stat says nothing of processors");
    for (size_t i = 0; i < N_ELEMENTS(t); i++)
        total += t[i];
    *ret_total = total;
    *ret_idle = t[3] + t[4];
    return 0;
}

static double percent_since(struct usage_clock *c, uint64_t total, uint64_t idle)
{
    _cleanup_unlock_ pthread_mutex_t *locked = mutex_lock(&c->lock);
    uint64_t all = total > c->total ? total - c->total : 0;
    uint64_t rest = idle > c->idle ? idle - c->idle : 0;
    bool is_first = !c->total;

    c->total = total;
    c->idle = idle;
    return is_first || !all || rest > all ? 0 : 100.0 * (double)(all - rest) / (double)all;
}

/* The value of a line "Name:   123 kB" in bytes; 0: there is none. */
static uint64_t meminfo_bytes(const char *text, const char *name)
{
    const char *at = strstr(text, name);
    uint64_t kib = 0;

    if (!at || sscanf(at + strlen(name), ": %" SCNu64, &kib) != 1)
        return 0;
    return kib * 1024;
}

static int read_memory(struct usage *u, struct err *e)
{
    _cleanup_free_ char *text = NULL;
    uint64_t available;
    size_t len;
    int r;

    r = io_read_file(AT_FDCWD, "/proc/meminfo", FILE_MAX_BYTES, &text, &len, e);
    if (r < 0)
        return r;
    u->mem_total = meminfo_bytes(text, "MemTotal");
    available = meminfo_bytes(text, "MemAvailable");
    u->mem_used = u->mem_total > available ? u->mem_total - available : 0;
    u->mem_cache = meminfo_bytes(text, "\nCached") + meminfo_bytes(text, "\nSReclaimable");
    return 0;
}

int usage_get(struct usage_clock *c, struct usage *ret, struct err *e)
{
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    struct usage u = {.n_cpus = n > 0 ? (unsigned)n : 1};
    struct info_disk disk;
    uint64_t total, idle;
    int r;

    r = read_ticks(&total, &idle, e);
    if (r == 0)
        r = read_memory(&u, e);
    if (r < 0)
        return r;
    if (!info_get_disk("/", &disk))
        return err_sys(e, errno, "the size of '/'");
    u.disk_total = disk.total_bytes;
    u.disk_used = disk.total_bytes - disk.free_bytes;
    u.cpu_percent = percent_since(c, total, idle);
    *ret = u;
    return 0;
}
