#include "system/usage.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/io.h"

#define FILE_MAX_BYTES (256 * 1024)

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
    uint64_t all, rest;
    bool is_first;

    (void)pthread_mutex_lock(&c->lock);
    is_first = !c->total;
    all = total > c->total ? total - c->total : 0;
    rest = idle > c->idle ? idle - c->idle : 0;
    c->total = total;
    c->idle = idle;
    (void)pthread_mutex_unlock(&c->lock);
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

static int read_disk(struct usage *u, struct err *e)
{
    struct statvfs st;

    if (statvfs("/", &st) < 0)
        return err_sys(e, errno, "the size of '/'");
    u->disk_total = (uint64_t)st.f_blocks * st.f_frsize;
    u->disk_used = u->disk_total - (uint64_t)st.f_bavail * st.f_frsize;
    return 0;
}

int usage_get(struct usage_clock *c, struct usage *ret, struct err *e)
{
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    struct usage u = {.n_cpus = n > 0 ? (unsigned)n : 1};
    uint64_t total, idle;
    int r;

    r = read_ticks(&total, &idle, e);
    if (r == 0)
        r = read_memory(&u, e);
    if (r == 0)
        r = read_disk(&u, e);
    if (r < 0)
        return r;
    u.cpu_percent = percent_since(c, total, idle);
    *ret = u;
    return 0;
}
