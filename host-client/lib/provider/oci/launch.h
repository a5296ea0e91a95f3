#pragma once
/*
 * oci_launch: the start of a box whose disk is there: its files, its bundle, its processes, its
 * network, up to the guest agent that listens. The record of the run is saved at each step, so that
 * a stop undoes it from any of them.
 */
#include "common/err.h"
#include "lib/provider/oci/record.h"
#include "lib/provider/provider.h"

/* On failure the caller stops the box. */
int oci_launch(struct provider_box *b, struct oci_run *ret, struct err *e);
