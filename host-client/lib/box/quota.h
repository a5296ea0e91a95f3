#pragma once
/*
 * quota: the bounds of an owner: the boxes with the label "owner=NAME" and what they may use together. A box without
 * a bound of its own on something that the quota bounds is refused. Checked when a box is made, before anything is.
 */
#include "lib/box/store.h"
#include "lib/provider/spec.h"

/* The value of a label "owner=...", or "". */
const char *quota_owner(const struct spec *s);
/* ERR_EXHAUSTED names the resource. The caller keeps others from adding boxes meanwhile. */
int quota_check(struct store *store, const struct spec *s, struct err *e);
