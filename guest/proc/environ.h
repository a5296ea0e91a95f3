#pragma once
/*
 * environ: the variables that every later command gets, over PATH, HOME, USER and LOGNAME and under
 * what its own request says. What runs already keeps what it has. Bounded; nothing of the agent's
 * own environment is in it. Thread-safe.
 */
#include <stdbool.h>

#include "common/err.h"

#define ENVIRON_MAX_VARS 256
#define ENVIRON_MAX_BYTES (128 * 1024) /* of "NAME=VALUE" together */
#define ENVIRON_NAME_BYTES 256

struct registry;

/*
 * All of it, or none: with `replace` the others are dropped first, then names are unset, then
 * "NAME=VALUE"s are set. Lists end with NULL, or are NULL. Errors name the variable.
 */
int environ_change(struct registry *r, bool replace, char *const *unset, char *const *set,
                   struct err *e);
/* "NAME=VALUE"s in the order they were first set, the caller's; NULL when there is none. */
int environ_copy(struct registry *r, char ***ret, struct err *e);

/* In any list: each replaces the variable of the same name, or is added. */
int environ_set_all(char ***env, char *const *settings, struct err *e);
