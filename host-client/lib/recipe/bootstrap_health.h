#pragma once
/*
 * bootstrap_health: checks the coding agent's health. A server is asked over HTTP, and the JSON of
 * its response is checked: a page with status 200 is not health. An agent that speaks on its
 * standard input is sent a line and must answer it.
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

/* One attempt. *ret_session (may be NULL): the session that an rpc answer names, or untouched.
 * -ERR_ABORTED: an rpc agent cannot be asked while another client writes a line. */
int bootstrap_probe(const struct bootstrap_probe *p, int64_t deadline_mono_ms, char **ret_session,
                    struct err *e);

/* Does the answer have every member of `expect` with the same value? Public for the tests. */
int bootstrap_check_answer(json_t *expect, json_t *answer, struct err *e);
