#pragma once
/* pty: a pseudo terminal. Both descriptors are the caller's; the master does not block. */
#include <stdbool.h>
#include <sys/types.h>

#include "common/err.h"

#define PTY_MAX_SIDE 10000 /* columns or rows */

struct pty_options {
    unsigned cols, rows;
    bool is_raw; /* every byte goes through as it is, in both directions, and nothing is echoed */
    uid_t owner; /* who shall own the terminal; -1: nobody else */
};

int pty_open(const struct pty_options *o, int *ret_master, int *ret_slave, struct err *e);
int pty_resize(int master, unsigned cols, unsigned rows, struct err *e);
