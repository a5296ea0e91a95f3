#include "archive/pipe.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct pipe_ring {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    char *data;
    size_t size;
    size_t at;       /* guarded by lock: the oldest byte held */
    size_t used;     /* guarded by lock: bytes held */
    size_t lent;     /* guarded by lock: of these, what the reader looks at now */
    bool is_ended;   /* guarded by lock */
    bool is_aborted; /* guarded by lock */
    bool is_closed;  /* guarded by lock */
};

int pipe_ring_new(size_t size, struct pipe_ring **ret, struct err *e)
{
    struct pipe_ring *p = calloc(1, sizeof(*p));

    if (p)
        p->data = malloc(size);
    if (!p || !p->data) {
        free(p);
        return err_oom(e);
    }
    p->size = size;
    (void)pthread_mutex_init(&p->lock, NULL);
    (void)pthread_cond_init(&p->changed, NULL);
    *ret = p;
    return 0;
}

struct pipe_ring *pipe_ring_free(struct pipe_ring *p)
{
    if (!p)
        return NULL;
    (void)pthread_mutex_destroy(&p->lock);
    (void)pthread_cond_destroy(&p->changed);
    free(p->data);
    free(p);
    return NULL;
}

/* Copies what fits into the ring; the lock is held. */
static size_t put(struct pipe_ring *p, const char *data, size_t len)
{
    size_t end = (p->at + p->used) % p->size;
    size_t n = p->size - p->used;

    if (n > p->size - end)
        n = p->size - end;
    if (n > len)
        n = len;
    (void)memcpy(p->data + end, data, n);
    p->used += n;
    return n;
}

bool pipe_ring_write(struct pipe_ring *p, const void *data, size_t len)
{
    const char *from = data;
    bool is_closed;

    (void)pthread_mutex_lock(&p->lock);
    while (len && !p->is_closed) {
        size_t n = put(p, from, len);

        from += n;
        len -= n;
        if (n)
            (void)pthread_cond_broadcast(&p->changed);
        else
            (void)pthread_cond_wait(&p->changed, &p->lock);
    }
    is_closed = p->is_closed;
    (void)pthread_mutex_unlock(&p->lock);
    return !is_closed;
}

static void set(struct pipe_ring *p, bool *flag)
{
    (void)pthread_mutex_lock(&p->lock);
    *flag = true;
    (void)pthread_cond_broadcast(&p->changed);
    (void)pthread_mutex_unlock(&p->lock);
}

void pipe_ring_end(struct pipe_ring *p)
{
    set(p, &p->is_ended);
}

void pipe_ring_abort(struct pipe_ring *p)
{
    set(p, &p->is_aborted);
}

void pipe_ring_close(struct pipe_ring *p)
{
    set(p, &p->is_closed);
}

static void give_back(struct pipe_ring *p)
{
    p->at = (p->at + p->lent) % p->size;
    p->used -= p->lent;
    p->lent = 0;
    (void)pthread_cond_broadcast(&p->changed);
}

ssize_t pipe_ring_peek(struct pipe_ring *p, size_t want, const void **ret_data, struct err *e)
{
    bool is_aborted;
    size_t n;

    (void)pthread_mutex_lock(&p->lock);
    if (p->lent)
        give_back(p);
    while (p->used < want && !p->is_ended && !p->is_aborted && !p->is_closed)
        (void)pthread_cond_wait(&p->changed, &p->lock);
    is_aborted = p->is_aborted || p->is_closed;
    n = p->size - p->at;
    if (n > p->used)
        n = p->used;
    *ret_data = p->data + p->at;
    (void)pthread_mutex_unlock(&p->lock);
    return is_aborted ? err_set(e, ERR_CANCELED, "the upload was given up") : (ssize_t)n;
}

ssize_t pipe_ring_read(struct pipe_ring *p, const void **ret_data, struct err *e)
{
    ssize_t n = pipe_ring_peek(p, 1, ret_data, e);

    if (n > 0) {
        (void)pthread_mutex_lock(&p->lock);
        p->lent = (size_t)n;
        (void)pthread_mutex_unlock(&p->lock);
    }
    return n;
}
