#pragma once
/*
 * box_environment: what commands in a box get from its maker: variables, secrets, and the way out
 * of the host (proxy, extra CA certificates). Kept in the box's directory, so that a box that is
 * started again has the same:
 *   env.json      {"env":["K=V",...]}: proxy settings and where the box finds certificates
 *   secrets/K     0600, the value; never in the store, argv or a log
 *   extra-ca.pem  certificates that this machine trusts beyond its distribution's
 */
#include <jansson.h>
#include <stdint.h>

#include "bellhop/bellhop.h"
#include "common/err.h"
#include "lib/box/box.h"

/* What the caller's options and this machine have, into the box's directory. */
int box_environment_save(struct bh_box *box, const struct bh_create_options *opts, struct err *e);
/* Into the running box: secrets as files 0600 in /run/secrets (a memory
 * file system of the user's; without one, and for boxes of this machine, ~/.secrets), certificates in ~/.bellhop. */
int box_environment_apply(struct bh_box *box, struct client *c, int64_t deadline_mono_ms,
                          struct err *e);
/* The variables of a command: the box's name, the above, and --env, in this order. A later one
 * wins. NULL-terminated, the caller's. */
int box_environment_get(struct bh_box *box, char ***ret, struct err *e);
/* The same as a JSON object for the agent's API, with more ("K=V", or NULL) on top. */
int box_environment_json(struct bh_box *box, const char *const *more, json_t **ret, struct err *e);
