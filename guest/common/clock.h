#pragma once
/* clock: time as integers. Monotonic for waits and deadlines, real time for people. */
#include <pthread.h>
#include <stdint.h>
#include <time.h>

int64_t clock_mono_ms(void);
int64_t clock_mono_ns(void);
int64_t clock_real_ms(void); /* since 1970-01-01T00:00:00Z */
int64_t clock_real_ns(void);

/* Milliseconds until a monotonic deadline, for poll(): 0 if it has passed, -1 if deadline_ms is 0 (no deadline), at
 * most INT_MAX. */
int clock_until_ms(int64_t deadline_ms);

/* A condition whose timed waits take a monotonic time, and that time. */
void clock_cond_init(pthread_cond_t *cond);
struct timespec clock_timespec(int64_t ms);

/* "2026-11-22T01:35:00.123Z" for a time since 1970 in milliseconds. */
#define CLOCK_TEXT_BYTES 32
void clock_text(int64_t real_ms, char out[CLOCK_TEXT_BYTES]);
