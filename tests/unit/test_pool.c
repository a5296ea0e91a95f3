/* pthread_create() is replaced (see the Makefile), so that no thread can be made when a test says so. */
#include "event/pool.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>

#include "test.h"

static _Atomic bool is_refused;

int __real_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*fn)(void *), void *arg);
int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*fn)(void *), void *arg);

int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*fn)(void *), void *arg)
{
    return is_refused ? EAGAIN : __real_pthread_create(t, a, fn, arg);
}

struct job {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int n_run; /* guarded by lock */
};

static void run_job(void *arg)
{
    struct job *j = arg;

    (void)pthread_mutex_lock(&j->lock);
    j->n_run++;
    (void)pthread_cond_signal(&j->changed);
    (void)pthread_mutex_unlock(&j->lock);
}

TEST(pool_runs_pushed_items_on_its_own_thread_when_no_thread_can_be_made)
{
    struct job j = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0};
    struct pool_item items[3];
    struct pool *p = NULL;

    T_INT(pool_new(&p, NULL), 0);
    is_refused = true;
    /* The items take the lock: to run one in this thread would be a deadlock. */
    (void)pthread_mutex_lock(&j.lock);
    for (size_t i = 0; i < 3; i++) {
        items[i] = (struct pool_item){.fn = run_job, .arg = &j};
        pool_push(p, &items[i]);
    }
    while (j.n_run < 3)
        (void)pthread_cond_wait(&j.changed, &j.lock);
    (void)pthread_mutex_unlock(&j.lock);
    T_INT(pool_run(p, run_job, &j, NULL), 0);
    T_OK(!pool_free(p, 60000));
    T_INT(j.n_run, 4);
}

TEST(pool_is_not_made_without_a_thread)
{
    struct pool *p = NULL;
    struct err e = {0};

    is_refused = true;
    T_INT(pool_new(&p, &e), -ERR_EXHAUSTED);
    T_OK(!p);
}

static void note_signals(void *arg)
{
    (void)pthread_sigmask(SIG_SETMASK, NULL, arg);
}

TEST(pool_threads_block_every_signal_whatever_their_maker_does)
{
    struct pool *p = NULL;
    sigset_t mask;

    (void)sigemptyset(&mask);
    (void)pthread_sigmask(SIG_SETMASK, &mask, NULL);
    T_INT(pool_new(&p, NULL), 0);
    T_INT(pool_run(p, note_signals, &mask, NULL), 0);
    T_OK(!pool_free(p, 60000));
    T_OK(sigismember(&mask, SIGCHLD));
    T_OK(sigismember(&mask, SIGTERM));
    (void)pthread_sigmask(SIG_SETMASK, NULL, &mask);
    T_OK(!sigismember(&mask, SIGCHLD));
}
