/* activity: its errors. */
#include "test.h"

#include <errno.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common/mem.h"
#include "event/loop.h"
#include "event/pool.h"
#include "proc/registry.h"
#include "system/activity.h"
#include "system/hold.h"

static bool is_short; /* of memory, for the table of processes */

int __real_array_grow_bytes(void **array, size_t *cap, size_t need, size_t max, size_t size,
                            struct err *e);
int __wrap_array_grow_bytes(void **array, size_t *cap, size_t need, size_t max, size_t size,
                            struct err *e);

int __wrap_array_grow_bytes(void **array, size_t *cap, size_t need, size_t max, size_t size,
                            struct err *e)
{
    if (is_short && max == ACTIVITY_MAX_PROCESSES)
        return err_sys(e, ENOMEM, "growing an array");
    return __real_array_grow_bytes(array, cap, need, max, size, e);
}

struct rig {
    struct loop *loop;
    struct pool *pool;
    struct registry *reg;
    struct holds *holds;
    struct activity *activity;
    struct activity_facts *facts;
};

static void rig_start(struct rig *g)
{
    struct registry_options o = {0};
    struct err e = {0};

    g->facts = calloc(1, sizeof(*g->facts));
    T_OK(g->facts != NULL);
    T_INT(loop_new(&g->loop, &e), 0);
    T_INT(pool_new(&g->pool, &e), 0);
    T_INT(registry_new(g->loop, g->pool, &o, &g->reg, &e), 0);
    T_INT(holds_new(&g->holds, &e), 0);
    T_INT(activity_new(g->reg, g->holds, &g->activity, &e), 0);
}

static int rig_read(struct rig *g, struct err *e)
{
    activity_facts_done(g->facts);
    memset(g->facts, 0, sizeof(*g->facts));
    return activity_read(g->activity, g->facts, e);
}

static void rig_stop(struct rig *g)
{
    activity_facts_done(g->facts);
    free(g->facts);
    T_OK(!activity_free(g->activity));
    holds_free(g->holds);
    T_OK(!pool_free(g->pool, 2000));
    registry_free(g->reg);
    loop_free(g->loop);
}

TEST(activity_tells_out_of_memory_from_its_bound)
{
    struct rig g = {0};
    struct err e = {0};

    rig_start(&g);
    T_INT(rig_read(&g, &e), 0);
    is_short = true;
    T_INT(rig_read(&g, &e), -ERR_EXHAUSTED);
    T_INT(e.sys, ENOMEM);
    T_OK(!strstr(e.message, "processes"));
    rig_stop(&g);
}

/* Processes that can't be read would be missing from the sum: a busy box would look idle. */
TEST(activity_fails_without_descriptors_and_takes_no_sample)
{
    struct rlimit was, few;
    struct rig g = {0};
    struct err e = {0};
    int next;

    rig_start(&g);
    next = dup(STDERR_FILENO);
    T_OK(next >= 0);
    T_INT(close(next), 0);
    T_INT(getrlimit(RLIMIT_NOFILE, &was), 0);
    few = was;
    few.rlim_cur = (rlim_t)next + 1; /* one for /proc, none for its entries */
    T_INT(setrlimit(RLIMIT_NOFILE, &few), 0);
    T_INT(rig_read(&g, &e), -ERR_EXHAUSTED);
    T_INT(e.sys, EMFILE);
    T_INT(setrlimit(RLIMIT_NOFILE, &was), 0);
    T_INT(rig_read(&g, &e), 0);
    T_INT(g.facts->cpu.window_ms, 0); /* this is the first sample */
    rig_stop(&g);
}
