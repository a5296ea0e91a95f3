#include "common/mem.h"

#include <stdbool.h>

/* mimalloc, in the release build: its heap returns free memory only when it is used, or collected. */
void mi_collect(bool force) __attribute__((weak));

void mem_trim_heap(void)
{
    if (mi_collect)
        mi_collect(true);
}
