#pragma once
/* prompt: the events of a coding agent's turn that is silent. */
#include <stdint.h>

#include "common/err.h"

#define PROMPT_WARNING "turn_warning"
#define PROMPT_STALE "turn_stale"

struct bh_box;

/* Adds the event, of one of the two kinds, to a box of the store. */
int prompt_note_silence(struct bh_box *box, const char *kind, const char *session,
                        int64_t silent_ms, struct err *e);
