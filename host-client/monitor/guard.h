#pragma once
/*
 * guard: the monitor's parent process. It does nothing but start the monitor again when a signal has
 * killed it (kill -9, the kernel for want of memory, a crash), so that the box's ports answer again
 * and its time is kept without anybody asking. It ends with a monitor that has ended by itself.
 */
#include <stdbool.h>

/*
 * Returns in each process that is to be the monitor: false in the first, true in one that takes the
 * place of one that was killed. The guard closes ready_fd (-1: none) and shows itself as
 * ".../bellhop-guard" to ps. Call it before there are threads or anything else that fork() divides.
 */
bool guard_begin(char *argv0, int ready_fd);
