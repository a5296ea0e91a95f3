#pragma once
/* signals: numbers and names. Pure functions. */
#include <stdint.h>

#include "common/err.h"

#define SIGNAL_NAME_BYTES 16

/* "SIGKILL"; "SIGRTMIN+3"; "SIG77" for what has no name. Returns out. */
const char *signal_name(int sig, char out[SIGNAL_NAME_BYTES]);
/* "SIGKILL", "KILL", any case; "SIGRTMIN+3". ERR_INVALID. */
int signal_parse(const char *name, int *ret, struct err *e);
int signal_check(int64_t sig, struct err *e); /* is it a signal's number (0 is not)? */
