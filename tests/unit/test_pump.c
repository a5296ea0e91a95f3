#include "test.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>

#include "common/clock.h"
#include "event/pool.h"
#include "event/pump.h"

#define STALL_MS 60000    /* a bound against a hang */
#define SHORT_STALL_MS 50 /* for the tests that wait for its end */

/* A job whose every call is counted, and which can be held up. */
struct job {
    sem_t gate; /* write() waits here while is_held */
    atomic_bool is_held;
    atomic_int n_begun, n_closed, n_freed, n_committed;
    atomic_size_t n_bytes;
    int fail_after; /* bytes; 0: never */
    size_t left;    /* bytes that read() still gives */
    sem_t woken;
    atomic_int n_woken;
};

static struct pool *pool;
static struct err e;

static void job_init(struct job *j)
{
    *j = (struct job){0};
    (void)sem_init(&j->gate, 0, 0);
    (void)sem_init(&j->woken, 0, 0);
    if (!pool)
        T_INT(pool_new(&pool, NULL), 0);
}

static int job_begin(void *arg, struct err *err)
{
    struct job *j = arg;

    (void)err;
    j->n_begun++;
    return 0;
}

static int job_write(void *arg, const void *data, size_t len, struct err *err)
{
    struct job *j = arg;

    if (j->is_held)
        (void)sem_wait(&j->gate);
    for (size_t i = 0; i < len; i++)
        if (((const unsigned char *)data)[i] != (unsigned char)(j->n_bytes + i))
            return err_set(err, ERR_DATA_LOSS, "byte %zu", j->n_bytes + i);
    j->n_bytes += len;
    if (j->fail_after && j->n_bytes >= (size_t)j->fail_after)
        return err_set(err, ERR_EXHAUSTED, "no room");
    return 0;
}

static int job_read(void *arg, void *data, size_t size, size_t *ret_len, struct err *err)
{
    struct job *j = arg;
    size_t n = size < j->left ? size : j->left;

    if (j->fail_after && j->n_bytes >= (size_t)j->fail_after)
        return err_set(err, ERR_EXHAUSTED, "no more");
    for (size_t i = 0; i < n; i++)
        ((unsigned char *)data)[i] = (unsigned char)(j->n_bytes + i);
    j->n_bytes += n;
    j->left -= n;
    *ret_len = n;
    return 0;
}

static int job_commit(void *arg, struct err *err)
{
    struct job *j = arg;

    (void)err;
    j->n_committed++;
    return 0;
}

static void job_close(void *arg)
{
    struct job *j = arg;

    j->n_closed++;
}

static void job_free(void *arg)
{
    struct job *j = arg;

    j->n_freed++;
}

static void job_wake(void *arg)
{
    struct job *j = arg;

    j->n_woken++;
    (void)sem_post(&j->woken);
}

static const struct pump_ops writer = {.begin = job_begin,
                                       .write = job_write,
                                       .commit = job_commit,
                                       .close = job_close,
                                       .free = job_free};
static const struct pump_ops reader = {.read = job_read, .close = job_close, .free = job_free};

static struct pump *new_stalling_pump(struct job *j, const struct pump_ops *ops, size_t max_bytes,
                                      int64_t stall_ms)
{
    const struct pump_options o = {.pool = pool,
                                   .ops = ops,
                                   .job = j,
                                   .max_bytes = max_bytes,
                                   .wake = job_wake,
                                   .wake_arg = j,
                                   .stall_ms = stall_ms};
    struct pump *p = NULL;

    T_INT(pump_new(&o, &p, &e), 0);
    return p;
}

static struct pump *new_pump(struct job *j, const struct pump_ops *ops, size_t max_bytes)
{
    return new_stalling_pump(j, ops, max_bytes, STALL_MS);
}

static int wait_for(struct job *j, struct pump *p, int (*look)(struct pump *p, struct err *e))
{
    int r;

    while ((r = look(p, &e)) == PUMP_WAIT)
        (void)sem_wait(&j->woken);
    return r;
}

static void await(atomic_int *n, int want)
{
    for (int64_t until = clock_mono_ms() + STALL_MS; *n < want && clock_mono_ms() < until;)
        (void)sched_yield();
    T_INT(*n, want);
}

