#pragma once
/*
 * signals: numbers and names, as `kill -l` of Debian has them. The real-time ones count from glibc's
 * SIGRTMIN, whatever libc this program has: what runs in a box and its user's shell say so.
 * Pure functions.
 */
#include <stdint.h>

#include "common/err.h"

#define SIGNAL_NAME_BYTES 16

/* "SIGKILL"; "SIGRTMIN", "SIGRTMIN+3", "SIGRTMAX"; "SIG33" for what has no name. Returns out. */
const char *signal_name(int sig, char out[SIGNAL_NAME_BYTES]);
/* "SIGKILL", "kill", any case; "RTMIN+3", "RTMAX-3"; "9". ERR_INVALID. */
int signal_parse(const char *name, int *ret, struct err *e);
int signal_check(int64_t sig, struct err *e); /* is it a signal's number (0 is not)? */
