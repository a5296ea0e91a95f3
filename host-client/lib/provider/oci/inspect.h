#pragma once
/*
 * oci_inspect: reads from /proc and the control groups what the kernel enforces on a running box,
 * and which requested pieces (spec_pieces) are missing.
 */
#include <jansson.h>

#include "common/err.h"
#include "lib/provider/provider.h"
#include "lib/provider/oci/record.h"

int oci_inspect(const struct provider_box *b, const struct oci_run *run, json_t **ret,
                struct err *e);

/* ERR_PRECONDITION: names the first piece that is missing and may not be. */
int oci_inspect_require(const struct provider_box *b, const struct oci_run *run, struct err *e);
