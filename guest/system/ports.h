#pragma once
/*
 * ports: the ports in the box: who listens.
 *
 * The list has the listeners in the agent's network namespace, from /proc/net, and their processes. Only a
 * process's own user (and root with CAP_SYS_PTRACE) can read its sockets: the reader takes that user's ids for
 * it where it may, and reports an unknown process (pid 0) where it may not.
 *
 * The functions of the list read files of /proc that grow with the number of sockets and processes: call them on a
 * pool thread. Thread-safe.
 */
#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/err.h"

#define PORTS_MAX 1024 /* listeners in the list; more are only counted */
#define PORTS_NAME_BYTES 64
#define PORTS_EXE_BYTES 512

struct port {
    uint16_t number;
    bool is_udp;
    bool is_v6;
    bool is_loopback;  /* reachable only from inside the box */
    bool is_agent;     /* the agent's own listener */
    bool is_reachable; /* by the proxy and the tunnel: TCP that takes 127.0.0.1 or ::1 */
    char address[INET6_ADDRSTRLEN];
    uint64_t inode;
    uid_t uid;            /* owner of the socket */
    unsigned connections; /* established to this number */
    pid_t pid;            /* 0: unknown */
    char name[PORTS_NAME_BYTES];
    char exe[PORTS_EXE_BYTES]; /* "": can't be read */
};

struct ports {
    struct port *list; /* by number, then protocol and address */
    size_t n;
    size_t n_listening; /* more than n if there are more than PORTS_MAX */
    bool is_unreadable; /* no /proc/net/tcp here: the list may be incomplete */
};

#define PORTS_PROCESSES (1u << 0) /* find the processes too: reads all of /proc */

int ports_read(unsigned flags, struct ports *ret, struct err *e);
void ports_done(struct ports *p); /* accepts NULL and zeroed */

/* Established connections to listening TCP ports, except to the agent itself. */
unsigned ports_connections(const struct ports *p);
