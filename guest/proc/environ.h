#pragma once
/*
 * environ: the variables that every later command gets. They override PATH, HOME, USER and LOGNAME,
 * and the command's own request overrides them. Running commands keep their environment. Bounded;
 * nothing of the agent's own environment is in it. Thread-safe.
 */
#include <stdbool.h>

#include "common/err.h"

#define ENVIRON_MAX_VARS 256
#define ENVIRON_MAX_BYTES (128 * 1024) /* of "NAME=VALUE" together */
#define ENVIRON_NAME_BYTES 256

struct registry;

/*
 * Changes all or nothing: with `replace` it drops all variables first, then it unsets names, then
 * it sets "NAME=VALUE"s. Lists end with NULL, or are NULL. Errors name the variable.
 */
int environ_change(struct registry *r, bool replace, char *const *unset, char *const *set,
                   struct err *e);
/*
 * Sets the variables of a file, one "NAME=VALUE" a line, all or nothing. Empty lines do not count.
 * Errors name the file.
 */
int environ_load_file(struct registry *r, const char *path, struct err *e);
/* "NAME=VALUE"s in the order they were first set, the caller's; NULL when there is none. */
int environ_copy(struct registry *r, char ***ret, struct err *e);

/*
 * Sets "NAME=VALUE"s in a list of the caller's: each replaces the variable of its name, or is
 * appended.
 */
int environ_set_all(char ***env, char *const *settings, struct err *e);
