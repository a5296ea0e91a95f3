#pragma once
/*
 * signals: numbers and names, as in Debian's `kill -l`. Real-time signals count from glibc's SIGRTMIN, whatever libc
 * this program uses, as programs and shells in a box do. Pure functions.
 */
#include <stdint.h>

#include "common/err.h"

#define SIGNAL_NAME_BYTES 16

/* "SIGKILL"; "SIGRTMIN", "SIGRTMIN+3", "SIGRTMAX"; "SIG33" for a number without a name. Returns out. */
const char *signal_name(int sig, char out[SIGNAL_NAME_BYTES]);
/* "SIGKILL", "kill", any case; "RTMIN+3", "RTMAX-3"; "9". ERR_INVALID. */
int signal_parse(const char *name, int *ret, struct err *e);
int signal_check(int64_t sig,
                 struct err *e); /* ERR_INVALID: not the number of a signal; 0 is none */
