#pragma once
/*
 * gc_foreign: finds what carries the label of a box on this machine and is in no store: control
 * groups of boxes, and processes with PROVIDER_MARK_ENV in their environment or with a box in their
 * command line (monitors). gc reports it and touches nothing of it. A box of another store is that
 * store's, as long as the store knows it.
 */
#include "common/err.h"
#include "lib/util/context.h"

struct gc_foreign {
    struct bh_ctx *ctx;
    void (*report)(void *arg, const char *line);
    void *arg;
};
int gc_report_foreign(const struct gc_foreign *gc, struct err *e);
