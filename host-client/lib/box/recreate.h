#pragma once
/*
 * recreate: a box that was found gone is made anew: another id, the same name, keys, project and
 * options; its coding agent begins without sessions. If that fails, the old box is as it was. All
 * functions need the name lock of the box.
 */
#include <stdbool.h>
#include <stdint.h>

#include "bellhop/bellhop.h"
#include "common/err.h"
#include "lib/box/box.h"
#include "lib/box/bringup.h"

/* Shall a command recreate the box? */
bool recreate_is_wanted(const struct bh_box *box);
/* opts: of an `up`, or NULL: as the box was made. The handle becomes the new box's. why: cause of the
 * old one's end. */
int recreate_box_locked(struct bh_box *box, const struct bh_create_options *opts, const char *why,
                        int64_t deadline_mono_ms, struct bringup_report *report, struct err *e);

/* The name without STORE_ASIDE. */
void recreate_base_name(const char *name, char out[64]);
/* The box was recreated, or its recreation was undone: the handle becomes that of the box which has
 * its name. ERR_NOT_FOUND: none has. */
int recreate_follow(struct bh_box *box, struct err *e);
