#pragma once
/*
 * pool: threads for work that blocks on the disk or uses the processor, so that the threads that serve
 * sockets never do. Threads are made when needed, up to a maximum, and end after POOL_IDLE_MS without
 * work. One is made with the pool and stays, so that work is done even where no more threads can be made. Work that finds every thread busy (a frozen FUSE mount can hold many) waits in a bounded
 * queue; past the bound it is refused with ERR_EXHAUSTED. Thread-safe.
 */
#include <stdbool.h>

#include "common/err.h"

#define POOL_MAX_THREADS 96
#define POOL_MAX_WAITING 1024
#define POOL_IDLE_MS 10000
#if defined(__SANITIZE_THREAD__)
#define POOL_STACK_BYTES (2048 * 1024) /* the sanitizer's own variables take 800 KiB of it */
#else
#define POOL_STACK_BYTES (512 * 1024)
#endif

struct pool;

/* Work in the caller's memory, so that it can't be refused. In use until fn is called. */
struct pool_item {
    void (*fn)(void *arg);
    void *arg;
    struct pool_item *next;
    bool is_owned; /* the pool's own: freed by it */
};

int pool_new(struct pool **ret, struct err *e);
/* Waits at most wait_ms for running work. Returns NULL; or p when a thread still works: then
 * nothing that it may use can be freed. */
struct pool *pool_free(struct pool *p, int wait_ms);
int pool_run(struct pool *p, void (*fn)(void *arg), void *arg, struct err *e);

/* For clean-up and for continuing work: not bounded here, only by the caller. The caller sets fn and arg. */
void pool_push(struct pool *p, struct pool_item *item);

/* Threads at work and items that wait, for the metrics. */
void pool_counts(struct pool *p, unsigned *ret_busy, unsigned *ret_waiting);
