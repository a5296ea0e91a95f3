#include "system/init.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/random.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/io.h"
#include "common/process.h"
#include "common/str.h"
#include "event/loop.h"

#define PF_KTHREAD 0x00200000 /* of the kernel; in no header of its API */

bool init_is_pid_1(void)
{
    return getpid() == 1;
}

void init_signal_all(int sig)
{
    if (init_is_pid_1())
        (void)kill(-1, sig);
}

/* Zombies do not count: they are about to be reaped. Neither do the kernel threads of a machine. */
static bool is_alive(const char *name)
{
    struct process_stat s;
    uint64_t pid;

    return str_parse_u64(name, 2, INT32_MAX, &pid, NULL) == 0 && process_read((pid_t)pid, &s) &&
           !process_has_ended(&s) && !(s.flags & PF_KTHREAD);
}

bool init_has_others(void)
{
    _cleanup_closedir_ DIR *d = opendir("/proc");
    struct dirent *entry;

    while (d && (entry = readdir(d)))
        if (is_alive(entry->d_name))
            return true;
    return false;
}

/* ---- the lease ---- */

struct lease {
    struct loop *loop;
    void (*on_expiry)(void *arg);
    void *arg;
    struct loop_timer *timer; /* the loop's */
    pthread_mutex_t lock;
    int64_t until_ms; /* monotonic; 0: no end. Guarded by lock */
};

int lease_new(struct loop *l, void (*on_expiry)(void *arg), void *arg, struct lease **ret,
              struct err *e)
{
    struct lease *lease = calloc(1, sizeof(*lease));

    if (!lease)
        return err_oom(e);
    *lease = (struct lease){.loop = l, .on_expiry = on_expiry, .arg = arg};
    (void)pthread_mutex_init(&lease->lock, NULL);
    *ret = lease;
    return 0;
}

struct lease *lease_free(struct lease *l)
{
    if (!l)
        return NULL;
    loop_timer_del(l->timer);
    (void)pthread_mutex_destroy(&l->lock);
    free(l);
    return NULL;
}

static void lease_arm_timer(struct loop *loop, void *arg);

static void on_lease_timer(struct loop *loop, void *arg)
{
    struct lease *l = arg;

    l->timer = NULL;
    if (lease_left_ms(l) == 0)
        l->on_expiry(l->arg);
    else
        lease_arm_timer(loop, l);
}

/* On the loop's thread: sets the timer to the lease. */
static void lease_arm_timer(struct loop *loop, void *arg)
{
    struct lease *l = arg;
    int64_t left_ms = lease_left_ms(l);

    l->timer = loop_timer_del(l->timer);
    if (left_ms != LEASE_NONE)
        (void)loop_timer_add(loop, clock_mono_ms() + left_ms, on_lease_timer, l, &l->timer, NULL);
}

int lease_set(struct lease *l, int64_t left_ms, bool force, struct err *e)
{
    int64_t until_ms = left_ms == LEASE_NONE ? 0 : clock_mono_ms() + left_ms;

    if (left_ms != LEASE_NONE && (left_ms < 0 || left_ms > LEASE_MAX_MS))
        return err_field(e, ERR_INVALID, "expires_in_ms",
                         "field 'expires_in_ms' must be from 0 to %lld", LEASE_MAX_MS);
    WITH_LOCK (&l->lock) {
        /* The first lease limits a life that had no limit: it always counts as longer. */
        if (force || !l->until_ms || !until_ms || until_ms > l->until_ms)
            l->until_ms = until_ms;
    }
    return loop_post(l->loop, lease_arm_timer, l, e);
}

int64_t lease_left_ms(struct lease *l)
{
    _cleanup_unlock_ pthread_mutex_t *locked = mutex_lock(&l->lock);
    int64_t left_ms = l->until_ms - clock_mono_ms();

    if (!l->until_ms)
        return LEASE_NONE;
    return left_ms > 0 ? left_ms : 0;
}

/* ---- after a restore ---- */

const char *resync_name(enum resync_result r)
{
    static const char *const names[N_RESYNC_RESULTS] = {
        [RESYNC_NOT_ASKED] = "not_asked",
        [RESYNC_WITHIN_TOLERANCE] = "within_tolerance",
        [RESYNC_SET] = "set",
        [RESYNC_CREDITED] = "credited",
        [RESYNC_MIXED] = "mixed",
        [RESYNC_RESEEDED] = "reseeded",
        [RESYNC_NOT_PERMITTED] = "not_permitted",
        [RESYNC_FAILED] = "failed",
    };

    return names[r];
}

static enum resync_result result_of_errno(void)
{
    return errno == EPERM || errno == EACCES ? RESYNC_NOT_PERMITTED : RESYNC_FAILED;
}

void resync_clock(int64_t real_ms, int64_t tolerance_ms, struct resync_clock *ret)
{
    struct timespec ts = {.tv_sec = (time_t)(real_ms / 1000),
                          .tv_nsec = (long)(real_ms % 1000) * 1000000};

    *ret = (struct resync_clock){.offset_ms = real_ms - clock_real_ms()};
    if (ret->offset_ms <= tolerance_ms && ret->offset_ms >= -tolerance_ms)
        ret->result = RESYNC_WITHIN_TOLERANCE;
    else
        ret->result = clock_settime(CLOCK_REALTIME, &ts) == 0 ? RESYNC_SET : result_of_errno();
}

/* Everybody may write to the generator; only CAP_SYS_ADMIN may credit it as entropy. */
static enum resync_result credit_entropy(int fd, const void *data, size_t len)
{
    union {
        struct rand_pool_info info;
        char bytes[sizeof(struct rand_pool_info) + RESYNC_ENTROPY_MAX];
    } pool = {.info = {.entropy_count = (int)len * 8, .buf_size = (int)len}};
    enum resync_result r;

    memcpy(pool.info.buf, data, len);
    r = ioctl(fd, RNDADDENTROPY, &pool) == 0 ? RESYNC_CREDITED : result_of_errno();
    explicit_bzero(&pool, sizeof(pool));
    if (r != RESYNC_CREDITED && io_write_all(fd, data, len, NULL) == 0)
        r = RESYNC_MIXED;
    return r;
}

void resync_entropy(const void *data, size_t len, struct resync_entropy *ret)
{
    _cleanup_close_ int fd = open("/dev/urandom", O_RDWR | O_CLOEXEC | O_NOCTTY);

    if (fd < 0) {
        ret->entropy = ret->reseed = result_of_errno();
        return;
    }
    ret->entropy = credit_entropy(fd, data, len);
    ret->reseed = ioctl(fd, RNDRESEEDCRNG) == 0 ? RESYNC_RESEEDED : result_of_errno();
}
