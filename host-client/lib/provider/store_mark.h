#pragma once
/*
 * store_mark: the identity of a state directory on engines that several use. Two stores with the same path on two
 * machines have different marks. Thread-safe.
 */
#include "common/err.h"
#include "lib/util/context.h"

#define STORE_MARK_BYTES 33

/* Reads <state_dir>/mark, and makes it the first time. */
int store_mark(const struct bh_ctx *ctx, char out[STORE_MARK_BYTES], struct err *e);
