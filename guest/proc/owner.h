#pragma once
/*
 * owner: which command a process of the box belongs to: by the mark its descendants inherit, or
 * the session that its first process leads (see tree.h). Reads /proc: on a pool thread.
 */
#include <sys/types.h>

#include "common/err.h"
#include "proc/spec.h"

struct registry;

/* ERR_NOT_FOUND: of no command that is still known. */
int owner_find(struct registry *r, pid_t pid, char out[SPEC_ID_MAX_BYTES + 1], struct err *e);
