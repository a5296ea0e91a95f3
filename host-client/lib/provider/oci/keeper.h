#pragma once
/*
 * oci_keeper: a small process that lives as long as a box with a user network. It starts the
 * helper (slirp4netns or pasta) and ends it with the box, whoever else has died; and it takes
 * connections to the ports of the host's loopback proxies in the box and passes them on.
 */
#include <stddef.h>
#include <sys/socket.h>

#include "common/err.h"
#include "lib/provider/oci/record.h"

#define OCI_MAX_PROXIES 4

struct oci_proxy {
    struct sockaddr_storage addr; /* the same address on both sides */
    socklen_t addr_len;
};

struct oci_keeper {
    struct oci_proc box;     /* pid 1 */
    const char *const *argv; /* the helper's */
    bool says_ready;         /* writes to OCI_READY_FD; else a default route tells */
    const char *log_path;
    struct oci_proxy proxies[OCI_MAX_PROXIES];
    size_t n_proxies;
};

/* What the helper inherits. */
#define OCI_READY_FD 3
#define OCI_EXIT_FD 4  /* closed when it is to end */
#define OCI_NETNS_FD 5 /* the box's network namespace */

/* Returns when the network is there. */
int oci_keeper_start(const struct oci_keeper *k, struct oci_proc *ret_keeper,
                     struct oci_proc *ret_helper, struct err *e);

/* Proxies on the loopback among "K=V" strings (http_proxy and its kin); for the tests. */
size_t oci_proxies_parse(char *const *env, struct oci_proxy out[OCI_MAX_PROXIES]);
