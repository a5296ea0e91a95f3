#pragma once
/*
 * listen: listening sockets; connections are accepted on the loop's thread. A connection beyond the
 * limit gets a fixed 503 and is closed.
 */
#include "common/err.h"

struct listener;
struct server;

int listener_new_tcp(struct server *s, const char *addr, struct listener **ret, struct err *e);
int listener_new_unix(struct server *s, const char *path, struct listener **ret, struct err *e);
int listener_new_fd(struct server *s, int fd, struct listener **ret, struct err *e); /* takes fd */
int listener_start(struct listener *l, struct err *e); /* on the loop's thread */
void listener_stop(struct listener *l);                /* the same */
struct listener *listener_free(struct listener *l);    /* removes a unix socket's file */

/* Sets TCP_NODELAY, and keep-alive probes that find a vanished peer. */
void listener_tune_tcp(int fd);

const char *listener_tcp_address(const struct listener *l); /* NULL for a unix socket */
const char *listener_unix_path(const struct listener *l);
