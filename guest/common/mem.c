#include "common/mem.h"

#include <stdbool.h>

/* mimalloc's, in the agent that ships: what is free goes back when its heap is used, or asked. */
void mi_collect(bool force) __attribute__((weak));

void mem_give_back(void)
{
    if (mi_collect)
        mi_collect(true);
}
