#pragma once
/* bringup_internal: parts of bringup that its files share. All need the box's name lock. */
#include "lib/box/bringup.h"

#define BRINGUP_CONTROL_MS 5000
#define BRINGUP_ENDED_UNSEEN "it ended while it had no monitor"

/* Stores the state and its event, and reads the row anew. */
int bringup_set_state(struct bh_box *box, enum bh_state state, const char *cause, struct err *e);
/* Ends the box's processes, then sets the state `then`. */
int bringup_end_processes(struct bh_box *box, enum bh_state then, const char *cause, struct err *e);
int bringup_make_dir(struct bh_box *box, struct err *e); /* box->dir */
/* 1: its disk was removed by other means. 0: its disk is there. */
int bringup_is_disk_gone(struct bh_box *box, struct err *e);
