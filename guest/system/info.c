#include "system/info.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
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
#include "common/jsonx.h"
#include "version.h"

#define MAP_LINE_BYTES 128

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
