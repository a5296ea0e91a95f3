#pragma once
/*
 * conversation: a prompt to a coding agent and its answer, by the agent's own API. The recipe names the API
 * (`conversation`): "opencode". What the agent answers is hostile input, and bounded. One thread at a time.
 */
#include <stdint.h>

#include "common/err.h"
#include "lib/agent/client.h"
#include "lib/recipe/turn.h"

struct conversation {
    struct client *client;
    int cancel_fd; /* of the pauses between questions; -1: none */
    uint16_t port;
    const char *username, *password; /* username NULL: none is needed */
    int64_t action_ms;               /* for the answer to each request */
};

struct conversation_turn {
    const char *text;
    struct turn clock;        /* turn_begin() */
    int64_t deadline_mono_ms; /* 0: none */
    /* The agent has said nothing for that long. */
    void (*on_silence)(void *arg, enum turn_silence silence, int64_t silent_ms);
    void *arg;
};

/* Is this the name of an API that is known? */
bool conversation_knows(const char *api);

/* A new session; free() its id. */
int conversation_begin(const struct conversation *c, char **ret_session, struct err *e);
/*
 * Returns when the agent has nothing more to do; free() the text of its last message. The turn goes on after
 * ERR_CANCELED and ERR_DEADLINE (field "timeout"): conversation_abort().
 */
int conversation_prompt(const struct conversation *c, const char *session,
                        struct conversation_turn *t, char **ret_text, struct err *e);
int conversation_abort(const struct conversation *c, const char *session, struct err *e);
