#pragma once
/*
 * startfile: what a template brings of its own. Its variables, which every command gets; and its
 * command, run once when the agent answers: a script in a file, as a command with an id that its
 * readers know. It is a command like any other: its output and its end are there to be asked for.
 */
#include "common/err.h"

#define STARTFILE_ID "start"
#define STARTFILE_MAX_BYTES (1024 * 1024)

struct registry;

/* user, workdir: the agent's defaults, or NULL; borrowed as long as the registry lives. */
int startfile_run(struct registry *reg, const char *path, const char *user, const char *workdir,
                  struct err *e);

/* The lines "NAME=VALUE" of a file become variables of all commands: all of them or none. Empty lines do
 * not count. Errors name the file. */
int startfile_env(struct registry *reg, const char *path, struct err *e);
