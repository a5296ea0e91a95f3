#include "common/mem.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

/* mimalloc, in the release build: its heap returns free memory only when it is used, or collected. */
void mi_collect(bool force) __attribute__((weak));
/* glibc, in the host programs and the other builds: it returns the end of its heaps by itself, and no holes. */
int malloc_trim(size_t pad) __attribute__((weak));

void mem_trim_heap(void)
{
    if (mi_collect)
        mi_collect(true);
    if (malloc_trim)
        (void)malloc_trim(0);
}

/* ---- arrays ----------------------------------------------------------------------------------- */

#define ARRAY_FIRST_CAP 8

int array_grow_bytes(void **array, size_t *cap, size_t need, size_t max, size_t size, struct err *e)
{
    size_t new_cap = *cap ? *cap : ARRAY_FIRST_CAP;
    void *moved;

    if (need <= *cap)
        return 0;
    if (need > max)
        return err_set(e, ERR_EXHAUSTED, "more than %zu elements", max);
    while (new_cap < need)
        new_cap = new_cap > max / 2 ? max : new_cap * 2;
    if (new_cap > max)
        new_cap = max;
    moved = reallocarray(*array, new_cap, size);
    if (!moved)
        return err_sys(e, ENOMEM, "growing an array to %zu elements", new_cap);
    *array = moved;
    *cap = new_cap;
    return 0;
}
