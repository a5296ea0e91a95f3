#pragma once
/* socket: unix sockets at paths of any length, and waits that can be canceled. */
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/err.h"

#define SOCKET_CONNECT_MS 10000 /* enough for a busy machine */

/*
 * A connected stream socket, blocking, close-on-exec. ERR_UNAVAILABLE: nobody listens, or the
 * backlog is still full after wait_ms.
 */
int socket_connect(const char *path, int wait_ms, int *ret_fd, struct err *e);
/* The same over TCP, with a deadline; host is an address or a name. ERR_UNAVAILABLE: nobody answers there. */
int socket_connect_tcp(const char *host, uint16_t port, int cancel_fd, int64_t deadline_mono_ms,
                       int *ret_fd, struct err *e);
/* Two connected sockets, blocking, close-on-exec. */
int socket_pair(int ret_fds[2], struct err *e);
/* A listening socket with mode 0600; an existing file at the path is removed. */
int socket_listen(const char *path, int *ret_fd, struct err *e);
/* Listens on 127.0.0.1; port 0 takes a free one. ERR_EXISTS: the port is taken; the error names
 * it. */
int socket_listen_tcp(uint16_t port, int *ret_fd, uint16_t *ret_port, struct err *e);

/* The process that listens on the other side of a connected unix socket; 0: in another PID
 * namespace. */
int socket_peer(int fd, pid_t *ret, struct err *e);

/* Waits until fd can be read (or written); -ERR_DEADLINE, -ERR_CANCELED. cancel_fd may be -1. */
int socket_wait(int fd, bool for_write, int cancel_fd, int64_t deadline_mono_ms, struct err *e);
/* Sleeps; true: canceled meanwhile. */
bool socket_wait_canceled(int cancel_fd, int ms);
