#pragma once
/*
 * daemon_lock: one daemon for each state directory. The daemon holds a lock on <state_dir>/daemon.lock as long as it
 * lives; the file has its facts as JSON: {"pid","version","started_ms","socket","tcp":[...]}. The commands read them.
 */
#include <jansson.h>

#include "common/err.h"

/* Takes the lock; close() releases it. ERR_EXISTS names the daemon that has it. */
int daemon_lock_take(const char *state_dir, int *ret_fd, struct err *e);
/* Replaces the facts in the file. */
int daemon_lock_write(int fd, const json_t *facts, struct err *e);
/* The facts of the daemon that runs: {} while it starts; NULL: none runs. The caller owns them. */
int daemon_lock_read(const char *state_dir, json_t **ret, struct err *e);
