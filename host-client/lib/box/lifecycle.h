#pragma once
/* lifecycle: the states of a box and the legal transitions. Pure functions. */
#include <stdbool.h>

#include "bellhop/bellhop.h"

#define LIFECYCLE_N_STATES (BH_STATE_ERROR + 1)

/* May a box go from one state to the other? */
bool lifecycle_is_legal(enum bh_state from, enum bh_state to);
/* A command is at work on the box. If nobody holds its name lock, the work was interrupted. */
bool lifecycle_is_transitional(enum bh_state state);
enum bh_state lifecycle_parse(const char *name); /* BH_STATE_UNKNOWN: there is no such state */
