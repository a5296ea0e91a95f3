#pragma once
/*
 * fault: what the kernel said no to, in the words and with the codes that E2B's clients know, which
 * are often not those an errno has elsewhere. As err.h's functions, each returns -code.
 */
#include "common/err.h"

/* "WHAT: no such file or directory", with this code; the errno is kept. */
int fault_sys(struct err *e, enum err_code code, int sys, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* The same of an error of guest/fs: a path outside the root keeps its own code and words. */
int fault_of(struct err *e, enum err_code code, const struct err *inner, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
