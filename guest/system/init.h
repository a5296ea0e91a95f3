#pragma once
/*
 * init: the additional duties of pid 1 in a box, container or machine. The duties of a machine's first process
 * before that are in boot/machine.h.
 */
#include <stdbool.h>

/* Pid 1 of a pid namespace: only that process may signal all others. */
bool init_is_pid_1(void);
void init_signal_all(int sig); /* pid 1 only: every other process of the box */
bool init_has_others(void);    /* pid 1 only: is there any other process? */