/* Until the pool has nothing to do. */
static void await_idle_pool(void)
{
    unsigned busy = 1, waiting = 1;

    for (int64_t until = clock_mono_ms() + STALL_MS;
         (busy || waiting) && clock_mono_ms() < until;) {
        (void)sched_yield();
        pool_counts(pool, &busy, &waiting);
    }
    T_INT(busy + waiting, 0);
}

static int put_all(struct job *j, struct pump *p, size_t from, size_t n)
{
    unsigned char data[300];
    int r = 0;

    while (n && r >= 0) {
        size_t piece = n < sizeof(data) ? n : sizeof(data), left = piece;

        for (size_t i = 0; i < piece; i++)
            data[i] = (unsigned char)(from + i);
        while ((r = pump_put(p, data + (piece - left), &left, &e)) == PUMP_WAIT)
            (void)sem_wait(&j->woken);
        from += piece;
        n -= piece;
    }
    return r;
}

TEST(pump_carries_a_body_to_a_job_and_commits)
{
    struct job j;
    struct pump *p;

    job_init(&j);
    p = new_pump(&j, &writer, 1000);
    T_INT(wait_for(&j, p, pump_begin), 0);
    T_INT(put_all(&j, p, 0, 100000), 0);
    T_INT(wait_for(&j, p, pump_finish), 0);
    T_INT(j.n_bytes, 100000);
    T_INT(j.n_begun, 1);
    T_INT(j.n_committed, 1);
    T_INT(j.n_closed, 1);
    pump_leave(p);
    await(&j.n_freed, 1);
    T_INT(j.n_closed, 1);
}

TEST(pump_that_is_full_holds_no_thread_once_it_is_empty_again)
{
    struct job j;
    struct pump *p;
    char data[100] = {0};
    size_t left = sizeof(data);

    job_init(&j);
    p = new_pump(&j, &writer, 1000);
    T_INT(wait_for(&j, p, pump_begin), 0);
    for (int i = 0; i < 100; i++)
        data[i] = (char)i;
    T_INT(pump_put(p, data, &left, &e), 0);
    await_idle_pool(); /* the client sends nothing: no thread waits for it */
    T_INT(j.n_bytes, 100);
    pump_leave(p);
    await(&j.n_freed, 1);
    T_INT(j.n_closed, 1);
    T_INT(j.n_committed, 0);
}

TEST(pump_is_bounded_and_wakes_when_half_is_free)
{
    unsigned char data[2000];
    size_t left = sizeof(data);
    struct job j;
    struct pump *p;
    int woken;

    job_init(&j);
    for (size_t i = 0; i < sizeof(data); i++)
        data[i] = (unsigned char)i;
    p = new_pump(&j, &writer, 1000);
    T_INT(wait_for(&j, p, pump_begin), 0);
    j.is_held = true;
    woken = j.n_woken;
    T_INT(pump_put(p, data, &left, &e), PUMP_WAIT);
    T_INT(left, 1000);
    T_INT(j.n_woken, woken);
    j.is_held = false;
    (void)sem_post(&j.gate);
    await(&j.n_woken, woken + 1);
    T_INT(pump_put(p, data + 1000, &left, &e), 0);
    T_INT(wait_for(&j, p, pump_finish), 0);
    T_INT(j.n_bytes, 2000);
    pump_leave(p);
    await(&j.n_freed, 1);
}

TEST(pump_tells_the_jobs_error_to_the_writer)
{
    struct job j;
    struct pump *p;

    job_init(&j);
    j.fail_after = 5000;
    p = new_pump(&j, &writer, 1000);
    T_INT(put_all(&j, p, 0, 100000), -ERR_EXHAUSTED);
    T_STR(e.message, "no room");
    await(&j.n_closed, 1);
    T_INT(wait_for(&j, p, pump_finish), -ERR_EXHAUSTED);
    pump_leave(p);
    await(&j.n_freed, 1);
    T_INT(j.n_committed, 0);
}

TEST(pump_keeps_what_was_put_before_the_owner_left)
{
    struct pump_ops keeping = writer;
    struct job j;
    struct pump *p;

    keeping.keeps = true;
    job_init(&j);
    p = new_pump(&j, &keeping, 1000);
    T_INT(wait_for(&j, p, pump_begin), 0);
    j.is_held = true;
    T_INT(put_all(&j, p, 0, 900), 0);
    pump_leave(p);
    j.is_held = false;
    (void)sem_post(&j.gate);
    await(&j.n_freed, 1);
    T_INT(j.n_bytes, 900);
    T_INT(j.n_closed, 1);
    T_INT(j.n_committed, 0);
}

