#pragma once
/* mem: returns free heap memory to the system. */

/*
 * Returns the free memory of the calling thread's heap to the system; does nothing with other allocators than
 * mimalloc. Takes tens of microseconds: for the end of a burst, not for each call.
 */
void mem_trim_heap(void);
