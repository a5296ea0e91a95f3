#pragma once
/*
 * use: is a box in use? What its guest agent says (System/Activity), compared with what it said the
 * last time. In use is a box
 *   - in which a command runs: one that is still starting, too. A shell that has started nothing and
 *     a server (it listens on a port) wait for others, as does the coding agent: they count by the
 *     processor time of their trees, a shell by what it prints, too;
 *   - whose processes together used a twentieth of a processor or more;
 *   - whose agent was called since then, or has a call open; or that is held.
 * Plain data, no threads. Times are the caller's clock in milliseconds.
 */
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct use {
    int64_t at_ms;     /* of the last look */
    int64_t cpu_ms;    /* of everything, by then */
    int n_restarts;    /* of the coding agent, by then */
    bool is_new_agent; /* within a look: it was restarted since the last one */
    json_t *before;    /* its commands by id: {"cpu_ms","output_bytes"} */
};

void use_init(struct use *u, int64_t now_ms);
void use_done(struct use *u); /* accepts zeroed */
/* agent_id: the coding agent's command; "" when it has none. n_restarts: how often the monitor has
 * started it again so far. */
bool use_look(struct use *u, const json_t *activity, const char *agent_id, int n_restarts,
              int64_t now_ms);
