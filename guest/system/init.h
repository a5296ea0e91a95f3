#pragma once
/*
 * init: what pid 1 of a box does besides. In a container everything is mounted already and
 * nothing is; in a virtual machine whose kernel started us, the file systems are ours to mount and
 * the power ours to turn off.
 */
#include <stdbool.h>

#include "common/err.h"

/* Mounts /proc, /sys, /dev and the like when we are a machine's first process. */
int init_set_up(struct err *e);
/* The only process that may signal everything: pid 1 of a pid namespace. */
bool init_is_pid_1(void);
void init_signal_all(int sig); /* pid 1 only: every other process of the box */
bool init_has_others(void);    /* pid 1 only: is there any other process? */
/* The last thing: in a machine of our own, writes back and powers off. Else returns. */
void init_power_off(void);
