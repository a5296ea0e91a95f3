#pragma once
/* docker_host: the engine that Docker's own command would use, from its environment and its configuration. */
#include "common/err.h"

/*
 * set: DOCKER_HOST, or a setting of the user's; or NULL. *ret is as bh_options.docker_host; NULL: the default. With
 * DOCKER_CONTEXT, or a context that `docker context use` has chosen, the address and the certificates are that context's.
 * config.json that cannot be read counts as none, as with Docker's own command: *ret_warning is its error, which the
 * caller tells. A context that is not there is DOCKER_HOST_MISSING and its name: the engine's address is refused when it
 * is used. free() it.
 */
#define DOCKER_HOST_MISSING "context:"
int docker_host_resolve(const char *set, char **ret, struct err *ret_warning, struct err *e);
