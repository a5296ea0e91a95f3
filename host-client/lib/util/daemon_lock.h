#pragma once
/*
 * daemon_lock: one daemon for each state directory. The daemon holds a lock on <state_dir>/daemon.lock as long as it
 * lives; the file has its facts as JSON: {"pid","version","started_ms","socket","tcp":[...],"instance"}. The commands
 * read them. The instance, a number that no other daemon has, is told by its health too: a socket of the same path can be
 * another daemon's, behind another mount or in another container.
 */
#include <jansson.h>
#include <stdbool.h>

#include "common/err.h"

#define DAEMON_INSTANCE_BYTES 33 /* 32 hex digits */

/* Takes the lock; close() releases it. ERR_EXISTS names the daemon that has it. */
int daemon_lock_take(const char *state_dir, int *ret_fd, struct err *e);
/* Replaces the facts in the file. */
int daemon_lock_write(int fd, const json_t *facts, struct err *e);
/* Does a daemon answer at the socket within the time? */
bool daemon_answers(const char *socket, int wait_ms);
/* The facts of the daemon that runs: {} while it starts; NULL: none runs. The caller owns them. */
int daemon_lock_read(const char *state_dir, json_t **ret, struct err *e);