/* Takes to the end; checks each byte. */
static int take_all(struct job *j, struct pump *p, size_t *ret_n)
{
    unsigned char data[301];
    int r;

    *ret_n = 0;
    for (;;) {
        size_t n = sizeof(data);

        r = pump_take(p, data, &n, &e);
        if (r == PUMP_WAIT)
            (void)sem_wait(&j->woken);
        else if (r != 0)
            return r;
        for (size_t i = 0; r == 0 && i < n; i++)
            T_INT(data[i], (unsigned char)(*ret_n + i));
        *ret_n += n;
    }
}

TEST(pump_reads_ahead_from_a_job_to_the_end)
{
    struct job j;
    struct pump *p;
    size_t n;

    job_init(&j);
    j.left = 100000;
    p = new_pump(&j, &reader, 1000);
    T_INT(take_all(&j, p, &n), PUMP_END);
    T_INT(n, 100000);
    await_idle_pool();
    pump_leave(p);
    await(&j.n_freed, 1);
    T_INT(j.n_closed, 1);
}

TEST(pump_gives_the_bytes_before_the_error)
{
    struct job j;
    struct pump *p;
    size_t n;

    job_init(&j);
    j.left = 100000;
    j.fail_after = 5000;
    p = new_pump(&j, &reader, 1000);
    T_INT(take_all(&j, p, &n), -ERR_EXHAUSTED);
    T_STR(e.message, "no more");
    T_INT(n, j.n_bytes);
    T_OK(n >= 5000);
    pump_leave(p);
    await(&j.n_freed, 1);
}

TEST(pump_of_which_nothing_is_taken_is_closed_on_the_pool)
{
    struct job j;
    struct pump *p;

    job_init(&j);
    p = new_pump(&j, &reader, 1000);
    pump_leave(p);
    await(&j.n_freed, 1);
    T_INT(j.n_closed, 1);
}

/* ---- a job that blocks ----------------------------------------------------------------------- */

static int run_reader(void *arg, struct pump *p, struct err *err)
{
    struct job *j = arg;
    const void *data;
    ssize_t n;

    while ((n = pump_read(p, &data, err)) > 0)
        if (job_write(j, data, (size_t)n, err) < 0)
            return -ERR_DATA_LOSS;
    return (int)n;
}

static const struct pump_ops running = {.begin = job_begin,
                                        .run = run_reader,
                                        .commit = job_commit,
                                        .close = job_close,
                                        .free = job_free};

TEST(pump_runs_a_job_that_pulls)
{
    struct job j;
    struct pump *p;

    job_init(&j);
    p = new_pump(&j, &running, 1000);
    T_INT(wait_for(&j, p, pump_begin), 0);
    T_INT(put_all(&j, p, 0, 50000), 0);
    T_INT(wait_for(&j, p, pump_finish), 0);
    T_INT(j.n_bytes, 50000);
    T_INT(j.n_committed, 1);
    T_INT(j.n_closed, 1);
    pump_leave(p);
    await(&j.n_freed, 1);
}

/* Returns before the end, once the gate is open. */
static int run_short(void *arg, struct pump *p, struct err *err)
{
    struct job *j = arg;
    const void *data;
    ssize_t n = pump_read(p, &data, err);

    (void)sem_wait(&j->gate);
    return n < 0 ? (int)n : 0;
}

static const struct pump_ops short_running = {.begin = job_begin,
                                              .run = run_short,
                                              .commit = job_commit,
                                              .close = job_close,
                                              .free = job_free};

static struct pump *new_short_run(struct job *j)
{
    struct pump *p;

    job_init(j);
    p = new_pump(j, &short_running, 1000);
    T_INT(wait_for(j, p, pump_begin), 0);
    return p;
}

TEST(pump_wakes_the_parked_writer_when_run_returns_before_the_end)
{
    char data[3000] = {0};
    size_t left = sizeof(data);
    struct job j;
    struct pump *p = new_short_run(&j);

    T_INT(pump_put(p, data, &left, &e), PUMP_WAIT);
    (void)sem_post(&j.gate);
    while (pump_put(p, data, &left, &e) == PUMP_WAIT)
        (void)sem_wait(&j.woken);
    T_INT(pump_put(p, data, &left, &e), -ERR_INVALID);
    pump_leave(p);
    await(&j.n_freed, 1);
    T_INT(j.n_closed, 1);
    T_INT(j.n_committed, 0);
}

