#include "http/deadline.h"

#include <stdlib.h>

#include "common/clock.h"
#include "event/loop.h"
#include "http/state.h"

/* Made on the request's thread, from then on the loop's. */
struct deadline {
    struct request *request; /* a reference, until the timer fires */
    struct loop *loop;
    struct loop_timer *timer;
    void (*due)(struct request *q);
    int64_t at_mono_ms;
};

static void on_time(struct loop *l, void *arg)
{
    struct deadline *d = arg;

    (void)l;
    d->timer = NULL;
    d->due(d->request);
    d->request = request_unref(d->request);
}

static void deadline_start(struct loop *l, void *arg)
{
    struct deadline *d = arg;

    if (loop_timer_add(l, d->at_mono_ms, on_time, d, &d->timer, NULL) < 0)
        d->request = request_unref(d->request);
}

/* It is posted after deadline_start(), and so runs after it. */
static void deadline_stop(struct loop *l, void *arg)
{
    struct deadline *d = arg;

    (void)l;
    loop_timer_del(d->timer);
    request_unref(d->request);
    free(d);
}

int deadline_new(struct request *q, int64_t in_ms, void (*due)(struct request *q),
                 struct deadline **ret, struct err *e)
{
    struct deadline *d = calloc(1, sizeof(*d));
    int r;

    if (!d)
        return err_oom(e);
    *d = (struct deadline){.request = request_ref(q),
                           .loop = q->server->o.loop,
                           .due = due,
                           .at_mono_ms = clock_mono_ms() + in_ms};
    r = loop_post(d->loop, deadline_start, d, e);
    if (r < 0) {
        request_unref(q);
        free(d);
        return r;
    }
    *ret = d;
    return 0;
}

void deadline_drop(struct deadline *d)
{
    if (d)
        (void)loop_post(d->loop, deadline_stop, d,
                        NULL); /* without memory, it lives until it fires */
}
