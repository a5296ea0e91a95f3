#pragma once
/* mem: heap arrays that grow up to a stated maximum; free heap memory returned to the system. */
#include <stddef.h>

#include "common/err.h"

/*
 * Returns the free memory of the calling thread's heap to the system; with glibc, that of all threads. Takes tens of
 * microseconds: for the end of a burst, not for each call.
 */
void mem_trim_heap(void);

/* ---- arrays ---- */

/*
 * Makes room for `need` elements of `size` bytes in *array, which has room for *cap: the capacity doubles,
 * and never passes `max`. New elements are not initialised. -ERR_EXHAUSTED: need > max, or out of memory;
 * *array and *cap are as they were.
 */
int array_grow_bytes(void **array, size_t *cap, size_t need, size_t max, size_t size,
                     struct err *e);

/* array_grow(&x->items, &x->cap, x->n + 1, MAX_ITEMS, e) */
#define array_grow(array, cap, need, max, e) \
    array_grow_bytes((void **)(array), (cap), (need), (max), sizeof(**(array)), (e))
