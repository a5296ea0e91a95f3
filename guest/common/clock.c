#include "common/clock.h"

#include <limits.h>
#include <stdio.h>

static int64_t now_ns(clockid_t id)
{
    struct timespec ts = {0};

    (void)clock_gettime(id, &ts);
    return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

int64_t clock_mono_ns(void)
{
    return now_ns(CLOCK_MONOTONIC);
}

int64_t clock_mono_ms(void)
{
    return now_ns(CLOCK_MONOTONIC) / 1000000;
}

int64_t clock_real_ns(void)
{
    return now_ns(CLOCK_REALTIME);
}

int64_t clock_real_ms(void)
{
    return now_ns(CLOCK_REALTIME) / 1000000;
}

int clock_until_ms(int64_t deadline_ms)
{
    int64_t left;

    if (!deadline_ms)
        return -1;
    left = deadline_ms - clock_mono_ms();
    if (left <= 0)
        return 0;
    return left > INT_MAX ? INT_MAX : (int)left;
}

void clock_cond_init(pthread_cond_t *cond)
{
    pthread_condattr_t attr;

    (void)pthread_condattr_init(&attr);
    (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    (void)pthread_cond_init(cond, &attr);
    (void)pthread_condattr_destroy(&attr);
}

struct timespec clock_timespec(int64_t ms)
{
    return (struct timespec){.tv_sec = (time_t)(ms / 1000), .tv_nsec = (long)(ms % 1000) * 1000000};
}

void clock_text(int64_t real_ms, char out[CLOCK_TEXT_BYTES])
{
    time_t s = real_ms / 1000;
    struct tm tm = {0};
    size_t n;

    (void)gmtime_r(&s, &tm);
    n = strftime(out, CLOCK_TEXT_BYTES, "%Y-%m-%dT%H:%M:%S", &tm);
    (void)snprintf(out + n, CLOCK_TEXT_BYTES - n, ".%03dZ", (int)(real_ms % 1000));
}
