#include "system/resync.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/random.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/io.h"

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
