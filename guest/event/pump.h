#pragma once
/*
 * pump: a bounded conveyor of bytes between two threads: a ring of a fixed size with a side that
 * puts bytes in and a side that takes them out. A full ring is back-pressure. A side works in one
 * of three ways:
 *
 *   parked     pump_put(), pump_take() never block. After PUMP_WAIT the caller goes away, and the
 *              wake callback says when to call again. For a request on its connection's thread.
 *   blocking   pump_write(), pump_read() wait for room or for bytes, at most stall_ms at a time.
 *   scheduled  pump_ops.write or pump_ops.read run in a job on the pool. The job starts when there
 *              is something to do and ends when there is nothing, so that no pool thread waits for
 *              a client.
 *
 * At most one side is parked and at most one is the job's. pump_ops.run is one job for the whole
 * life of the pump, whose side blocks: for a library that pulls its input. The caller bounds how
 * many such jobs there are; each wait has the stall timeout.
 *
 * The owner (until pump_leave()) and the job each hold a reference; the last one frees the pump. An
 * error of the job is the result of the other side's next call, after the bytes that came before.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/err.h"

/* pump_read() lends no more at a time, so that room comes back in steps. */
#define PUMP_LEND_BYTES (128 * 1024)

/* Results that are no errors. */
#define PUMP_WAIT 1 /* call again after the wake */
#define PUMP_END 2  /* pump_take(): no more bytes */
#define PUMP_IDLE 1 /* pump_ops.read: no bytes now; pump_await_job(), pump_start() */

struct pool;
struct pump;

/*
 * The job's side. All but free run on pool threads, one at a time, and may block; each may be
 * NULL.
 */
struct pump_ops {
    int (*begin)(void *job, struct err *e);
    /*
     * One of these three. write takes all; read sets *ret_len, 0 at the end; run reads to the
     * end, or writes all. Bytes that run returns 0 without reading are an error (ERR_INVALID)
     * of pump_put() and pump_finish(), and commit is not called.
     */
    int (*write)(void *job, const void *data, size_t len, struct err *e);
    int (*read)(void *job, void *data, size_t size, size_t *ret_len, struct err *e);
    int (*run)(void *job, struct pump *p, struct err *e);
    /* After the last byte was written. */
    int (*commit)(void *job, struct err *e);
    /*
     * Once, after begin if there is one: after commit or an error, or because the owner has
     * left.
     */
    void (*close)(void *job);
    void (*free)(void *job); /* memory only; from any thread */
    /* Bytes that were put before the owner left are written, and committed if they were all. */
    bool keeps;
};

struct pump_options {
    struct pool *pool;          /* of the job */
    const struct pump_ops *ops; /* NULL: both sides are threads of the caller's */
    void *job;
    size_t max_bytes; /* of the ring */
    /* For the parked side. From any thread, without the pump's lock; not after pump_leave() has
     * returned. */
    void (*wake)(void *arg);
    void *wake_arg;
    int64_t stall_ms; /* stall timeout of the blocking side; 0: none */
    /*
     * Waking a parked reader costs more than a small message: the first bytes wake it, later
     * ones when this many wait or the oldest has waited this long (pump_poll()). 0: each write
     * wakes it.
     */
    size_t batch_bytes;
    int64_t batch_ms;
};

/* On failure the job stays the caller's. */
int pump_new(const struct pump_options *o, struct pump **ret, struct err *e);
/*
 * Starts the job now, unless it is queued or works already. Refused (ERR_EXHAUSTED) when too much
 * work waits for the pool.
 */
int pump_start(struct pump *p, struct err *e);
/*
 * The owner leaves: bytes still in the ring are dropped, unless ops.keeps; the job is closed.
 * Accepts NULL.
 */
void pump_leave(struct pump *p);
/*
 * The same, and waits until the job has ended; the work of a job that has no thread yet is done
 * here. Only when the job waits for nothing that the caller holds. Only free is called later.
 */
void pump_stop(struct pump *p);

/* The parked side. All return 0, PUMP_WAIT or an error. */
int pump_begin(struct pump *p, struct err *e); /* 0: begin has run */
/* Puts what fits. *len: how much is left, 0 unless PUMP_WAIT. */
int pump_put(struct pump *p, const void *data, size_t *len, struct err *e);
/* No more bytes will be put. 0: committed and closed. */
int pump_finish(struct pump *p, struct err *e);
/*
 * Takes up to *len bytes. *len: how many, more than 0 with result 0. Also PUMP_END. data NULL:
 * takes none, *len is how many there are.
 */
int pump_take(struct pump *p, void *data, size_t *len, struct err *e);
bool pump_keeps(const struct pump *p);

/* How many bytes were put so far. From any thread. */
uint64_t pump_received(const struct pump *p);

/* The blocking side. -ERR_CANCELED: the other side has gone or stalls. */
int pump_write(struct pump *p, const void *data, size_t len, struct err *e);
void pump_end(struct pump *p); /* no more bytes will be put */
/* Lends a piece until the next call of this side; 0 at the end. */
ssize_t pump_read(struct pump *p, const void **ret_data, struct err *e);
/* Waits until `want` bytes are there, or the end. Takes none of them. For the start of a stream. */
ssize_t pump_peek(struct pump *p, size_t want, const void **ret_data, struct err *e);
/*
 * Wakes the reader when a batch is due: a writer that works for long between writes calls it
 * often. True: the owner has left.
 */
bool pump_poll(struct pump *p);
/* How many bytes pump_read() gives without waiting; SIZE_MAX: it never waits any more. */
size_t pump_available(struct pump *p);
/*
 * The same, but waits until the job has put some or has ended. 0: the job is idle, or it got no
 * thread for a while and is called off; it calls no op before pump_start(). pump_read() must not
 * be called. So a caller on a thread of the pool never depends on a second one.
 */
size_t pump_await_job(struct pump *p);
