#pragma once
/*
 * oci_keeper: a small process that lives as long as a box with a user network. It starts the
 * helper (slirp4netns or pasta) and ends it with the box, whatever else has died. It also accepts
 * connections in the box to the ports of the host's loopback proxies, and forwards them.
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
    /* it writes to OCI_READY_FD; false: a default route shows that it is ready */
    bool says_ready;
    const char *log_path;
    struct oci_proxy proxies[OCI_MAX_PROXIES];
    size_t n_proxies;
};

/* Descriptors that the helper inherits. */
#define OCI_READY_FD 3
#define OCI_EXIT_FD 4  /* closing it ends the helper */
#define OCI_NETNS_FD 5 /* the box's network namespace */

/* Returns once the network is up. */
int oci_keeper_start(const struct oci_keeper *k, struct oci_proc *ret_keeper,
                     struct oci_proc *ret_helper, struct err *e);

/* Finds loopback proxies among "K=V" strings (http_proxy and its kin). Public for the tests. */
size_t oci_proxies_parse(char *const *env, struct oci_proxy out[OCI_MAX_PROXIES]);
