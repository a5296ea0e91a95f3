#pragma once
/*
 * oci_network: the box's network, attached to its namespace before its program runs.
 *
 *   none   a namespace with a loopback of its own
 *   user   that, and slirp4netns (or pasta) as the way out: outgoing connections are made by a
 *          process of the host. The host's loopback is refused by the helper; the host's other
 *          addresses and link-local ones (cloud metadata) are dropped by nft rules in the box's
 *          namespace, which the box cannot change
 *   host   the host's own
 *
 * A small process of ours, the keeper, lives exactly as long as the box: it ends the helper, and
 * forwards the ports of proxies on the host's loopback that the box's environment names.
 */
#include <stdbool.h>

#include "common/err.h"
#include "lib/provider/provider.h"
#include "lib/provider/oci/record.h"

/* What `network` needs on this machine; the error names what is missing. */
int oci_network_check(const struct spec *spec, struct err *e);

/* Writes oci/etc/hosts and oci/etc/resolv.conf. */
int oci_network_files(const struct provider_box *b, struct err *e);

/* run->init is the created box. Fills and saves the record as things come up. */
int oci_network_attach(const struct provider_box *b, struct oci_run *run, struct err *e);

/* Ends keeper and helper. */
void oci_network_end(const struct oci_run *run);
