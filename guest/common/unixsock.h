#pragma once
/* unixsock: binds and connects unix sockets. */
#include <stdbool.h>
#include <sys/types.h>

#include "common/err.h"

/* The socket is bound, not listening, non-blocking; its file has this mode. A stale socket is replaced; any other
 * file at the path is ERR_EXISTS. Before there are threads (umask). */
int unixsock_bind(const char *path, mode_t mode, int *ret_fd, struct err *e);

/* The socket is blocking. */
int unixsock_connect(const char *path, int *ret_fd, struct err *e);
