#pragma once
/*
 * init: what pid 1 of a box, container or machine, does besides. What a machine's first process has
 * to do before is in boot/machine.h.
 */
#include <stdbool.h>

/* The only process that may signal everything: pid 1 of a pid namespace. */
bool init_is_pid_1(void);
void init_signal_all(int sig); /* pid 1 only: every other process of the box */
bool init_has_others(void);    /* pid 1 only: is there any other process? */