TEST(pump_refuses_bytes_put_after_run_has_returned)
{
    char data[100] = {0};
    size_t left = 10;
    struct job j;
    struct pump *p = new_short_run(&j);

    T_INT(pump_put(p, data, &left, &e), 0);
    (void)sem_post(&j.gate);
    await_idle_pool();
    left = sizeof(data);
    T_INT(pump_put(p, data, &left, &e), -ERR_INVALID);
    T_INT(wait_for(&j, p, pump_finish), -ERR_INVALID);
    pump_leave(p);
    await(&j.n_freed, 1);
    T_INT(j.n_closed, 1);
    T_INT(j.n_committed, 0);
}

TEST(pump_commits_nothing_when_run_leaves_bytes)
{
    char data[100] = {0};
    size_t left = 10;
    struct job j;
    struct pump *p = new_short_run(&j);

    T_INT(pump_put(p, data, &left, &e), 0);
    (void)sem_post(&j.gate);
    await_idle_pool(); /* 10 bytes are lent or unread */
    T_INT(wait_for(&j, p, pump_finish), 0);
    pump_leave(p);
    await(&j.n_freed, 1);
    T_INT(j.n_committed, 1);

    p = new_short_run(&j);
    left = 10;
    T_INT(pump_put(p, data, &left, &e), 0);
    while (pump_available(p)) /* until run has read these */
        (void)sched_yield();
    left = 10;
    T_INT(pump_put(p, data, &left, &e), 0);
    T_INT(pump_finish(p, &e), PUMP_WAIT);
    (void)sem_post(&j.gate);
    T_INT(wait_for(&j, p, pump_finish), -ERR_INVALID);
    pump_leave(p);
    await(&j.n_freed, 1);
    T_INT(j.n_committed, 0);
}

TEST(pump_reader_gives_up_when_the_writer_leaves)
{
    struct job j;
    struct pump *p;

    job_init(&j);
    p = new_pump(&j, &running, 1000);
    T_INT(wait_for(&j, p, pump_begin), 0);
    T_INT(put_all(&j, p, 0, 10), 0);
    pump_stop(p);
    await(&j.n_freed, 1);
    T_INT(j.n_closed, 1);
    T_INT(j.n_committed, 0);
}

TEST(pump_reader_gives_up_after_the_stall_timeout)
{
    struct job j;
    struct pump *p;

    job_init(&j);
    p = new_stalling_pump(&j, &running, 1000, SHORT_STALL_MS);
    T_INT(wait_for(&j, p, pump_begin), 0);
    await(&j.n_closed, 1);
    T_INT(wait_for(&j, p, pump_finish), -ERR_CANCELED);
    pump_leave(p);
}

TEST(pump_writer_gives_up_after_the_stall_timeout)
{
    char data[2000] = {0};
    struct job j;
    struct pump *p;

    job_init(&j);
    p = new_stalling_pump(&j, NULL, 1000, SHORT_STALL_MS);
    T_INT(pump_write(p, data, 1000, &e), 0);
    T_INT(pump_write(p, data, 1, &e), -ERR_CANCELED);
    pump_leave(p);
}

TEST(pump_peek_takes_nothing_and_read_lends)
{
    const void *data;
    struct job j;
    struct pump *p;

    job_init(&j);
    p = new_pump(&j, NULL, 1000);
    T_INT(pump_write(p, "abcdef", 6, &e), 0);
    pump_end(p);
    T_INT(pump_peek(p, 6, &data, &e), 6);
    T_INT(pump_available(p), SIZE_MAX);
    T_INT(pump_read(p, &data, &e), 6);
    T_MEM(data, "abcdef", 6);
    T_INT(pump_read(p, &data, &e), 0);
    pump_leave(p);
}

/* ---- a pool with no thread left -------------------------------------------------------------- */

struct hold {
    sem_t gate;
    atomic_int n_held, n_done;
};

static void hold_thread(void *arg)
{
    struct hold *h = arg;

    h->n_held++;
    (void)sem_wait(&h->gate);
    h->n_done++;
}

