#pragma once
/*
 * oci_netns: lets one thread work in a box's network namespace for a moment; and lists the host's
 * own addresses, which boxes must not reach.
 */
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>

#include "common/buf.h"
#include "common/err.h"

/* Moves the calling thread into the namespace of `pid`; *ret_back leads back. */
int oci_netns_enter(pid_t pid, int *ret_back, struct err *e);
/* Moves the thread back and closes the descriptor. Aborts the process on failure. */
void oci_netns_leave(int back);

/* oci_cmd.setup: enters for good; arg is a pid_t *. */
int oci_netns_setup(void *arg, struct err *e);

int oci_netns_loopback_up(pid_t pid, struct err *e);

/* Opens a listening socket on a loopback address of the namespace. */
int oci_netns_listen(pid_t pid, const struct sockaddr *addr, socklen_t addr_len, int *ret_fd,
                     struct err *e);

/* Every non-loopback address of this machine as text, one list for each family. */
struct oci_addresses {
    char **v4;
    char **v6; /* without link-local ones */
};
int oci_addresses_read(struct oci_addresses *ret, struct err *e);
void oci_addresses_done(struct oci_addresses *a);

/* nftables rules that refuse the host's addresses, link-local ones and `gateway`. */
int oci_netns_rules(const struct oci_addresses *a, const char *gateway, const char *verdict,
                    struct buf *out, struct err *e);
