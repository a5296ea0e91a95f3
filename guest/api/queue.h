#pragma once
/*
 * queue: a source fed by a worker thread (search, say). The worker pushes messages as lines of JSON
 * (see jtext.h) and blocks while QUEUE_MAX_BYTES of them wait for the client; it is told when the
 * client has gone. The first message goes out at once, the next ones when there are
 * QUEUE_BATCH_BYTES of them or the oldest has waited QUEUE_BATCH_MS: waking the server costs more
 * than a message.
 *
 * The queue has two owners: the server (through the source) and the worker. The worker runs
 * `work` on a pool thread; when `work` returns, a negative result becomes the reply's error.
 */
#include <stdbool.h>

#include "common/err.h"
#include "api/source.h"

#define QUEUE_MAX_BYTES (256 * 1024)
#define QUEUE_BATCH_BYTES (32 * 1024)
#define QUEUE_BATCH_MS 5
#define QUEUE_TEXT_MAX_BYTES (64u * 1024 * 1024) /* with one very long message */
#define QUEUE_STALL_MS 30000 /* a client that takes nothing for so long has gone */

struct queue;
struct pool;

/* The work. Owns `arg` through free_arg. Asks queue_is_gone() often. */
typedef int (*queue_work_fn)(struct queue *q, void *arg, struct err *e);

/* The pool that every queue's work runs on. Called once, before threads start. */
void queue_use_pool(struct pool *p);

/* Starts the work on a pool thread (ERR_EXHAUSTED when too many run). On failure arg is freed. */
int queue_source_new(queue_work_fn work, void *arg, void (*free_arg)(void *), struct source **ret,
                     struct err *e);

/* Any thread of the worker's. -ERR_CANCELED when the client has gone. */
int queue_push(struct queue *q, const char *text, size_t len, struct err *e);
/* The same for a message that is not text yet; takes it in any case. `weight`: about its bytes. */
int queue_push_take(struct queue *q, json_t *msg, size_t weight, struct err *e);
/* To be asked often: it also sees to it that what was pushed does not wait for more. */
bool queue_is_gone(struct queue *q);
