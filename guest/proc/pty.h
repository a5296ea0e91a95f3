#pragma once
/* pty: a pseudo terminal. The caller owns both descriptors; the master is non-blocking. */
#include <stdbool.h>
#include <sys/types.h>

#include "common/err.h"

#define PTY_MAX_SIDE 10000 /* columns or rows */

struct pty_options {
    unsigned cols, rows;
    bool is_raw; /* all bytes pass unchanged in both directions, and nothing is echoed */
    uid_t owner; /* the terminal is given to this user; -1: it stays the agent's */
};

int pty_open(const struct pty_options *o, int *ret_master, int *ret_slave, struct err *e);
int pty_resize(int master, unsigned cols, unsigned rows, struct err *e);
