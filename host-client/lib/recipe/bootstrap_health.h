#pragma once
/*
 * bootstrap_health: is the coding agent well? A server is asked over HTTP, and the JSON in its
 * answer is looked at: a page with status 200 is not health. One that speaks on its standard
 * input is sent a line and must answer it.
 */
#include <stdint.h>

#include "common/err.h"
#include "lib/agent/client.h"
#include "lib/recipe/recipe.h"

struct bootstrap_probe {
    struct client *client;
    const struct recipe_health *health;
    uint16_t port;
    const char *password;
};

/* One try. *ret_session (may be NULL): the session that an rpc answer names, or untouched.
 * -ERR_ABORTED: an agent that is spoken to by lines cannot be asked while somebody writes one. */
int bootstrap_probe(const struct bootstrap_probe *p, int64_t deadline_mono_ms, char **ret_session,
                    struct err *e);

/* Has the object every member of `expect`, with the same value? For the tests. */
int bootstrap_check_answer(json_t *expect, json_t *answer, struct err *e);