static void hold_pool(struct hold *h)
{
    *h = (struct hold){0};
    (void)sem_init(&h->gate, 0, 0);
    for (int i = 0; i < POOL_MAX_THREADS; i++)
        T_INT(pool_run(pool, hold_thread, h, NULL), 0);
    await(&h->n_held, POOL_MAX_THREADS);
}

static void release_pool(struct hold *h)
{
    for (int i = 0; i < POOL_MAX_THREADS; i++)
        (void)sem_post(&h->gate);
    await(&h->n_done, POOL_MAX_THREADS);
}

TEST(pump_await_job_gives_up_on_a_job_without_a_thread)
{
    const void *data;
    struct hold h;
    struct job j;
    struct pump *p;

    job_init(&j);
    hold_pool(&h);
    j.left = 100;
    p = new_pump(&j, &reader, 1000);
    T_INT(pump_start(p, &e), 0);
    T_INT(pump_await_job(p), 0);
    T_INT(pump_start(p, &e), 0);
    T_INT(pump_await_job(p), 0); /* without a wait: the same job */
    release_pool(&h);
    await_idle_pool();
    T_INT(j.n_bytes, 0); /* the job that was called off has done nothing */
    do                   /* on a busy machine even a free thread may come too late */
        T_INT(pump_start(p, &e), 0);
    while (pump_await_job(p) == 0);
    T_OK(pump_read(p, &data, &e) > 0);
    pump_stop(p);
    await(&j.n_freed, 1);
    T_INT(j.n_closed, 1);
}

TEST(pump_stop_waits_for_no_thread)
{
    struct hold h;
    struct job j;
    struct pump *p;

    job_init(&j);
    hold_pool(&h);
    j.left = 100;
    p = new_pump(&j, &reader, 1000);
    T_INT(pump_start(p, &e), 0);
    pump_stop(p);
    T_INT(j.n_closed, 1);
    release_pool(&h);
    await(&j.n_freed, 1);
    T_INT(j.n_closed, 1);
    T_INT(j.n_bytes, 0);
}

TEST(pump_leave_closes_a_job_that_was_called_off)
{
    struct hold h;
    struct job j;
    struct pump *p;

    job_init(&j);
    hold_pool(&h);
    p = new_pump(&j, &reader, 1000);
    T_INT(pump_start(p, &e), 0);
    T_INT(pump_await_job(p), 0);
    pump_leave(p);
    T_INT(j.n_closed, 0);
    release_pool(&h);
    await(&j.n_freed, 1);
    T_INT(j.n_closed, 1);
}

/* ---- batches --------------------------------------------------------------------------------- */

TEST(pump_wakes_for_the_first_bytes_then_for_a_batch)
{
    struct job j;
    struct pump_options o;
    struct pump *p = NULL;
    char data[100] = {0};
    size_t n = sizeof(data);

    job_init(&j);
    o = (struct pump_options){
        .max_bytes = 1000, .wake = job_wake, .wake_arg = &j, .batch_bytes = 50, .batch_ms = 1};
    T_INT(pump_new(&o, &p, &e), 0);
    T_INT(pump_take(p, data, &n, &e), PUMP_WAIT);
    T_INT(pump_write(p, "1", 1, &e), 0);
    T_INT(j.n_woken, 1); /* the first */
    n = sizeof(data);
    T_INT(pump_take(p, data, &n, &e), 0);
    n = sizeof(data);
    T_INT(pump_take(p, data, &n, &e), PUMP_WAIT);
    T_INT(pump_take(p, NULL, &n, &e), PUMP_WAIT);
    T_INT(n, 0);
    T_INT(pump_write(p, data, 60, &e), 0);
    T_INT(j.n_woken, 2); /* as many as a batch */
    T_INT(pump_take(p, NULL, &n, &e), 0);
    T_INT(n, 60);
    n = sizeof(data);
    T_INT(pump_take(p, data, &n, &e), 0);
    T_INT(n, 60);
    n = sizeof(data);
    T_INT(pump_take(p, data, &n, &e), PUMP_WAIT);
    T_INT(pump_write(p, "2", 1, &e), 0);
    while (j.n_woken < 3) /* the flush deadline */
        T_OK(!pump_poll(p));
    pump_leave(p);
}
