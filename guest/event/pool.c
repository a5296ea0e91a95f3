#include "event/pool.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

#include "common/cleanup.h"
#include "common/clock.h"

struct pool {
    pthread_mutex_t lock;
    pthread_cond_t work; /* an item waits, or stopping */
    pthread_cond_t gone; /* a thread has ended */
    pthread_attr_t attr;
    /* guarded by lock: */
    struct pool_item *first, *last;
    unsigned n_waiting;
    unsigned n_threads;
    unsigned n_idle;
    bool stopping;
};

/* Called with the lock. Waits for the next item; NULL: this thread ends. The last thread stays. */
static struct pool_item *next_item(struct pool *p)
{
    struct timespec until = clock_timespec(clock_mono_ms() + POOL_IDLE_MS);
    struct pool_item *item;

    while (!p->first && !p->stopping) {
        bool is_over;

        p->n_idle++;
        if (p->n_threads > 1)
            is_over = pthread_cond_timedwait(&p->work, &p->lock, &until) != 0;
        else
            is_over = pthread_cond_wait(&p->work, &p->lock) != 0;
        p->n_idle--;
        if (is_over && !p->first && p->n_threads > 1)
            return NULL;
    }
    item = p->first;
    if (item) {
        p->first = item->next;
        if (!p->first)
            p->last = NULL;
        p->n_waiting--;
    }
    return item;
}

static void *pool_thread_main(void *arg)
{
    struct pool *p = arg;
    struct pool_item *item;

    (void)pthread_mutex_lock(&p->lock);
    while ((item = next_item(p))) {
        void (*fn)(void *) = item->fn;
        void *fn_arg = item->arg;

        (void)pthread_mutex_unlock(&p->lock);
        if (item->is_owned)
            free(item);
        fn(fn_arg); /* the item may be used again from here on */
        (void)pthread_mutex_lock(&p->lock);
    }
    p->n_threads--;
    (void)pthread_cond_signal(&p->gone);
    (void)pthread_mutex_unlock(&p->lock);
    return NULL;
}

/* Called with the lock. */
static int add_thread(struct pool *p)
{
    pthread_t thread;
    sigset_t all, before;
    int r;

    if (p->n_threads >= POOL_MAX_THREADS)
        return -1;
    /* A signal goes to any thread that does not block it: SIGCHLD and SIGTERM are the loop's. */
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    r = pthread_create(&thread, &p->attr, pool_thread_main, p);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (r != 0)
        return -1;
    p->n_threads++;
    return 0;
}

int pool_new(struct pool **ret, struct err *e)
{
    struct pool *p = calloc(1, sizeof(*p));
    int r;

    if (!p)
        return err_oom(e);
    (void)pthread_mutex_init(&p->lock, NULL);
    clock_cond_init(&p->work);
    clock_cond_init(&p->gone);
    (void)pthread_attr_init(&p->attr);
    (void)pthread_attr_setstacksize(&p->attr, POOL_STACK_BYTES);
    (void)pthread_attr_setdetachstate(&p->attr, PTHREAD_CREATE_DETACHED);
    (void)pthread_mutex_lock(&p->lock);
    r = add_thread(p);
    (void)pthread_mutex_unlock(&p->lock);
    if (r < 0) {
        (void)pool_free(p, 0);
        return err_set(e, ERR_EXHAUSTED, "no thread can be made");
    }
    *ret = p;
    return 0;
}

/* Called with the lock. */
static void pool_append(struct pool *p, struct pool_item *item)
{
    item->next = NULL;
    if (p->last)
        p->last->next = item;
    else
        p->first = item;
    p->last = item;
    p->n_waiting++;
    if (p->n_waiting > p->n_idle)
        (void)add_thread(p); /* if this fails, the threads that exist take the item later */
}

int pool_run(struct pool *p, void (*fn)(void *arg), void *arg, struct err *e)
{
    _cleanup_free_ struct pool_item *item = malloc(sizeof(*item));
    int r = 0;

    if (!item)
        return err_oom(e);
    *item = (struct pool_item){.fn = fn, .arg = arg, .is_owned = true};
    (void)pthread_mutex_lock(&p->lock);
    if (p->stopping)
        r = err_set(e, ERR_UNAVAILABLE, "the agent is stopping");
    else if (p->n_waiting >= POOL_MAX_WAITING)
        r = err_set(e, ERR_EXHAUSTED, "%d tasks wait for a thread already", POOL_MAX_WAITING);
    else
        pool_append(p, TAKE(item));
    (void)pthread_mutex_unlock(&p->lock);
    if (r == 0) /* without the lock: the woken thread wants it at once */
        (void)pthread_cond_signal(&p->work);
    return r;
}

void pool_push(struct pool *p, struct pool_item *item)
{
    item->is_owned = false;
    (void)pthread_mutex_lock(&p->lock);
    pool_append(p, item);
    (void)pthread_mutex_unlock(&p->lock);
    (void)pthread_cond_signal(&p->work);
}

void pool_counts(struct pool *p, unsigned *ret_busy, unsigned *ret_waiting)
{
    _cleanup_unlock_ pthread_mutex_t *locked = mutex_lock(&p->lock);

    *ret_busy = p->n_threads - p->n_idle;
    *ret_waiting = p->n_waiting;
}

struct pool *pool_free(struct pool *p, int wait_ms)
{
    struct timespec until = clock_timespec(clock_mono_ms() + wait_ms);
    int r = 0;

    if (!p)
        return NULL;
    (void)pthread_mutex_lock(&p->lock);
    p->stopping = true;
    (void)pthread_cond_broadcast(&p->work);
    while (p->n_threads && r == 0)
        r = pthread_cond_timedwait(&p->gone, &p->lock, &until);
    r = p->n_threads > 0;
    (void)pthread_mutex_unlock(&p->lock);
    if (r)
        return p;
    (void)pthread_attr_destroy(&p->attr);
    (void)pthread_cond_destroy(&p->work);
    (void)pthread_cond_destroy(&p->gone);
    (void)pthread_mutex_destroy(&p->lock);
    free(p);
    return NULL;
}
