/* activity: its errors. */
#include "test.h"

#include <errno.h>

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

TEST(activity_tells_out_of_memory_from_its_bound)
{
    struct activity_facts *f = calloc(1, sizeof(*f));
    struct registry_options o = {0};
    struct registry *reg = NULL;
    struct activity *a = NULL;
    struct holds *holds = NULL;
    struct loop *loop = NULL;
    struct pool *pool = NULL;
    struct err e = {0};

    T_INT(loop_new(&loop, &e), 0);
    T_INT(pool_new(&pool, &e), 0);
    T_INT(registry_new(loop, pool, &o, &reg, &e), 0);
    T_INT(holds_new(&holds, &e), 0);
    T_INT(activity_new(reg, holds, &a, &e), 0);
    T_INT(activity_read(a, f, &e), 0);
    activity_facts_done(f);
    memset(f, 0, sizeof(*f));
    is_short = true;
    T_INT(activity_read(a, f, &e), -ERR_EXHAUSTED);
    T_INT(e.sys, ENOMEM);
    T_OK(!strstr(e.message, "processes"));
    activity_facts_done(f);
    free(f);
    T_OK(!activity_free(a));
    holds_free(holds);
    T_OK(!pool_free(pool, 2000));
    registry_free(reg);
    loop_free(loop);
}
