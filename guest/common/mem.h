#pragma once
/* mem: memory that is free but not given back to the system yet. */

/*
 * Gives back what the calling thread has left of a burst; nothing where the allocator in use does
 * not keep any. Some tens of microseconds: for when a burst is over, not for each call.
 */
void mem_give_back(void);
