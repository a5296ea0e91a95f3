#pragma once
/*
 * template_boot: runs a template's start_cmd at each start of the box, as the command `start`
 * (`bellhop logs`, `ps` and `attach` know it), and repeats its ready_cmd until that succeeds.
 */
#include "common/err.h"
#include "lib/box/box.h"
#include "lib/box/bringup.h"

#define TEMPLATE_START_ID "start"
#define TEMPLATE_READY_EVERY_MS 2000
#define TEMPLATE_READY_MS (10 * 60 * 1000)

/*
 * Does nothing if the image has neither. ready_cmd has a time limit of its own (TEMPLATE_READY_MS)
 * and moves *deadline_mono_ms by the time it took, unless is_bound: then that deadline is the only
 * limit. A failure names the step "start_cmd" or "ready_cmd"; the error of ready_cmd says how it
 * ended last, and the report's log has start_cmd's output.
 */
int template_boot(struct bh_box *box, struct client *c, bool is_bound, int64_t *deadline_mono_ms,
                  struct bringup_report *report, struct err *e);
