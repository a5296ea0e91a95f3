#pragma once
/*
 * pool: threads for what blocks on the disk or uses the processor, so that the threads that serve
 * sockets never do. Threads are made when needed, up to a maximum, and end after a while without
 * work. Work that finds every thread busy (a frozen FUSE mount can hold many) waits in a bounded
 * queue; past the bound it is refused with ERR_EXHAUSTED. Thread-safe.
 */
#include "common/err.h"

#define POOL_MAX_THREADS 96
#define POOL_MAX_WAITING 1024
#define POOL_IDLE_MS 10000
#define POOL_STACK_BYTES (512 * 1024)

struct pool;

int pool_new(struct pool **ret, struct err *e);
/* Waits at most wait_ms for running work, then leaves the threads alone. Returns NULL. */
struct pool *pool_free(struct pool *p, int wait_ms);
int pool_run(struct pool *p, void (*fn)(void *arg), void *arg, struct err *e);
