#pragma once
/*
 * oci_network: attaches the box's network to its namespace before its program runs.
 *
 *   none   a namespace with a loopback of its own
 *   user   the same with slirp4netns (or pasta) as the way out: a process of the host makes the
 *          box's outgoing connections. The helper refuses the host's loopback. nft rules in the
 *          box's namespace, which the box cannot change, drop the host's other addresses and
 *          link-local ones (cloud metadata)
 *   host   the host's own
 *
 * A small process of ours, the keeper, lives exactly as long as the box: it ends the helper, and
 * forwards the ports of proxies on the host's loopback that the box's environment names.
 */
#include <stdbool.h>

#include "common/err.h"
#include "lib/provider/provider.h"
#include "lib/provider/oci/record.h"

/* Checks that this machine has the programs that `network` needs; the error names a missing
 * one. */
int oci_network_check(const struct spec *spec, struct err *e);

/* Writes oci/etc/hosts and oci/etc/resolv.conf. */
int oci_network_files(const struct provider_box *b, struct err *e);

/* run->init is the created box. Updates and saves the record at each step. */
int oci_network_attach(const struct provider_box *b, struct oci_run *run, struct err *e);

/* Ends keeper and helper. */
void oci_network_end(const struct oci_run *run);
