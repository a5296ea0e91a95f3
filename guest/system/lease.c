#include "system/lease.h"

#include <pthread.h>
#include <stdlib.h>

#include "common/clock.h"
#include "event/loop.h"

struct lease {
    struct loop *loop;
    void (*on_expiry)(void *arg);
    void *arg;
    struct loop_timer *timer; /* the loop's */
    pthread_mutex_t lock;
    int64_t until_ms; /* monotonic; 0: no end. Guarded by lock */
};

int lease_new(struct loop *l, void (*on_expiry)(void *arg), void *arg, struct lease **ret,
              struct err *e)
{
    struct lease *lease = calloc(1, sizeof(*lease));

    if (!lease)
        return err_oom(e);
    *lease = (struct lease){.loop = l, .on_expiry = on_expiry, .arg = arg};
    (void)pthread_mutex_init(&lease->lock, NULL);
    *ret = lease;
    return 0;
}

struct lease *lease_free(struct lease *l)
{
    if (!l)
        return NULL;
    loop_timer_del(l->timer);
    (void)pthread_mutex_destroy(&l->lock);
    free(l);
    return NULL;
}

static void lease_arm_timer(struct loop *loop, void *arg);

static void on_lease_timer(struct loop *loop, void *arg)
{
    struct lease *l = arg;

    l->timer = NULL;
    if (lease_left_ms(l) == 0)
        l->on_expiry(l->arg);
    else
        lease_arm_timer(loop, l);
}

/* On the loop's thread: sets the timer to the lease. */
static void lease_arm_timer(struct loop *loop, void *arg)
{
    struct lease *l = arg;
    int64_t left_ms = lease_left_ms(l);

    l->timer = loop_timer_del(l->timer);
    if (left_ms != LEASE_NONE)
        (void)loop_timer_add(loop, clock_mono_ms() + left_ms, on_lease_timer, l, &l->timer, NULL);
}

int lease_set(struct lease *l, int64_t left_ms, bool force, struct err *e)
{
    int64_t until_ms = left_ms == LEASE_NONE ? 0 : clock_mono_ms() + left_ms;
    bool is_longer;

    if (left_ms != LEASE_NONE && (left_ms < 0 || left_ms > LEASE_MAX_MS))
        return err_field(e, ERR_INVALID, "expires_in_ms",
                         "field 'expires_in_ms' must be from 0 to %lld", LEASE_MAX_MS);
    (void)pthread_mutex_lock(&l->lock);
    /* The first lease limits a life that had no limit: it always counts as longer. */
    is_longer = !l->until_ms || !until_ms || until_ms > l->until_ms;
    if (force || is_longer)
        l->until_ms = until_ms;
    (void)pthread_mutex_unlock(&l->lock);
    return loop_post(l->loop, lease_arm_timer, l, e);
}

int64_t lease_left_ms(struct lease *l)
{
    int64_t until_ms, left_ms;

    (void)pthread_mutex_lock(&l->lock);
    until_ms = l->until_ms;
    (void)pthread_mutex_unlock(&l->lock);
    if (!until_ms)
        return LEASE_NONE;
    left_ms = until_ms - clock_mono_ms();
    return left_ms > 0 ? left_ms : 0;
}
