#pragma once
/*
 * powerbutton: watches the power button of a machine (ACPI; QEMU's system_powerdown). For the loop's thread
 * only.
 */
#include "common/err.h"

#define POWERBUTTON_MAX_DEVICES 8

struct loop;
struct powerbutton;

/* Succeeds without a button too. on_press may be called many times. */
int powerbutton_new(struct loop *l, void (*on_press)(void *arg), void *arg,
                    struct powerbutton **ret, struct err *e);
struct powerbutton *powerbutton_free(struct powerbutton *b); /* accepts NULL; returns NULL */
