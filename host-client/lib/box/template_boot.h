#pragma once
/*
 * template_boot: a template's start_cmd, which runs whenever the box starts, as the command `start`
 * (`bellhop logs`, `ps`, `attach` know it), and its ready_cmd, which is tried until it succeeds.
 */
#include "common/err.h"
#include "lib/box/box.h"
#include "lib/box/bringup.h"

#define TEMPLATE_START_ID "start"
#define TEMPLATE_READY_EVERY_MS 2000
#define TEMPLATE_READY_MS (10 * 60 * 1000)

/*
 * Nothing when the image has neither. *deadline_mono_ms is moved by the time that ready_cmd took,
 * which has a time of its own (TEMPLATE_READY_MS), unless is_bound says that it is all there is. A
 * failure names the step "start_cmd" or "ready_cmd"; that of ready_cmd says how it ended the last time, and
 * the report's log what start_cmd has said.
 */
int template_boot(struct bh_box *box, struct client *c, bool is_bound, int64_t *deadline_mono_ms,
                  struct bringup_report *report, struct err *e);
