#pragma once
/*
 * queue: a source fed by a worker on the pool (search, say). The worker pushes messages as lines
 * of JSON (jtext.h) into a pump and blocks while the pump is full. The first message goes out at
 * once; later ones when QUEUE_BATCH_BYTES wait or the oldest has waited QUEUE_BATCH_MS: waking
 * the server costs more than a message.
 *
 * When `work` returns a negative result, that error ends the reply.
 */
#include <stdbool.h>

#include "common/err.h"
#include "api/rpc.h"

#define QUEUE_MAX_BYTES (256 * 1024)
#define QUEUE_BATCH_BYTES (32 * 1024)
#define QUEUE_BATCH_MS 5
#define QUEUE_TEXT_MAX_BYTES (64u * 1024 * 1024) /* one message */
#define QUEUE_STALL_MS 30000                     /* stall timeout of a client */

struct queue;
struct pool;

/* The work. free_arg frees arg. Calls queue_is_gone() often. */
typedef int (*queue_work_fn)(struct queue *q, void *arg, struct err *e);

/* Sets the pool that the work of every queue runs on. Called once, before threads start. */
void queue_use_pool(struct pool *p);

/* Starts the work on a pool thread. On failure (ERR_EXHAUSTED: too much waits for one) arg is freed. */
int queue_source_new(queue_work_fn work, void *arg, void (*free_arg)(void *), struct source **ret,
                     struct err *e);

/* From one thread of the worker's at a time. -ERR_CANCELED when the client has gone. */
int queue_push(struct queue *q, const char *text, size_t len, struct err *e);
/* The same for a message that is not text yet; takes it in any case. */
int queue_push_take(struct queue *q, json_t *msg, struct err *e);
/* The client has gone. Also flushes a batch that is due: a worker calls it often. */
bool queue_is_gone(struct queue *q);
