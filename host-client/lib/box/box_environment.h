#pragma once
/*
 * box_environment: the variables, secrets, proxy settings and extra CA certificates that the box's
 * maker gives to commands in it. They are kept in the box's directory, so that a restarted box has
 * the same:
 *   env.json      {"env":["K=V",...]}: proxy settings, and the paths of certificates in the box
 *   secrets/K     0600, the value; never in the store, argv or a log
 *   extra-ca.pem  certificates that this machine trusts beyond its distribution's
 */
#include <jansson.h>
#include <stdint.h>

#include "bellhop/bellhop.h"
#include "common/err.h"
#include "lib/box/box.h"

/* Writes the values from the caller's options and from this machine into the box's directory. */
int box_environment_save(struct bh_box *box, const struct bh_create_options *opts, struct err *e);
/* The secrets that were saved, as "K=V". NULL-terminated, or NULL; the caller owns it. */
int box_environment_secrets(struct bh_box *box, char ***ret, struct err *e);
/* Copies them into the running box: secrets as files 0600 in /run/secrets (a memory file system
 * of the user), or in ~/.secrets if there is none or the box shares the machine; certificates
 * in ~/.bellhop. */
int box_environment_apply(struct bh_box *box, struct client *c, int64_t deadline_mono_ms,
                          struct err *e);
/* The variables of a command: the box's name, those above, then --env. A later one wins.
 * NULL-terminated; the caller owns it. */
int box_environment_get(struct bh_box *box, char ***ret, struct err *e);
/* The same as a JSON object for the agent's API, with more ("K=V", or NULL) on top. */
int box_environment_json(struct bh_box *box, const char *const *more, json_t **ret, struct err *e);
