#include "test.h"

#include <semaphore.h>

#include "api/queue.h"
#include "event/pool.h"

struct work {
    sem_t gate; /* work goes on */
    sem_t done;
    int r;
    struct err e;
};

static void wake(void *arg)
{
    (void)sem_post(arg);
}

static struct pool *use_pool(void)
{
    struct pool *pool = NULL;

    T_INT(pool_new(&pool, NULL), 0);
    queue_use_pool(pool);
    return pool;
}

static int push_two(struct queue *q, void *arg, struct err *e)
{
    struct work *w = arg;
    int r;

    (void)sem_wait(&w->gate);
    r = queue_push(q, "{}\n", 3, e);
    return r < 0 ? r : queue_push(q, "[]\n", 3, e);
}

TEST(queue_gives_lines_and_then_the_end)
{
    struct pool *pool = use_pool();
    struct source *s = NULL;
    struct work w = {0};
    char text[16] = "";
    sem_t woken;
    int r;

    (void)sem_init(&w.gate, 0, 0);
    (void)sem_init(&woken, 0, 0);
    T_INT(queue_source_new(push_two, &w, NULL, &s, NULL), 0);
    source_set_waker(s, wake, &woken);
    T_INT(s->ops->next(s, NULL, NULL), SOURCE_WAIT);
    (void)sem_post(&w.gate);
    while ((r = s->ops->next(s, NULL, NULL)) != SOURCE_END) {
        if (r == SOURCE_WAIT)
            (void)sem_wait(&woken);
        else
            strncat(text, s->text, s->text_len);
    }
    T_STR(text, "{}\n[]\n");
    s->ops->free(s);
    T_OK(!pool_free(pool, 60000));
}

static int push_for_ever(struct queue *q, void *arg, struct err *e)
{
    static const char line[1000] = "";
    struct work *w = arg;

    (void)e;
    while ((w->r = queue_push(q, line, sizeof(line), &w->e)) == 0)
        (void)sem_post(&w->gate);
    (void)sem_post(&w->done);
    return w->r;
}

TEST(queue_tells_the_work_that_the_client_has_gone)
{
    struct pool *pool = use_pool();
    struct source *s = NULL;
    struct work w = {0};

    (void)sem_init(&w.gate, 0, 0);
    (void)sem_init(&w.done, 0, 0);
    T_INT(queue_source_new(push_for_ever, &w, NULL, &s, NULL), 0);
    for (int i = 0; i < QUEUE_MAX_BYTES / 1000; i++) /* until the queue is full */
        (void)sem_wait(&w.gate);
    s->ops->free(s);
    (void)sem_wait(&w.done);
    T_INT(w.r, -ERR_CANCELED);
    T_STR(w.e.message, "the client has gone");
    T_OK(!pool_free(pool, 60000));
}
