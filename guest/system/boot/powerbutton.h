#pragma once
/*
 * powerbutton: the button that the machine's owner presses to have it end (ACPI; QEMU's
 * system_powerdown). Belongs to the loop's thread.
 */
#include "common/err.h"

#define POWERBUTTON_MAX_DEVICES 8

struct loop;
struct powerbutton;

/* A machine, or container, without one is fine. on_press may be called many times. */
int powerbutton_new(struct loop *l, void (*on_press)(void *arg), void *arg,
                    struct powerbutton **ret, struct err *e);
struct powerbutton *powerbutton_free(struct powerbutton *b); /* accepts NULL; returns NULL */
