#pragma once
/*
 * oci_seccomp: the system calls that a box may make. It is an allow list: a call that a later
 * kernel adds is refused until somebody has reviewed it. Pure data to JSON (the runtime spec's
 * "linux.seccomp").
 */
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/* NULL: out of memory. */
json_t *oci_seccomp_new(void);

/* Is the call allowed, whatever its arguments? For the tests and the docs. */
bool oci_seccomp_allows(const char *name);
