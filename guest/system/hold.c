#include "system/hold.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/io.h"
#include "common/str.h"

#define GENERATED_ID_BYTES 8

struct holds {
    pthread_mutex_t lock;
    /* guarded by lock: */
    struct hold list[HOLD_MAX];
    size_t n;
    int64_t ended_mono_ms;
};

int holds_new(struct holds **ret, struct err *e)
{
    struct holds *h = calloc(1, sizeof(*h));

    if (!h)
        return err_oom(e);
    (void)pthread_mutex_init(&h->lock, NULL);
    *ret = h;
    return 0;
}

struct holds *holds_free(struct holds *h)
{
    if (!h)
        return NULL;
    (void)pthread_mutex_destroy(&h->lock);
    free(h);
    return NULL;
}

/* ---- with the lock ---- */

static void holds_drop(struct holds *h, size_t i, int64_t when_ms)
{
    if (when_ms > h->ended_mono_ms)
        h->ended_mono_ms = when_ms;
    memmove(&h->list[i], &h->list[i + 1], (h->n - i - 1) * sizeof(h->list[0]));
    h->n--;
}

static void holds_drop_expired(struct holds *h)
{
    int64_t now_ms = clock_mono_ms();

    for (size_t i = h->n; i-- > 0;)
        if (h->list[i].until_mono_ms && h->list[i].until_mono_ms <= now_ms)
            holds_drop(h, i, h->list[i].until_mono_ms);
}

static struct hold *holds_find(struct holds *h, const char *id)
{
    for (size_t i = 0; i < h->n; i++)
        if (str_eq(h->list[i].id, id))
            return &h->list[i];
    return NULL;
}

static int holds_check_room(const struct holds *h, const struct hold *ask, struct err *e)
{
    size_t n = 0;

    if (h->n == HOLD_MAX)
        return err_set(e, ERR_EXHAUSTED, "there are %d holds, the most allowed", HOLD_MAX);
    for (size_t i = 0; ask->is_local && i < h->n; i++)
        n += h->list[i].is_local && h->list[i].uid == ask->uid;
    if (n < HOLD_MAX_PER_USER)
        return 0;
    return err_set(e, ERR_EXHAUSTED, "user %u has %d holds, the most allowed", ask->uid,
                   HOLD_MAX_PER_USER);
}

static int holds_put(struct holds *h, struct hold *ask, struct err *e)
{
    struct hold *old = holds_find(h, ask->id);
    int r;

    ask->since_mono_ms = old ? old->since_mono_ms : clock_mono_ms();
    if (old && ask->is_local && !(old->is_local && old->uid == ask->uid))
        return err_field(e, ERR_DENIED, "id", "'%s' is somebody else's", ask->id);
    if (old && ask->is_new)
        return err_field(e, ERR_EXISTS, "id", "'%s' is in force", ask->id);
    if (old) {
        *old = *ask;
        return 0;
    }
    r = holds_check_room(h, ask, e);
    if (r == 0)
        h->list[h->n++] = *ask;
    return r;
}

int holds_take(struct holds *h, struct hold *ask, struct err *e)
{
    int r = 0;

    if (!ask->id[0])
        r = io_random_hex(GENERATED_ID_BYTES, ask->id, e);
    if (r < 0)
        return r;
    (void)pthread_mutex_lock(&h->lock);
    holds_drop_expired(h);
    r = holds_put(h, ask, e);
    (void)pthread_mutex_unlock(&h->lock);
    return r;
}

int holds_release(struct holds *h, const char *id, uid_t uid, struct err *e)
{
    struct hold *old;
    int r = 0;

    (void)pthread_mutex_lock(&h->lock);
    holds_drop_expired(h);
    old = holds_find(h, id);
    if (!old)
        r = err_field(e, ERR_NOT_FOUND, "id", "there is no hold '%.128s'", id);
    else if (uid != (uid_t)-1 && !(old->is_local && old->uid == uid))
        r = err_field(e, ERR_DENIED, "id", "'%.128s' is somebody else's", id);
    else
        holds_drop(h, (size_t)(old - h->list), clock_mono_ms());
    (void)pthread_mutex_unlock(&h->lock);
    return r;
}

int holds_list(struct holds *h, struct hold **ret, size_t *ret_n, struct err *e)
{
    struct hold *copy;

    (void)pthread_mutex_lock(&h->lock);
    holds_drop_expired(h);
    copy = calloc(h->n ? h->n : 1, sizeof(*copy));
    if (copy) {
        memcpy(copy, h->list, h->n * sizeof(*copy));
        *ret_n = h->n;
    }
    (void)pthread_mutex_unlock(&h->lock);
    if (!copy)
        return err_oom(e);
    *ret = copy;
    return 0;
}

unsigned holds_count(struct holds *h)
{
    unsigned n;

    (void)pthread_mutex_lock(&h->lock);
    holds_drop_expired(h);
    n = (unsigned)h->n;
    (void)pthread_mutex_unlock(&h->lock);
    return n;
}

int64_t holds_ended_mono_ms(struct holds *h)
{
    int64_t ms;

    (void)pthread_mutex_lock(&h->lock);
    holds_drop_expired(h);
    ms = h->ended_mono_ms;
    (void)pthread_mutex_unlock(&h->lock);
    return ms;
}
