#pragma once
/*
 * limits: what an administrator allows (bh_limits of the context) against a box's spec. A request
 * above a limit is refused by name; a default above one is lowered.
 */
#include "bellhop/bellhop.h"
#include "common/err.h"
#include "lib/provider/spec.h"

/* Refuses what was asked for, and takes the first allowed word where nothing was. */
int limits_check_request(const struct bh_limits *l, struct spec *s, struct err *e);
/* Lowers numbers that the machine, the image or the provider chose. *ret_changed: one was lowered,
 * and the provider must look at the spec again. */
void limits_lower(const struct bh_limits *l, struct spec *s, bool *ret_changed);
/* Is every value allowed, whoever chose it? No value (0) is above every limit. */
int limits_check(const struct bh_limits *l, const struct spec *s, struct err *e);
int limits_check_time(const struct bh_limits *l, const char *field, int64_t ms, struct err *e);
int limits_check_boxes(const struct bh_limits *l, size_t n_boxes, struct err *e);
