#pragma once
/*
 * fault: errors of the kernel with the messages and codes of E2B's envd, which often differ from those that err_sys()
 * chooses for an errno. Like err.h's functions, each returns -code.
 */
#include "common/err.h"

/* "WHAT: no such file or directory", with this code; the errno is kept. */
int fault_sys(struct err *e, enum err_code code, int sys, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* The same for an error of guest/fs: an error without an errno (a path outside the root) is kept unchanged. */
int fault_of(struct err *e, enum err_code code, const struct err *inner, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
