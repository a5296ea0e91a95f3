#pragma once
/*
 * guard: the monitor's parent process. It restarts a monitor that a signal killed (kill -9, the
 * OOM killer, a crash), so that the box's ports answer and its lease is kept without a command. It
 * exits with a monitor that exits by itself.
 */
#include <stdbool.h>

/*
 * Returns in each monitor process: false in the first, true in one that replaces a killed one. The
 * guard closes ready_fd (-1: none) and appears as ".../bellhop-guard" in ps. Call it before there
 * are threads or other state that fork() would duplicate.
 */
bool guard_begin(char *argv0, int ready_fd);
