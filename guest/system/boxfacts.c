#include "system/boxfacts.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"

#define LINE_BYTES 128

static size_t read_map(const char *path, struct boxfacts_range *ret)
{
    _cleanup_fclose_ FILE *f = fopen(path, "re");
    char line[LINE_BYTES];
    size_t n = 0;

    while (f && n < BOXFACTS_MAX_RANGES && fgets(line, sizeof(line), f))
        n += sscanf(line, " %" SCNu32 " %" SCNu32 " %" SCNu32, &ret[n].inside, &ret[n].outside,
                    &ret[n].count) == 3;
    return n;
}

static bool is_identity(const struct boxfacts_range *r, size_t n)
{
    return n == 1 && !r->inside && !r->outside && r->count == UINT32_MAX;
}

/* Called wrongly on purpose: a kernel that has the call says what is wrong with it. */
static bool has_call(long number)
{
    return syscall(number, -1, NULL, NULL, 0) < 0 && errno != ENOSYS && errno != EPERM;
}

void boxfacts_get(struct boxfacts *ret)
{
    struct timespec boot = {0};

    *ret = (struct boxfacts){.real_ms = clock_real_ms(),
                             .mono_ms = clock_mono_ms(),
                             .has_openat2 = has_call(SYS_openat2),
                             .has_pidfd = has_call(SYS_pidfd_send_signal)};
    if (clock_gettime(CLOCK_BOOTTIME, &boot) == 0)
        ret->boot_ms = (int64_t)boot.tv_sec * 1000 + boot.tv_nsec / 1000000;
    ret->n_uids = read_map("/proc/self/uid_map", ret->uids);
    ret->n_gids = read_map("/proc/self/gid_map", ret->gids);
    ret->is_user_namespace = ret->n_uids && !is_identity(ret->uids, ret->n_uids);
}
