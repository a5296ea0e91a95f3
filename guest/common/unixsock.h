#pragma once
/* unixsock: a unix socket to listen on, or to a listener. */
#include <stdbool.h>
#include <sys/types.h>

#include "common/err.h"

/* Bound, not yet listening, non-blocking; its file has this mode. A file that nobody listens on any
 * more is replaced; anything else in the way is ERR_EXISTS. Before there are threads (umask). */
int unixsock_bind(const char *path, mode_t mode, int *ret_fd, struct err *e);

/* Blocking. */
int unixsock_connect(const char *path, int *ret_fd, struct err *e);
